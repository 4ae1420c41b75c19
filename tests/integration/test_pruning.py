"""Pruning a ledger that is served: what must stay stays, what goes is gone, and the proof holds."""

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest

from fl_core.errors import ModelPrunedError, ModelUnknownError, ParameterError
from fl_core.types import Digest, TxId, digest_of
from fl_core.verify import LedgerSource, VerifyProgress, verify
from ledger_server.admin.store_source import StoreSource
from ledger_server.buckets import S3Address
from ledger_server.founding import create_ledger
from ledger_server.model_store import CachedModelStore, ModelCorruptError
from ledger_server.pruning import AutomaticPruning, PruneReport, prune, snapshot_of
from ledger_server.publishing import LedgerService
from ledger_server.store import open_store
from ledger_server.store.blobs import s3
from ledger_server.store.blobs.protocol import ModelReader
from ledger_server.store.errors import StoreUnavailableError
from ledger_server.store.journal import Store
from ledger_server.store.opening import BlobPlace
from tests.builders import CREATED_AT_MS, ISSUER, LAYOUT, make_genesis, model
from tests.faults.harness import forked
from tests.integration.test_service import NOW_MS, Faulty, publish, service_on
from tests.pruning_crash import KILLED, prune_until
from tests.reference import graph as reference

WINDOW_S = 30


@pytest.fixture
def journal(store: Store) -> Store:
    genesis = make_genesis(selector_params={"k": 3}, max_parents=4, freshness_s=WINDOW_S)
    create_ledger(store, genesis, model(1, 1, 1, 1), key=ISSUER, now_ms=CREATED_AT_MS)
    return store


@pytest.fixture
def service(journal: Store) -> Iterator[LedgerService]:
    ticks = count(NOW_MS, 1000)
    running = service_on(journal, now_ms=lambda: next(ticks))
    yield running
    running.close()


def secret(letter: str) -> str:
    return letter * 64


def grow(service: LedgerService, *, rounds: int, authors: str = "abc") -> dict[str, TxId]:
    """Each author joins, then trains on what it is offered, again and again; returns their newest transactions."""
    newest = {
        letter: publish(service, 0.51 * index * index, secret=secret(letter)).transaction
        for index, letter in enumerate(authors)
    }
    for turn in range(rounds):
        for index, letter in enumerate(authors):
            selection, _ = service.selections.select_for(newest[letter])
            values = (index + 1) / (turn + 2), turn / rounds, index / 4
            newest[letter] = publish(service, *values, selection=selection.id).transaction
    return newest


def run(service: LedgerService, *, keep_s: int = 0, dry_run: bool = False) -> PruneReport:
    return prune(service.store, service.snapshot(keep_ms=1000 * keep_s), now_ms=lambda: NOW_MS, dry_run=dry_run)


def kept(service: LedgerService, *, keep_s: int = 0) -> set[str]:
    return reference.kept(service.ledger, window_ms=1000 * WINDOW_S, keep_ms=1000 * keep_s)


def here(service: LedgerService) -> set[TxId]:
    """Transactions whose model the store has."""
    views = service.page(after=-1, limit=1000)
    return {
        view.stored.transaction.id
        for view in views
        if service.store.model(view.stored.transaction.header.model_digest) is not None
    }


def proof(source: LedgerSource) -> VerifyProgress:
    """What a verification came to, of a ledger in which nothing is wrong."""
    seen: list[VerifyProgress] = []
    assert list(verify(source, progress=seen.append)) == []
    return seen[-1]


# -- what goes and what stays ---------------------------------------------------------------------------


