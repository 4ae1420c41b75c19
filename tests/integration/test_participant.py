"""Participants and a real server over sockets: the paper's Algorithm 1 from end to end."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from dag_acfl.cli import app
from dag_acfl.sources import open_source
from fl_client import ApiError, CertificateRefusedError, LedgerClient, Participant, ParticipantState, StepReport
from fl_client.training import Arrays
from fl_core.errors import (
    ParentsUnknownError,
    SelectionUnknownError,
    SequenceConflictError,
    SignatureError,
    StepTooLongError,
    TransactionUnknownError,
)
from fl_core.models import decode_model
from fl_core.trust.contribution import contributions_in
from fl_core.verify import verify
from ledger_server.app import create_app
from ledger_server.settings import load_settings
from tests.builders import ISSUER, LAYOUT, key_from_seed, make_genesis, model
from tests.certificates import Authority
from tests.live import Live, run_app
from tests.serving import prepare
from tests.tiny_trainer import TinyTrainer


@pytest.fixture
def live(sqlite_url: str, tmp_path: Path) -> Iterator[Live]:
    """A server with a new ledger: all weights 1, top-k selection."""
    settings = load_settings(data_dir=tmp_path / "server", database_url=sqlite_url)
    prepare(
        sqlite_url,
        settings.data_dir,
        genesis=make_genesis(selector="top-k", selector_params={"k": 2}),
    )
    with run_app(create_app(settings, key=ISSUER), settings) as running:
        yield running


def steps(live: Live, folder: Path, trainer: TinyTrainer, count: int, **ways: Any) -> list[StepReport]:
    reports: list[StepReport] = []
    with ParticipantState(folder) as state, LedgerClient(live.url, key=state.key, timeout=30) as client:
        Participant(client, trainer, state, **ways).run(count, on_step=reports.append)
    return reports


def test_two_participants_learn_from_each_other(live: Live, tmp_path: Path) -> None:
    ann, bob = TinyTrainer(target=2), TinyTrainer(target=3)
    (first,) = steps(live, tmp_path / "ann", ann, 1)
    assert first.joined
    assert first.source == "own"
    for _ in range(3):
        bobs = steps(live, tmp_path / "bob", bob, 1)
        anns = steps(live, tmp_path / "ann", ann, 1)
    assert bobs[0].source == anns[0].source == "parents"
    assert bobs[0].transaction in anns[0].parents
    with LedgerClient(live.url) as reader:
        assert reader.tips().transactions == 1 + 1 + 6
        newest = decode_model(LAYOUT, reader.model(anns[0].transaction))
        assert len(reader.clients().items) == 2
        (cluster,) = reader.clusters().clusters
        assert len(cluster.authors) == 2
    # Alone ann would be at 2; what she got from bob, half of it trained away, leaves her above.
    assert 2 < float(newest["fc.bias"][0]) < 2.6
    assert all(np.isfinite(array).all() for array in newest.values())


def test_a_client_that_merges_leaves_a_ledger_that_verifies(live: Live, tmp_path: Path) -> None:
    ann, bob = TinyTrainer(target=1), TinyTrainer(target=9)

    def halfway(own: Arrays, average: Arrays) -> Arrays:
        return {name: (own[name] + average[name]) / 2 for name in own}

    own = steps(live, tmp_path / "ann", ann, 1, merge=halfway)[0].transaction
    steps(live, tmp_path / "bob", bob, 1)
    (report,) = steps(live, tmp_path / "ann", ann, 1, merge=halfway)
    assert report.source == "parents"
    with LedgerClient(live.url) as reader:
        models = [decode_model(LAYOUT, reader.model(parent)) for parent in report.parents]
        mine = float(decode_model(LAYOUT, reader.model(own))["fc.bias"][0])
    mean = np.mean([float(each["fc.bias"][0]) for each in models])
    assert ann.trained_from[-1] == pytest.approx((mine + mean) / 2, rel=1e-6)
    with open_source(live.url) as ledger:
        assert [finding for finding in verify(ledger) if not finding.kind.is_warning] == []


def test_clients_measure_whose_models_help_and_the_ledger_tells(live: Live, tmp_path: Path) -> None:
    steps(live, tmp_path / "ann", TinyTrainer(target=2), 1)
    newest, authors = {}, {}
    for name, value in (("bob", 2.1), ("cat", 5.0)):  # each beside the others, upon genesis
        with LedgerClient(live.url) as client:
            published = client.publish(
                model(*[value] * LAYOUT.num_parameters), parents=[client.ledger_id()], num_examples=10
            )
            newest[name], authors[name] = published.id, client.author
    (report,) = steps(live, tmp_path / "ann", TinyTrainer(target=2), 1, contribution_every=1, refuse_worse_than=None)
    assert len(report.parents) == 3  # her own, and two others
    with open_source(live.url) as ledger:
        (said,) = (each.header for _, each in ledger.transactions() if each.id == report.transaction)
    found = contributions_in(said)
    # Of 1.875, 2.1 and 5 the mean is 2.9917, 0.9917 from 2; without bob 3.4375, without cat 1.9875.
    assert found == pytest.approx({newest["bob"]: 1.4375 / 0.9917 - 1, newest["cat"]: 0.0125 / 0.9917 - 1}, rel=1e-3)
    told = CliRunner().invoke(app, ["trust", "contribution", live.url, "--json"])
    rows = json.loads(told.stdout)
    assert [(row["author"], row["mean"] > 0, row["askers"], row["error"]) for row in rows] == [
        (authors["bob"], True, 1, None),
        (authors["cat"], False, 1, None),
    ]
    told = CliRunner().invoke(app, ["trust", "alarms", live.url])
    assert (told.exit_code, told.stdout) == (0, "nothing is odd\n")


def test_participants_at_the_same_time_lose_nothing(live: Live, tmp_path: Path) -> None:
    reports: dict[int, list[StepReport]] = {}

    def work(site: int) -> None:
        reports[site] = steps(live, tmp_path / str(site), TinyTrainer(target=1 + site % 2), 5)

    threads = [threading.Thread(target=work, args=(site,)) for site in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    ids = {report.transaction for each in reports.values() for report in each}
    assert len(ids) == 30
    with LedgerClient(live.url) as reader:
        cursor, seen = None, set()
        while True:
            page = reader.transactions(cursor, limit=7)
            seen |= {item.id for item in page.items if item.kind == "update"}
            cursor = page.next
            if cursor is None:
                break
    assert seen == ids


def test_a_round_costs_what_equation_8_says_and_the_headers(live: Live, tmp_path: Path) -> None:
    """2 (|hash| + |ω|) bytes, and what HTTP and the evidence add."""
    reports = steps(live, tmp_path / "ann", TinyTrainer(target=2), 3)
    for report in reports[1:]:
        assert len(model()) < report.bytes_sent < len(model()) + 3_000
        assert report.bytes_received < 10_000


def test_the_whole_protocol_through_the_sdk(live: Live) -> None:
    with LedgerClient(live.url, key=key_from_seed(7), timeout=30) as client:
        genesis = client.genesis()
        assert client.version().ledger == genesis.ledger
        assert client.health().status == "ok"
        selection = client.select(model=model(1, 2, 3, 4))
        published = client.publish(model(1, 2, 3, 4), selection=selection, num_examples=5, metrics={"a": 0.5})
        again = client.selection(selection.id)
        assert again == selection
        assert client.transaction(published.id).metrics == {"a": 0.5}
        assert client.model(published.id) == model(1, 2, 3, 4)
        assert client.attachment_bytes(genesis.ledger) == genesis.genesis.document
        assert client.attachment_bytes(published.id).startswith(b"{")
        assert client.costs().publications == 1
        assert client.peers().items == []
        events = client.events(after=client.transactions(limit=1).next)
        assert next(events).transaction.id == published.id
        second = client.publish(model(2, 2, 2, 2), parents=[published.id], num_examples=5)
        assert next(events).transaction.id == second.id
        events.close()


def test_the_servers_refusals_come_back_as_their_classes(live: Live) -> None:
    with LedgerClient(live.url, key=key_from_seed(7), timeout=30) as client:
        genesis = client.genesis().ledger
        first = client.publish(model(1), parents=[genesis], num_examples=1)
        with pytest.raises(SequenceConflictError) as conflict:
            client.publish(model(2), parents=[genesis], num_examples=1, sequence=0)
        assert (conflict.value.existing, conflict.value.next_sequence) == (first.id, 1)
        with pytest.raises(ParentsUnknownError) as unknown:
            client.publish(model(2), parents=["5" * 64], num_examples=1, start="9" * 64)
        assert unknown.value.missing == ("5" * 64,)
        with pytest.raises(TransactionUnknownError):
            client.select(transaction="5" * 64)
        with pytest.raises(StepTooLongError) as step:
            client.publish(model(1e6), parents=[genesis], num_examples=1)
        told = client.select(model=model(1)).max_step_alone
        assert told is not None
        assert (step.value.norm, step.value.bound) == (pytest.approx(1e6), told.norm)
        with pytest.raises(SelectionUnknownError):
            client.selection("5" * 64)


@pytest.mark.parametrize("size", [100_000, 50_000_000])
def test_a_body_that_the_server_refuses_unread_is_a_refusal_and_no_broken_connection(live: Live, size: int) -> None:
    with LedgerClient(live.url, key=key_from_seed(7), timeout=30) as client:
        with pytest.raises(ApiError) as refused:
            client.publish(bytes(size), parents=[client.genesis().ledger], num_examples=1)
        assert refused.value.status == 413
        assert client.tips().transactions == 1


def test_a_client_without_a_key_takes_part(live: Live) -> None:
    with LedgerClient(live.url, timeout=30) as client:
        selection = client.select(model=model(1, 2))
        first = client.publish(model(1, 2), selection=selection, num_examples=3)
        second = client.publish(model(2, 2), selection=client.select(transaction=first.id), num_examples=3)
    assert first.author.startswith("hash:")
    assert second.author == first.author
    assert second.sequence == 1


def test_a_key_cannot_sign_for_another(live: Live) -> None:
    with (
        LedgerClient(live.url, key=key_from_seed(7)) as ann,
        LedgerClient(live.url, key=key_from_seed(8)) as bob,
    ):
        header = ann.header_for(
            model(1),
            selection=None,
            parents=[ann.genesis().ledger],
            num_examples=1,
            metrics={},
            sequence=0,
            created_at_ms=1,
        )
        with pytest.raises(SignatureError):
            bob.publish_header(header, model(1))


def test_everything_travels_over_tls_and_a_stranger_is_not_trusted(sqlite_url: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = authority.issue("server")
    settings = load_settings(data_dir=tmp_path / "server", database_url=sqlite_url, tls=tls)
    prepare(sqlite_url, settings.data_dir)
    with run_app(create_app(settings, key=ISSUER), settings) as live:
        assert live.url.startswith("https://")
        with LedgerClient(live.url, key=key_from_seed(7), ca_file=authority.certificate, timeout=30) as client:
            selection = client.select(model=model(1, 2))
            published = client.publish(model(1, 2), selection=selection, num_examples=1)
            assert client.tips().items[0].transaction == published.id
            assert client.traffic.sent > len(model())
        with LedgerClient(live.url, timeout=30) as stranger, pytest.raises(CertificateRefusedError, match="ca_file"):
            stranger.genesis()
