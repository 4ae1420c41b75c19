"""Tips that pile up cost neither memory nor selections: only what can be offered has a row, whatever came before."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from fl_core.dag.genesis import Component
from fl_core.retention import Retention
from fl_core.types import Digest, TxId
from ledger_server.founding import create_ledger
from ledger_server.pruning import prune
from ledger_server.publishing import LedgerService
from ledger_server.reading import LedgerSnapshot
from ledger_server.store import open_store
from ledger_server.store.journal import Store
from tests.builders import CREATED_AT_MS, ISSUER, make_genesis, model
from tests.databases import change
from tests.integration.test_service import Faulty, publish, service_on

MOST = 4
SPARE = 64
"""What the node keeps beyond ``max_candidates + 1``."""


@pytest.fixture
def journal(sqlite_url: str, tmp_path: Path) -> Iterator[Store]:
    """A ledger that compares four tips at most and forgets them after two seconds."""
    genesis = make_genesis(selector_params={"k": 3}, max_parents=4, max_candidates=MOST, freshness_s=2)
    with open_store(sqlite_url, data_dir=tmp_path) as store:
        create_ledger(store, genesis, model(1, 1, 1, 1), key=ISSUER, now_ms=CREATED_AT_MS)
        yield store


@pytest.fixture
def service(journal: Store) -> Iterator[LedgerService]:
    running = service_on(journal)
    yield running
    running.close()


def rows(service: LedgerService) -> int:
    return len(service.node._vectors)


def compared(service: LedgerService, transaction: TxId) -> set[TxId]:
    record, _ = service.selections.select_for(transaction)
    return {each.transaction for each in record.evidence.selection.candidates}


def lazy(service: LedgerService, number: int) -> list[TxId]:
    """Clients without a key that each join on genesis, once; they come at one time, so their names decide."""
    tips = [publish(service, 1, index % 5, index % 3).transaction for index in range(number)]
    return sorted(tips, key=lambda tip: service.ledger.graph.get(tip).author)  # type: ignore[union-attr]


def test_a_pile_of_tips_takes_rows_for_what_can_be_offered_only(service: LedgerService) -> None:
    tips = lazy(service, MOST + 1 + SPARE + 20)
    assert rows(service) <= MOST + 1 + SPARE
    assert compared(service, tips[0]) == set(tips[1 : 1 + MOST])
    assert service.tips()[0] == 1 + len(tips), "they stay in the ledger"
    assert len(service.tips()[1]) == len(tips)


def test_a_tip_whose_turn_comes_is_read_then(service: LedgerService) -> None:
    tips = lazy(service, MOST + 1 + SPARE + 20)
    mine = "a" * 64
    for turn in range(20):
        parents, tips = tips[:MOST], tips[MOST:]
        newest = publish(service, 9, turn % 7, parents=tuple(sorted(parents)), secret=mine).transaction
        assert compared(service, newest) == set(tips[:MOST])
        assert rows(service) <= MOST + 1 + SPARE


def test_superseded_and_stale_tips_lose_their_rows(journal: Store) -> None:
    clock = count(CREATED_AT_MS, 500)
    service = service_on(journal, now_ms=lambda: next(clock))
    lazy = {"secret": "b" * 64}
    for value in range(10):
        publish(service, 2, value, **lazy)
    assert rows(service) == 1, "one author has one candidate, however lazy it is"
    tip = publish(service, 3).transaction
    for value in range(4):
        tip = publish(service, 4, value, parents=(tip,), secret="c" * 64).transaction
    assert rows(service) == 1, "more than two seconds on, the lazy author's tip is out of the window"
    assert compared(service, tip) == set()
    service.close()


def test_a_restart_offers_the_same(service: LedgerService, journal: Store) -> None:
    tips = lazy(service, 30)
    publish(service, 7, parents=tuple(sorted(tips)[:3]))
    again = service_on(journal)
    assert rows(again) == MOST + 1
    for asker in (tips[0], tips[5], tips[-1]):
        ours, theirs = (each.selections.select_for(asker)[0].evidence for each in (service, again))
        assert [each.transaction for each in ours.selection.candidates] == [
            each.transaction for each in theirs.selection.candidates
        ]
        assert (ours.selection.parents, ours.aggregate) == (theirs.selection.parents, theirs.aggregate)
    again.close()


def test_a_server_that_starts_reads_the_sketches_of_models_unless_they_are_damaged(
    sqlite_url: str, tmp_path: Path
) -> None:
    asked: list[Digest] = []

    def model_of(digest: Digest) -> bytes | None:
        asked.append(digest)
        return b"other bytes" if digest == worst else store.model(digest)

    worst: Digest | None = None
    sketch = Component("sketch", {"dimensions": 2, "seed": 1})
    with open_store(sqlite_url, data_dir=tmp_path) as store:
        create_ledger(
            store, replace(make_genesis(), comparison=sketch), model(1, 1, 1, 1), key=ISSUER, now_ms=CREATED_AT_MS
        )
        before = service_on(store)
        tips = [publish(before, 1, index, 3).transaction for index in range(3)]
        digests = [node.model_digest for node in before.node.nodes_of(tips)]
        after = service_on(Faulty(store, model=model_of))  # type: ignore[arg-type]
        assert asked == [before.node.graph.genesis.model_digest]
        ours, theirs = (each.selections.select_for(tips[0])[0].evidence for each in (before, after))
        assert ours == theirs
        worst = digests[1]
        change(sqlite_url, "UPDATE sketches SET data = X'00' WHERE model = :model", model=bytes.fromhex(worst))
        again = service_on(Faulty(store, model=model_of))  # type: ignore[arg-type]
        assert compared(again, tips[0]) == {tips[2]}, "its model was read instead, and is damaged too"
        report = prune(
            store, LedgerSnapshot(Retention(2**62, frozenset({before.id}), frozenset()), 4), now_ms=lambda: 1
        )
        assert report.models == 3
        assert [store.sketch(each) for each in digests] == [None] * 3
        for each in (before, after, again):
            each.close()


def test_a_model_that_is_damaged_when_it_is_averaged_is_offered_no_more(service: LedgerService, journal: Store) -> None:
    tips = lazy(service, 3)
    damaged = service.node.nodes_of([tips[1]])[0].model_digest
    change(
        str(journal.database.engine.url),
        "UPDATE model_pieces SET data = X'00' WHERE digest = :of",
        of=bytes.fromhex(damaged),
    )
    service.models.forget([damaged])
    record, _ = service.selections.select_for(tips[0])
    assert {each.transaction for each in record.evidence.selection.candidates} == {tips[2]}


def test_a_damaged_tip_is_read_once_and_never_offered(service: LedgerService, journal: Store) -> None:
    tips = lazy(service, 3)
    asked: list[Digest] = []

    def damaged(digest: Digest) -> bytes | None:
        asked.append(digest)
        return b"other bytes" if digest == worst else journal.model(digest)

    worst = service.view(tips[1]).stored.transaction.header.model_digest
    faulty = Faulty(journal, model=damaged)
    again = service_on(faulty)  # type: ignore[arg-type]
    for _ in range(3):
        assert compared(again, tips[0]) == {tips[2]}
    assert asked.count(worst) == 1
    again.close()