def test_what_is_kept_is_what_the_definition_says_and_the_proof_holds(service: LedgerService) -> None:
    gone = publish(service, 0.0123, secret=secret("d")).transaction
    grow(service, rounds=6)
    idle = publish(service, 0.0456, secret=secret("e")).transaction
    publish(service, 0.0789, secret=secret("f"))
    before = proof(StoreSource(service.store))
    report = run(service, keep_s=10)
    stay = kept(service, keep_s=10)
    assert here(service) == stay
    assert idle in stay, "its author's newest"
    assert gone not in stay, "its author's newest, and out of the window"
    assert report == PruneReport(
        transactions=len(service.ledger),
        kept=len(stay),
        models=len(service.ledger) - len(stay),
        nbytes=(len(service.ledger) - len(stay)) * LAYOUT.nbytes,
        held=len(stay),
    )
    after = proof(StoreSource(service.store))
    assert (after.checked, after.models, after.pruned) == (before.checked, len(stay), report.models)
    assert after.aggregates + after.unprovable == before.aggregates, "each average is recomputed, or counted"
    assert after.unprovable > 0


def test_random_ledgers_keep_what_the_definition_says(service: LedgerService) -> None:
    rng = random.Random(7)
    ids = [service.id]
    for _ in range(40):
        parents = tuple(sorted(set(rng.sample(ids[-6:], k=min(len(ids), 2)))))
        values = rng.randint(0, 3), rng.randint(0, 2)  # few different models, so that several transactions share one
        ids.append(publish(service, *values, parents=parents, secret=secret(rng.choice("abcde"))).transaction)
    for keep_s in (60, 20, 0):
        run(service, keep_s=keep_s)
        stay = sorted(kept(service, keep_s=keep_s))
        needed = {node.model_digest for node in service.node.nodes_of(stay)}  # type: ignore[arg-type]
        held = {each.digest for each in service.store.removal.held(after=None, limit=100)}
        assert held == needed, "a model goes when all that carry it let it go"


def test_a_restart_offers_the_same_as_before_the_pruning(service: LedgerService, journal: Store) -> None:
    newest = grow(service, rounds=5)
    expected = {letter: service.selections.select_for(each)[0].evidence for letter, each in newest.items()}
    run(service)
    again = service_on(journal)
    for letter, each in newest.items():
        found = again.selections.select_for(each)[0].evidence
        assert (found.selection.parents, found.aggregate) == (
            expected[letter].selection.parents,
            expected[letter].aggregate,
        )
    again.close()


# -- who asks for what is gone ---------------------------------------------------------------------------


def test_an_average_whose_models_are_pruned_is_unknown_and_had_by_a_new_selection(journal: Store) -> None:
    service = service_on(journal, cache_bytes=0)
    newest = grow(service, rounds=0)
    old, _ = service.selections.select_for(newest["a"])
    assert old.evidence.selection.parents == tuple(sorted(newest.values()))
    for letter in "abc":
        for value in range(6):
            newest[letter] = publish(service, value / 7, secret=secret(letter), parents=(newest[letter],)).transaction
    run(service)
    with pytest.raises(ModelUnknownError):
        service.aggregates.model(old.evidence.aggregate)
    service.close()


class Hollow(ModelReader):
    """A reader of a model whose bytes were dropped under who reads it: zeros, as a hole in a file reads."""

    def _read(self, start: int, stop: int) -> bytes:
        return bytes(stop - start)


def test_a_model_that_is_pruned_while_it_is_read_is_not_called_damaged(journal: Store) -> None:
    digest = digest_of(model(3))
    zeros = Faulty(
        journal,
        model=lambda _: bytes(LAYOUT.nbytes),
        open_model=lambda _: Hollow(LAYOUT.nbytes),
        removal=Faulty(journal.removal, is_pruned=lambda _: True),
    )
    models = CachedModelStore(zeros, LAYOUT, cache_bytes=0)  # type: ignore[arg-type]
    with pytest.raises(ModelPrunedError):
        models.vector(digest)
    with pytest.raises(ModelPrunedError), models.sources([digest], beside={}) as sources:
        sources[0].read(0, LAYOUT.num_parameters)
    damaged = Faulty(journal, model=lambda _: bytes(LAYOUT.nbytes), open_model=lambda _: Hollow(LAYOUT.nbytes))
    models = CachedModelStore(damaged, LAYOUT, cache_bytes=0)  # type: ignore[arg-type]
    with pytest.raises(ModelCorruptError):
        models.vector(digest)
    with pytest.raises(ModelCorruptError), models.sources([digest], beside={}) as sources:
        sources[0].read(0, LAYOUT.num_parameters)


