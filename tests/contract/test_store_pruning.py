"""Pruned models: recorded before they go, gone for good, back when a publication carries them again."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from fl_core.models import ModelLayout, TensorSpec
from fl_core.types import Digest, PublicKey, digest_of
from ledger_server.buckets import S3Address
from ledger_server.store import open_store
from ledger_server.store.blobs import s3
from ledger_server.store.errors import StoreInconsistentError, StoreLocationError, StoreUnavailableError
from ledger_server.store.journal import Store
from ledger_server.store.opening import BlobPlace
from ledger_server.store.removal import HeldModel, Pruned
from tests.builders import TinyLedger, make_genesis, model
from tests.contract.test_store import NOW_MS, at, engine_of, found, put

LARGE = ModelLayout.of([TensorSpec("w", "F32", (75_000,))])
"""300 KB: more than a page of any database, and than a block of any file system."""
ONE, TWO, THREE = (digest_of(model(value)) for value in (1, 2, 3))


@pytest.fixture(params=["rows", "files", "shared"])
def place(request: pytest.FixtureRequest) -> str:
    """Also a bucket that other servers may use as well."""
    return str(request.param)


@pytest.fixture
def tiny() -> TinyLedger:
    return TinyLedger()


@pytest.fixture
def ledger(store: Store, tiny: TinyLedger) -> Store:
    """Genesis, and a transaction each of ann, bob and cat, with models 1, 2 and 3."""
    found(store, tiny)
    for name, value in (("ann", 1), ("bob", 2), ("cat", 3)):
        put(store, tiny.draft(name, [tiny.genesis_id], model(value)), model(value))
    return store


def held(store: Store) -> set[Digest]:
    return {each.digest for each in store.removal.held(after=None, limit=100)}


def test_what_is_held_is_listed_by_digest(ledger: Store, tiny: TinyLedger) -> None:
    data = [tiny.genesis_model, model(1), model(2), model(3)]
    everything = sorted((HeldModel(digest_of(each), len(each)) for each in data), key=lambda each: each.digest)
    assert ledger.removal.held(after=None, limit=10) == everything
    assert ledger.removal.held(after=everything[1].digest, limit=1) == everything[2:3]


def test_a_pruned_model_is_gone_and_its_transaction_stays(ledger: Store, tiny: TinyLedger) -> None:
    assert ledger.removal.prune([ONE], known=4, now_ms=NOW_MS) == Pruned(1, len(model(1)))
    assert ledger.model(ONE) is None
    assert ledger.open_model(ONE) is None
    assert ledger.removal.is_pruned(ONE)
    assert not ledger.removal.is_pruned(TWO)
    assert ledger.model(TWO) == model(2)
    assert held(ledger) == {digest_of(tiny.genesis_model), TWO, THREE}
    assert ledger.removal.count() == 1
    assert [stored.arrival for stored in ledger.replay()] == [0, 1, 2, 3]
    ledger.removal.collect()
    assert set(ledger._blobs.digests()) == held(ledger)


def test_pruning_again_prunes_nothing(ledger: Store) -> None:
    assert ledger.removal.prune([ONE, TWO], known=4, now_ms=NOW_MS).models == 2
    assert ledger.removal.prune([ONE, TWO, THREE], known=4, now_ms=NOW_MS) == Pruned(1, len(model(3)))
    assert ledger.removal.prune([ONE, TWO, THREE], known=4, now_ms=NOW_MS) == Pruned(0, 0)


def test_nothing_is_known_of_a_model_that_was_never_here(ledger: Store) -> None:
    assert not ledger.removal.is_pruned(Digest("f" * 64))


def test_genesis_is_never_pruned_and_nothing_beside_it(ledger: Store, tiny: TinyLedger) -> None:
    with pytest.raises(StoreInconsistentError, match="never pruned"):
        ledger.removal.prune([ONE, digest_of(tiny.genesis_model)], known=4, now_ms=NOW_MS)
    assert len(held(ledger)) == 4


def test_a_model_that_a_later_transaction_carries_stays(ledger: Store, tiny: TinyLedger) -> None:
    """The planner saw four transactions; the fifth came before its decision, and names a model that was to go."""
    put(ledger, tiny.draft("dan", [tiny.genesis_id], model(2)), model(2))
    assert ledger.removal.prune([ONE, TWO], known=4, now_ms=NOW_MS).models == 1
    assert ledger.model(TWO) == model(2)


def test_a_pruned_model_that_is_published_again_is_back(ledger: Store, tiny: TinyLedger) -> None:
    ledger.removal.prune([ONE], known=4, now_ms=NOW_MS)
    assert put(ledger, tiny.draft("dan", [tiny.genesis_id], model(1)), model(1)) == 4
    assert ledger.model(ONE) == model(1)
    assert not ledger.removal.is_pruned(ONE)
    assert ledger.removal.sweep() == 0
    assert ledger.removal.prune([ONE], known=5, now_ms=NOW_MS).models == 1, "and may go once more"
    assert ledger.model(ONE) is None


def test_a_transaction_without_its_model_is_recorded_as_pruned(ledger: Store, tiny: TinyLedger) -> None:
    first, again = (tiny.draft(name, [tiny.genesis_id], model(4)) for name in ("dan", "eve"))
    assert ledger.append(at(4, first), model=None, attachment=None)
    assert ledger.model(digest_of(model(4))) is None
    assert ledger.removal.is_pruned(digest_of(model(4)))
    assert [stored.transaction.id for stored in ledger.page(after=3, limit=9)] == [first.id]
    assert put(ledger, again, model(4)) == 5, "another brings it"
    assert ledger.model(digest_of(model(4))) == model(4)
    assert ledger.append(at(6, tiny.draft("fay", [tiny.genesis_id], model(4))), model=None, attachment=None)
    assert ledger.model(digest_of(model(4))) == model(4), "what is here stays"


def test_the_newest_checkpoint_of_each_member_is_kept(ledger: Store) -> None:
    ann, bob = PublicKey("a" * 64), PublicKey("b" * 64)
    for member, served in ((bob, b"1"), (ann, b"2"), (bob, b"3")):
        ledger.keep_checkpoint(member, served)
    assert ledger.checkpoints() == [b"2", b"3"]


# -- what crashes and others leave -------------------------------------------------------------------------


@contextmanager
def without_drops(ledger: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if the server ended, or the place failed, between the record and the drop."""

    def fail(*_: object) -> None:
        raise StoreUnavailableError("not now")

    with monkeypatch.context() as patch:
        patch.setattr(ledger._blobs, "drop", fail)
        yield


