"""A journal that was put back from a backup says so by its epoch; one that shrank in silence is reported by its peers."""

import re
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from dag_acfl.__main__ import main
from fl_core.sync.limits import GossipLimits
from fl_core.wire import v1
from ledger_server.gossip.downloads import Downloads
from ledger_server.store import open_store
from tests.builders import model
from tests.databases import DatabaseUrls
from tests.network import Node, network, settle
from tests.serving import serving

OFTEN = replace(GossipLimits(), comparison_interval_s=0.1, pull_interval_s=0.2)


@pytest.fixture(autouse=True)
def audits_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger_server.gossip.runtime.limits_for", lambda _: OFTEN)


def figure(node: Node, name: str, **labels: str) -> float:
    """A figure of ``/metrics``; 0 while there is none."""
    inside = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    found = re.search(rf"^{name}\{{{re.escape(inside)}\}} (.*)$", node.get("/metrics").text, re.MULTILINE)
    return 0.0 if found is None else float(found[1])


def rollbacks_seen(node: Node) -> float:
    return figure(node, "dag_acfl_gossip_incidents_total", peer="server-0", incident="rolled-back")


def await_summaries(node: Node, more: int = 3) -> None:
    """Until a server has looked at so many more of its peer's summaries."""

    def received() -> float:
        labels = {"peer": "server-0", "kind": "summary", "direction": "received"}
        return figure(node, "dag_acfl_gossip_bytes_total", **labels)

    begun, end_s = received(), time.monotonic() + 30
    while received() - begun < more * 264:
        assert time.monotonic() < end_s, "no summaries"
        time.sleep(0.05)


async def _fetch_nothing(*_: object) -> None:
    """A model that never comes keeps a server as it is while its peers look at it."""


@pytest.mark.parametrize("how", ["restored", "in silence"])
def test_peers_tell_a_restore_from_a_rollback_and_miss_nothing_either_way(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are SQLite files put back; a restore names its journal anew."""
    monkeypatch.chdir(tmp_path)
    alarms = 0 if how == "restored" else 1
    with network(tmp_path, 2) as servers:
        lost, peer = servers
        epoch = lost.service.epoch
        assert main(["ledger", "backup", "copy", "--data-dir", str(lost.folder)]) == 0
        after = lost.publish(parents=[lost.ledger_id], model=model(1))["id"]
        assert settle(servers) == {lost.ledger_id, after}
        await_summaries(peer)
        lost.stop()
        for each in lost.folder.glob("ledger.sqlite3*"):
            each.rename(tmp_path / f"broken-{each.name}")
        if how == "restored":
            assert main(["ledger", "restore", "copy", "--data-dir", str(lost.folder)]) == 0
        else:
            shutil.copy(tmp_path / "copy" / "ledger.sqlite3", lost.folder)
        with monkeypatch.context() as patched:
            patched.setattr(Downloads, "fetch_together", _fetch_nothing)
            lost.start()
            await_summaries(peer)
            assert len(lost.ids()) == 1
            assert rollbacks_seen(peer) == alarms
        assert (lost.service.epoch != epoch) is (how == "restored")
        assert settle(servers) == {lost.ledger_id, after}
        # Its arrivals go on otherwise than before: the peer must not go on behind what it has read there.
        new = lost.publish(parents=[lost.ledger_id], model=model(2))["id"]
        assert settle(servers) == {lost.ledger_id, after, new}
        await_summaries(peer)
        assert rollbacks_seen(peer) == alarms


def test_a_cursor_of_an_earlier_epoch_is_gone_and_reading_begins_again(
    database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(database_url, tmp_path) as server:
        for number in (1, 2):
            server.publish(parents=[server.ledger_id], model=model(number))
        cursor = server.client.get(v1.TRANSACTIONS, params={"limit": 1}).json()["next"]
        assert server.client.get(v1.TRANSACTIONS, params={"after": cursor}).status_code == 200
    monkeypatch.setenv("DAG_ACFL_DATABASE_URL", database_url)
    assert main(["db", "renew-epoch", "--data-dir", str(tmp_path)]) == 0
    epoch = capsys.readouterr().out.split()[1]
    with open_store(database_url, data_dir=tmp_path) as store:
        assert store.epoch() == epoch
    with serving(database_url, tmp_path, new=False) as server:
        refused = server.client.get(v1.TRANSACTIONS, params={"after": cursor})
        assert (refused.status_code, refused.json()["type"]) == (410, "/problems/cursor-unknown")
        assert len(server.client.get(v1.TRANSACTIONS).json()["items"]) == 3


def test_a_peer_reads_from_the_beginning_after_a_new_epoch(database_urls: DatabaseUrls, tmp_path: Path) -> None:
    with network(tmp_path, 2, urls=database_urls(2)) as servers:
        renewed, _ = servers
        renewed.publish(parents=[renewed.ledger_id], model=model(1))
        settle(servers)
        renewed.stop()
        with open_store(str(renewed.settings.resolved_database_url), data_dir=renewed.folder) as store:
            store.renew_epoch()
        renewed.start()
        renewed.publish(parents=[renewed.ledger_id], model=model(2))
        assert len(settle(servers)) == 3