# -- beside publications ----------------------------------------------------------------------------------


def test_what_is_published_between_the_decision_and_the_pruning_keeps_its_model(service: LedgerService) -> None:
    first = publish(service, 0.25, secret=secret("a")).transaction
    tip = first
    for value in range(5):
        tip = publish(service, value / 8, secret=secret("a"), parents=(tip,)).transaction
    snapshot = service.snapshot(keep_ms=0)
    again = publish(service, 0.25, secret=secret("b")).transaction  # the very model of the first
    prune(service.store, snapshot, now_ms=lambda: NOW_MS)
    assert {first, again} <= here(service)
    assert service.store.removal.count() == 3, "the values 0, 2 and 3 eighths; a's newest has 4, and 1/8 no other"


def test_publishing_and_pruning_at_once_lose_nothing(service: LedgerService) -> None:
    """Four writers publish models that come back again and again, while everything that may go is dropped."""
    finished, has_pruned = threading.Event(), threading.Event()

    def write(letter: str) -> TxId:
        rng = random.Random(letter)
        newest = publish(service, 0.5, secret=secret(letter)).transaction
        for step in range(500):  # until both have been at work, however the machine shares itself out
            if step >= 12 and has_pruned.is_set():
                break
            selection, _ = service.selections.select_for(newest)
            newest = publish(service, rng.randint(1, 3) / 4, selection=selection.id, secret=secret(letter)).transaction
        return newest

    def keep_pruning() -> None:
        while not finished.is_set():
            if run(service).models:
                has_pruned.set()

    with ThreadPoolExecutor(5) as pool:
        pruner = pool.submit(keep_pruning)
        list(pool.map(write, "abcd"))
        finished.set()
        pruner.result(timeout=60)
    assert has_pruned.is_set()
    assert kept(service) <= here(service), "everything that must be here is"
    proof(StoreSource(service.store))


# -- by itself ----------------------------------------------------------------------------------------------


def until(condition: object, *, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    assert callable(condition)
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.01)


def test_a_server_prunes_by_itself_and_ends_when_told(service: LedgerService) -> None:
    newest = grow(service, rounds=5)
    reports: list[PruneReport] = []
    pruning = AutomaticPruning(service, keep_ms=0, every_s=0.02, now_ms=lambda: NOW_MS, on_pruned=reports.append)
    pruning.start()
    until(lambda: reports)
    for value in range(5):
        newest["a"] = publish(service, value / 6, secret=secret("a"), parents=(newest["a"],)).transaction
    until(
        lambda: sum(report.models for report in reports) == len(service.ledger) - len(here(service)) > reports[0].models
    )
    pruning.stop()
    assert here(service) >= set(newest.values())


def test_a_server_that_prunes_keeps_nothing_of_it_in_memory(service: LedgerService) -> None:
    first = publish(service, 0.5, secret=secret("a"))
    digest = first.view.stored.transaction.header.model_digest
    newest = first.transaction
    for value in range(5):
        newest = publish(service, value / 6, secret=secret("a"), parents=(newest,)).transaction
    assert service.models.cached(digest) is not None
    reports: list[PruneReport] = []
    pruning = AutomaticPruning(service, keep_ms=0, every_s=3600.0, now_ms=lambda: NOW_MS, on_pruned=reports.append)
    pruning.start()
    until(lambda: reports)
    pruning.stop()
    assert service.models.cached(digest) is None
    with pytest.raises(ModelPrunedError):
        service.aggregates.model(digest)
    assert service.models.cached(service.node.nodes_of([newest])[0].model_digest) is not None