def test_what_could_not_be_dropped_is_swept_by_the_next_start(
    *,
    ledger: Store,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    database_url: str,
    blobs: BlobPlace,
    bucket: S3Address | None,
) -> None:
    monkeypatch.setattr(s3, "YOUNG", timedelta(seconds=-60))  # as a day later
    with without_drops(ledger, monkeypatch):
        assert ledger.removal.prune([ONE, THREE], known=4, now_ms=NOW_MS).models == 2
        assert [ledger.model(each) for each in (ONE, TWO, THREE)] == [None, model(2), None]
        with pytest.raises(StoreUnavailableError):
            ledger.removal.sweep()
    ledger.close()
    with open_store(database_url, data_dir=tmp_path, blobs=blobs, s3=bucket) as again:
        assert [again.removal.sweep(), again.removal.sweep()] == [2, 0]
        assert [again.model(each) for each in (ONE, TWO, THREE)] == [None, model(2), None]


def test_a_model_that_came_back_before_its_old_bytes_were_dropped_stays(
    ledger: Store, tiny: TinyLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with without_drops(ledger, monkeypatch):
        ledger.removal.prune([ONE], known=4, now_ms=NOW_MS)
    put(ledger, tiny.draft("dan", [tiny.genesis_id], model(1)), model(1))
    assert ledger.removal.sweep() == 0
    assert ledger.model(ONE) == model(1)


def test_a_prepared_model_that_was_swept_is_put_again(ledger: Store, tiny: TinyLedger, blobs: BlobPlace) -> None:
    digest = digest_of(model(7))
    ledger.prepare_model(digest, model(7))
    assert ledger.model(digest) is None, "nobody sees it"
    swept = 1 if blobs == "directory" else 0
    assert ledger.removal.sweep() == swept, "rows are written with the transaction, and objects must be a day old"
    put(ledger, tiny.draft("dan", [tiny.genesis_id], model(7)), model(7))
    assert ledger.model(digest) == model(7)
    assert ledger.removal.sweep() == 0


# -- whose models they are -----------------------------------------------------------------------------


def test_a_ledger_keeps_the_place_it_was_made_with(
    ledger: Store, tmp_path: Path, database_url: str, blobs: BlobPlace, bucket: S3Address | None
) -> None:
    ledger.close()
    with open_store(database_url, data_dir=tmp_path, s3=bucket) as again:
        assert again.model(ONE) == model(1)
    other: BlobPlace = "directory" if blobs == "database" else "database"
    with pytest.raises(StoreLocationError, match=f"set blobs.store = {blobs}"):
        open_store(database_url, data_dir=tmp_path, blobs=other, s3=bucket)


@pytest.mark.parametrize("blobs", ["directory", "s3"])
def test_models_that_are_missing_or_anothers_are_refused(
    *,
    ledger: Store,
    tmp_path: Path,
    sqlite_template: Path,
    database_url: str,
    place: str,
    blobs: BlobPlace,
    bucket: S3Address | None,
) -> None:
    other = tmp_path / "other.sqlite3"
    other.write_bytes(sqlite_template.read_bytes())
    if bucket is None or place != "shared":  # which only finds out whose the journal is when its ledger is made
        with pytest.raises(StoreLocationError, match="models of another ledger"):
            open_store(f"sqlite:///{other}", data_dir=tmp_path, blobs=blobs, s3=bucket)
    elsewhere = None if bucket is None else replace(bucket, prefix="x")
    with pytest.raises(StoreLocationError, match="are missing; they belong in"):
        open_store(database_url, data_dir=tmp_path / "elsewhere", s3=elsewhere)


# -- space ---------------------------------------------------------------------------------------------


def large(value: float) -> bytes:
    return model(value, layout=LARGE)


def test_space_really_comes_back(store: Store) -> None:
    tiny = TinyLedger(make_genesis(layout=LARGE), large(1))
    found(store, tiny)
    size = len(large(1))
    for value in range(20):
        put(store, tiny.draft(f"author {value}", [tiny.genesis_id], large(value + 2)), large(value + 2))
    store.database.compact()
    before = store.storage_bytes()
    gone = [digest_of(large(value + 2)) for value in range(19)]
    assert store.removal.prune(gone, known=21, now_ms=NOW_MS) == Pruned(19, 19 * size)
    if (reusable := store.database.reusable_bytes()) is not None and store._place == "database":
        assert reusable > 18 * size, "a database reuses the room even before it is compacted"
    store.database.compact()
    given_back = before - store.storage_bytes()
    assert 18 * size < given_back < 21 * size
    assert store.model(digest_of(large(21))) == large(21)
    assert [stored.arrival for stored in store.replay()] == list(range(21))


def test_room_of_pruned_models_is_used_again_without_compacting(sqlite_url: str, tmp_path: Path) -> None:
    # In PostgreSQL its own vacuum decides when.
    with open_store(sqlite_url, data_dir=tmp_path, blobs="database") as store:
        _use_room_again(store)


def _use_room_again(store: Store) -> None:
    tiny = TinyLedger(make_genesis(layout=LARGE), large(1))
    found(store, tiny)
    for value in range(10):
        put(store, tiny.draft(f"author {value}", [tiny.genesis_id], large(value + 2)), large(value + 2))
    store.removal.prune([digest_of(large(value + 2)) for value in range(10)], known=11, now_ms=NOW_MS)
    before = _file_bytes(store)
    for value in range(10):
        put(store, tiny.draft(f"later {value}", [tiny.genesis_id], large(value + 50)), large(value + 50))
    assert _file_bytes(store) <= before + 2 * len(large(1))


def _file_bytes(store: Store) -> int:
    with engine_of(store).connect() as connection:
        pages, size = (
            connection.exec_driver_sql(f"PRAGMA {each}").scalar_one() for each in ("page_count", "page_size")
        )
    return int(pages) * int(size)


def test_transactions_are_found_together_in_the_order_asked(ledger: Store) -> None:
    ids = [stored.transaction.id for stored in ledger.replay()]
    asked = [ids[3], ids[1], Digest("f" * 64), ids[0]]
    assert [stored.arrival for stored in ledger.transactions(asked)] == [3, 1, 0]  # type: ignore[arg-type]
    assert ledger.transactions([]) == []
