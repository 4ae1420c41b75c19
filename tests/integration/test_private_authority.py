"""Servers whose certificates a private authority has signed: they gossip where it is named, and nowhere else."""

import logging
import time
from pathlib import Path

import pytest

from fl_client import LedgerClient
from fl_core.errors import ParameterError
from ledger_server.app import create_app
from ledger_server.gossip.contacts import logger as gossip_log
from ledger_server.settings import load_settings
from tests.builders import ISSUER, key_from_seed, model
from tests.certificates import Authority
from tests.databases import DatabaseUrls
from tests.network import Node, network, settle

WITHIN_S = 20.0

# Who signs certificates is nothing to a database; test_gossip.py has both kinds.
on_sqlite = pytest.mark.parametrize("database_urls", ["sqlite"], indirect=True)


def publish(node: Node, authority: Authority) -> str:
    with LedgerClient(node.url, key=key_from_seed(501), ca_file=authority.certificate, timeout=30) as client:
        published = client.publish(model(1, 2), parents=[node.ledger_id], num_examples=1)
        assert client.tips().items[0].transaction == published.id
        return published.id


@on_sqlite
def test_servers_whose_authority_is_named_gossip_over_tls(database_urls: DatabaseUrls, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    pairs = [authority.issue("a"), authority.issue("b")]
    with network(tmp_path, 2, urls=database_urls(2), tls=pairs, peers_ca_file=authority.certificate) as servers:
        assert all(node.url.startswith("https://") for node in servers)
        made = publish(servers[0], authority)
        assert settle(servers) == {servers[0].ledger_id, made}
        with LedgerClient(servers[1].url, ca_file=authority.certificate, timeout=30) as client:
            assert [peer.is_reachable for peer in client.peers().items] == [True]


@on_sqlite
@pytest.mark.parametrize("named", [None, "another"])
def test_a_peer_of_an_authority_that_is_not_named_is_refused_and_the_log_says_why(
    named: str | None, database_urls: DatabaseUrls, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path / "tls")
    pairs = [authority.issue("a"), authority.issue("b")]
    others = None if named is None else Authority(tmp_path / "tls", named).certificate
    caplog.set_level(logging.WARNING, logger=gossip_log.name)
    with network(tmp_path, 2, urls=database_urls(2), tls=pairs, peers_ca_file=others) as servers:
        publish(servers[0], authority)
        reasons = refusals(caplog, peers=2)
        assert [len(node.ids()) for node in servers] == [2, 1], "nothing has crossed"
        assert not any(state.is_reachable for node in servers for state in node.gossip.peers())
    for reason in reasons:
        assert reason.endswith("; put its authority into the file of the setting peers_ca_file")


def refusals(caplog: pytest.LogCaptureFixture, *, peers: int) -> list[str]:
    """What the log says of peers whose certificates are refused, once it has said it of so many.

    A server whose peer is only just starting has said before that nobody answers there.
    """
    end_s = time.monotonic() + WITHIN_S
    while True:
        told = {
            record.__dict__["peer"]: str(record.__dict__["reason"])
            for record in list(caplog.records)
            if record.getMessage() == "peer does not answer" and "certificate" in record.__dict__["reason"]
        }
        if len(told) == peers:
            return list(told.values())
        assert time.monotonic() < end_s, f"the log says only {told}"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "cannot be read (No such file or directory)"),
        ("not a certificate", "holds no certificate in PEM"),
        ("", "holds no certificate in PEM"),
    ],
)
def test_a_file_of_authorities_that_is_none_stops_the_server_from_starting(
    content: str | None, why: str, tmp_path: Path
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    settings = load_settings(data_dir=tmp_path, peers_ca_file=file)
    with pytest.raises(ParameterError) as refused:
        create_app(settings, key=ISSUER)
    assert str(refused.value).startswith(f"setting peers_ca_file: {file} {why}")
    assert not (tmp_path / "ledger.sqlite3").exists(), "nothing has been opened"