def test_a_model_that_is_pruned_while_it_is_read_does_not_stay_in_memory(
    service: LedgerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = publish(service, 0.5, secret=secret("a"))
    digest = first.view.stored.transaction.header.model_digest
    publish(service, 0.25, secret=secret("a"), parents=(first.transaction,))
    service.models.forget([digest])
    read = service.store.model

    def read_then_prune(of: Digest) -> bytes | None:
        found = read(of)
        run(service)
        service.forget_pruned()
        return found

    monkeypatch.setattr(service.store, "model", read_then_prune)
    assert service.aggregates.model(digest) == model(0.5), "it was asked for before"
    with pytest.raises(ModelPrunedError):
        service.aggregates.model(digest)


def test_it_is_off_by_default_and_then_only_finishes_what_was_begun(service: LedgerService, blobs: BlobPlace) -> None:
    grow(service, rounds=5)
    held = {each.digest for each in service.store.removal.held(after=None, limit=100)}
    gone = min(held - {service.view(service.id).stored.transaction.header.model_digest})
    service.store.removal.prune([gone], known=len(service.ledger), now_ms=NOW_MS)
    pruning = AutomaticPruning(service, keep_ms=None, every_s=0.01, now_ms=lambda: NOW_MS)
    pruning.start()
    pruning.stop()
    assert service.store.removal.sweep() == 0, f"{blobs}: done already"
    assert service.store.removal.count() == 1


def test_a_store_that_fails_is_tried_again_later(service: LedgerService, journal: Store) -> None:
    grow(service, rounds=5)
    failures = 0

    def fail(*_: object, **__: object) -> object:
        nonlocal failures
        failures += 1
        faulty.on = failures < 3
        raise StoreUnavailableError("the disk is full")

    faulty = Faulty(journal.removal, prune=fail)
    service.store = Faulty(journal, removal=faulty)  # type: ignore[assignment]
    pruning = AutomaticPruning(service, keep_ms=0, every_s=0.01, now_ms=lambda: NOW_MS)
    pruning.start()
    until(lambda: journal.removal.count() > 0)
    pruning.stop()
    assert failures == 3


def test_models_are_kept_for_some_time_or_none(service: LedgerService) -> None:
    with pytest.raises(ParameterError, match="at least 0"):
        service.snapshot(keep_ms=-1)


# -- offline, and killed ------------------------------------------------------------------------------------


CRASHES = [
    ("inside the record", "database", "sqlite"),
    ("inside the record", "directory", "postgresql"),
    ("after the record", "s3", "sqlite"),
    ("between two drops", "database", "postgresql"),
    ("between two drops", "directory", "sqlite"),
]
"""Every point, every place for models and each kind of database, twice but for buckets, whose stand-in is slow."""


@pytest.mark.parametrize(("point", "blobs", "database_url"), CRASHES, indirect=["database_url"])
def test_a_crash_leaves_a_sound_ledger_and_the_next_run_finishes(
    *,
    database_url: str,
    tmp_path: Path,
    point: str,
    blobs: BlobPlace,
    bucket: S3Address | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(s3, "YOUNG", timedelta(seconds=-60))  # as a day later
    genesis = make_genesis(selector_params={"k": 3}, max_parents=4, freshness_s=WINDOW_S)
    with open_store(database_url, data_dir=tmp_path, blobs=blobs, s3=bucket) as store:
        create_ledger(store, genesis, model(1, 1, 1, 1), key=ISSUER, now_ms=CREATED_AT_MS)
        service = service_on(store)
        grow(service, rounds=5)
        service.close()
        whole = prune(store, snapshot_of(store, keep_ms=0), now_ms=lambda: NOW_MS, dry_run=True)
    log = tmp_path / "log"
    killed = forked.start(prune_until, point, database_url, tmp_path, bucket, log=log)
    killed.join(60)
    assert killed.exitcode == KILLED, log.read_text()
    with open_store(database_url, data_dir=tmp_path, blobs=blobs, s3=bucket) as store:
        begun = proof(StoreSource(store)).pruned
        assert begun == store.removal.count()
        assert begun == (0 if point == "inside the record" else 3) < whole.models
        finished = prune(store, snapshot_of(store, keep_ms=0), now_ms=lambda: NOW_MS)
        assert finished.models == whole.models - begun
        assert store.removal.sweep() == 0
        assert len(list(store._blobs.digests())) == finished.held
        assert proof(StoreSource(store)).pruned == whole.models
