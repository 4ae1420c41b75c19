"""Pruned models: recorded before they go, gone for good, back when a publication carries them again."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy import text

from fl_core.models import Buffer, ModelLayout, TensorSpec
from fl_core.types import Digest, digest_of
from ledger_server.buckets import S3Address
from ledger_server.store import open_store
from ledger_server.store.blobs.protocol import Blob
from ledger_server.store.errors import StoreInconsistentError, StoreUnavailableError
from ledger_server.store.opening import BlobPlace
from ledger_server.store.protocol import HeldModel, ModelReader, Pruned
from ledger_server.store.sql import SqlStore
from tests.builders import TinyLedger, make_genesis, model
from tests.contract.test_store import NOW_MS, found, put

LARGE = ModelLayout.of([TensorSpec("w", "F32", (75_000,))])
"""300 KB: more than a page of any database, and than a block of any file system."""


@pytest.fixture
def tiny() -> TinyLedger:
    return TinyLedger()


@pytest.fixture
def ledger(store: SqlStore, tiny: TinyLedger) -> SqlStore:
    """Genesis, and a transaction each of ann, bob and cat, with models 1, 2 and 3."""
    found(store, tiny)
    for name, value in (("ann", 1), ("bob", 2), ("cat", 3)):
        put(store, tiny.draft(name, [tiny.genesis_id], model(value)), model(value))
    return store


def held(store: SqlStore) -> list[int]:
    return [each.arrival for each in store.held_models(after=-1, limit=100)]


def test_what_is_held_is_listed_by_arrival(ledger: SqlStore, tiny: TinyLedger) -> None:
    everything = ledger.held_models(after=-1, limit=10)
    assert everything[0] == HeldModel(0, digest_of(tiny.genesis_model), len(tiny.genesis_model))
    assert everything[1:] == [HeldModel(value, digest_of(model(value)), len(model(value))) for value in (1, 2, 3)]
    assert ledger.held_models(after=1, limit=1) == everything[2:3]


def test_a_pruned_model_is_gone_and_said_to_be_pruned_and_its_transaction_stays(ledger: SqlStore) -> None:
    gone, stays = digest_of(model(1)), digest_of(model(2))
    assert ledger.prune([1], known=4, now_ms=NOW_MS) == Pruned(1, len(model(1)))
    for _ in range(2):  # recorded, then dropped: the same to whoever asks
        assert ledger.model(gone) is None
        assert ledger.open_model(gone) is None
        assert ledger.is_pruned(gone)
        assert not ledger.is_pruned(stays)
        assert ledger.model(stays) == model(2)
        assert held(ledger) == [0, 2, 3]
        assert ledger.pruned_models() == 1
        assert [stored.arrival for stored in ledger.replay()] == [0, 1, 2, 3]
        ledger.drop_pruned()


def test_pruning_again_prunes_nothing(ledger: SqlStore) -> None:
    assert ledger.prune([1, 2], known=4, now_ms=NOW_MS).models == 2
    assert ledger.prune([1, 2, 3], known=4, now_ms=NOW_MS) == Pruned(1, len(model(3)))
    assert ledger.prune([1, 2, 3], known=4, now_ms=NOW_MS) == Pruned(0, 0)


def test_nothing_is_known_of_a_model_that_was_never_here(ledger: SqlStore) -> None:
    assert not ledger.is_pruned(Digest("f" * 64))


def test_genesis_is_never_pruned_and_nothing_beside_it(ledger: SqlStore) -> None:
    with pytest.raises(StoreInconsistentError, match="not_genesis"):
        ledger.prune([1, 0], known=4, now_ms=NOW_MS)
    assert held(ledger) == [0, 1, 2, 3]


def test_a_model_that_a_later_transaction_carries_stays(ledger: SqlStore, tiny: TinyLedger) -> None:
    """The planner saw four transactions; the fifth came before its decision, and names a model that was to go."""
    put(ledger, tiny.draft("dan", [tiny.genesis_id], model(2)), model(2))
    assert ledger.prune([1, 2], known=4, now_ms=NOW_MS).models == 1
    assert held(ledger) == [0, 2, 3]


def test_a_pruned_model_that_is_published_again_is_back(ledger: SqlStore, tiny: TinyLedger) -> None:
    digest = digest_of(model(1))
    ledger.prune([1], known=4, now_ms=NOW_MS)
    ledger.drop_pruned()
    draft = tiny.draft("dan", [tiny.genesis_id], model(1))
    with ledger.staged(digest, model(1)):
        assert put(ledger, draft, model(1)) == 4
    for _ in range(2):
        assert ledger.model(digest) == model(1)
        assert not ledger.is_pruned(digest)
        assert held(ledger) == [0, 1, 2, 3]
        assert ledger.drop_pruned() == 0
    assert ledger.prune([1], known=5, now_ms=NOW_MS).models == 1, "and may go once more"
    ledger.drop_pruned()
    assert ledger.model(digest) is None


def test_a_model_that_came_back_before_its_old_bytes_were_dropped_is_not_dropped_with_them(
    ledger: SqlStore, tiny: TinyLedger
) -> None:
    digest = digest_of(model(1))
    ledger.prune([1], known=4, now_ms=NOW_MS)
    with ledger.staged(digest, model(1)):
        put(ledger, tiny.draft("dan", [tiny.genesis_id], model(1)), model(1))
    ledger.drop_pruned()
    assert ledger.model(digest) == model(1)


def test_what_a_crash_left_recorded_is_dropped_by_the_next_start(
    ledger: SqlStore, tmp_path: Path, database_url: str, blobs: BlobPlace, bucket: S3Address | None
) -> None:
    ledger.prune([1, 3], known=4, now_ms=NOW_MS)
    ledger.close()
    with open_store(database_url, data_dir=tmp_path, blobs=blobs, s3=bucket, smallest_blob_bytes=1) as again:
        assert again.model(digest_of(model(1))) is None
        assert again.drop_pruned() == (0 if blobs == "database" else 2), "rows went with the record"
        assert again.drop_pruned() == 0
        assert [again.model(digest_of(model(value))) for value in (1, 2, 3)] == [None, model(2), None]


@pytest.mark.parametrize("blobs", ["directory", "s3"])  # rows go with the record, or not at all
def test_a_drop_that_fails_is_tried_again(ledger: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.prune([1], known=4, now_ms=NOW_MS)

    def fail(blob: Blob) -> None:
        raise StoreUnavailableError(f"no hole for {blob.digest}")

    with monkeypatch.context() as patch:
        patch.setattr(ledger._blobs, "drop", fail)
        with pytest.raises(StoreUnavailableError):
            ledger.drop_pruned()
    assert ledger.drop_pruned() == 1


@pytest.mark.parametrize("blobs", ["database", "directory"])  # in a bucket nothing lies behind another
def test_new_models_do_not_overwrite_what_lies_behind_a_pruned_one(
    ledger: SqlStore, tiny: TinyLedger, tmp_path: Path, database_url: str, blobs: BlobPlace
) -> None:
    """Also when the last model of all was pruned, and the journal is opened anew."""
    ledger.prune([2, 3], known=4, now_ms=NOW_MS)
    ledger.drop_pruned()
    ledger.close()
    with open_store(database_url, data_dir=tmp_path, blobs=blobs, smallest_blob_bytes=1) as again:
        put(again, tiny.draft("dan", [tiny.genesis_id], model(4)), model(4))
        assert again.model(digest_of(model(4))) == model(4)
        assert again.model(digest_of(model(1))) == model(1)
        assert again.drop_pruned() == 0


# -- the database's own guard -------------------------------------------------------------------------


@pytest.mark.parametrize("blobs", ["database"])
def test_the_database_lets_go_of_recorded_models_only(ledger: SqlStore) -> None:
    ledger.prune([1], known=4, now_ms=NOW_MS)
    for statement in (
        "DELETE FROM model_pieces WHERE model = 2",
        "UPDATE models SET starts_at = 7 WHERE arrival = 2",
        "UPDATE models SET size = size + 1 WHERE arrival = 1",
        "DELETE FROM models WHERE arrival = 1",
    ):
        with ledger._engine.connect() as connection, pytest.raises(Exception, match="never change"):
            connection.execute(text(statement))
    with ledger._engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM model_pieces")).scalar_one() == 3


# -- space --------------------------------------------------------------------------------------------


@dataclass
class ByDigest:
    """A blob store that goes by digest, as an object store does, in memory; it notes what it was asked to drop."""

    held: dict[Digest, bytes] = field(default_factory=dict)
    dropped: list[Digest] = field(default_factory=list)

    def put(self, digest: Digest, data: Buffer) -> None:
        self.held[digest] = bytes(data)

    def get(self, blob: Blob) -> bytes | None:
        return self.held.get(blob.digest)

    def open(self, blob: Blob) -> ModelReader | None:
        raise NotImplementedError

    def drop(self, blob: Blob) -> None:
        self.dropped.append(blob.digest)
        self.held.pop(blob.digest, None)

    def stored_bytes(self) -> int:
        return sum(map(len, self.held.values()))

    def check(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def by_digest(store: SqlStore, tiny: TinyLedger) -> Iterator[tuple[SqlStore, ByDigest]]:
    """As ``ledger``, its models in a store that goes by digest."""
    place = ByDigest()
    with SqlStore(store._engine, blobs=place, smallest_blob_bytes=1) as opened:
        found(opened, tiny)
        for name, value in (("ann", 1), ("bob", 2)):
            put(opened, tiny.draft(name, [tiny.genesis_id], model(value)), model(value))
        yield opened, place


@pytest.mark.parametrize("blobs", ["database"])
def test_a_store_that_goes_by_digest_drops_by_digest(by_digest: tuple[SqlStore, ByDigest]) -> None:
    store, place = by_digest
    store.prune([1], known=3, now_ms=NOW_MS)
    assert store.model(digest_of(model(1))) is None
    assert store.drop_pruned() == 1
    assert place.dropped == [digest_of(model(1))]
    assert store.model(digest_of(model(2))) == model(2)


@pytest.mark.parametrize("blobs", ["database"])
@pytest.mark.parametrize("dropped_while_staged", [False, True])
def test_a_digest_that_came_back_is_not_dropped_and_one_that_went_while_staged_is_put_again(
    by_digest: tuple[SqlStore, ByDigest], tiny: TinyLedger, *, dropped_while_staged: bool
) -> None:
    store, place = by_digest
    store.prune([1], known=3, now_ms=NOW_MS)
    with store.staged(digest_of(model(1)), model(1)):
        if dropped_while_staged:
            store.drop_pruned()
            assert digest_of(model(1)) not in place.held
        put(store, tiny.draft("dan", [tiny.genesis_id], model(1)), model(1))
    store.drop_pruned()
    assert store.model(digest_of(model(1))) == model(1)


@pytest.mark.parametrize("blobs", ["database"])
@pytest.mark.parametrize("failed", [False, True])
def test_what_was_staged_by_its_digest_and_is_named_by_nobody_is_dropped(
    by_digest: tuple[SqlStore, ByDigest], *, failed: bool
) -> None:
    store, place = by_digest
    with suppress(ZeroDivisionError), store.staged(digest_of(model(7)), model(7)):
        assert digest_of(model(7)) in place.held
        if failed:
            raise ZeroDivisionError
    assert place.dropped == [digest_of(model(7))]


@pytest.mark.parametrize("blobs", ["database"])
def test_what_was_staged_again_and_is_named_stays(by_digest: tuple[SqlStore, ByDigest], tiny: TinyLedger) -> None:
    store, place = by_digest
    with store.staged(digest_of(model(1)), model(1)):
        pass
    with suppress(ZeroDivisionError), store.staged(digest_of(model(7)), model(7)):
        put(store, tiny.draft("dan", [tiny.genesis_id], model(7)), model(7))
        raise ZeroDivisionError
    assert place.dropped == []
    assert [store.model(digest_of(model(value))) for value in (1, 7)] == [model(1), model(7)]


@pytest.mark.parametrize("blobs", ["database"])
@pytest.mark.parametrize("while_putting", [False, True])
def test_two_that_stage_the_same_do_not_lose_it_when_one_gives_up(
    by_digest: tuple[SqlStore, ByDigest], tiny: TinyLedger, monkeypatch: pytest.MonkeyPatch, *, while_putting: bool
) -> None:
    """The other's bytes go with those of the one who gives up: at the latest its append finds that, and puts them."""
    store, place = by_digest
    digest = digest_of(model(7))

    def give_up() -> None:
        with suppress(ZeroDivisionError), store.staged(digest, model(7)):
            raise ZeroDivisionError
        assert place.dropped == [digest]

    def put_and_lose(digest: Digest, data: Buffer) -> None:
        monkeypatch.undo()
        place.put(digest, data)
        give_up()

    if while_putting:
        monkeypatch.setattr(place, "put", put_and_lose)
    with store.staged(digest, model(7)):
        if not while_putting:
            give_up()
        assert digest not in place.held
        put(store, tiny.draft("dan", [tiny.genesis_id], model(7)), model(7))
    assert store.model(digest) == model(7)


def large(value: float) -> bytes:
    return model(value, layout=LARGE)


def test_space_really_comes_back(store: SqlStore) -> None:
    tiny = TinyLedger(make_genesis(layout=LARGE), large(1))
    found(store, tiny)
    size = len(large(1))
    for value in range(20):
        put(store, tiny.draft(f"author {value}", [tiny.genesis_id], large(value + 2)), large(value + 2))
    store.compact()
    before = store.storage_bytes()
    assert store.prune(list(range(1, 20)), known=21, now_ms=NOW_MS) == Pruned(19, 19 * size)
    store.drop_pruned()
    if (reusable := store.reusable_bytes()) is not None and not store._is_blob(large(1)):
        assert reusable > 18 * size, "a database reuses the room even before it is compacted"
    store.compact()
    given_back = before - store.storage_bytes()
    assert 18 * size < given_back < 21 * size
    assert store.model(digest_of(large(21))) == large(21)
    assert [stored.arrival for stored in store.replay()] == list(range(21))


def test_room_of_pruned_models_is_used_again_without_compacting(sqlite_url: str, tmp_path: Path) -> None:
    # In PostgreSQL its own vacuum decides when.
    with open_store(sqlite_url, data_dir=tmp_path, blobs="database") as store:
        _use_room_again(store)


def _use_room_again(store: SqlStore) -> None:
    tiny = TinyLedger(make_genesis(layout=LARGE), large(1))
    found(store, tiny)
    for value in range(10):
        put(store, tiny.draft(f"author {value}", [tiny.genesis_id], large(value + 2)), large(value + 2))
    store.prune(list(range(1, 11)), known=11, now_ms=NOW_MS)
    before = _file_bytes(store)
    for value in range(10):
        put(store, tiny.draft(f"later {value}", [tiny.genesis_id], large(value + 50)), large(value + 50))
    assert _file_bytes(store) <= before + 2 * len(large(1))


def _file_bytes(store: SqlStore) -> int:
    with store._engine.connect() as connection:
        pages, size = (
            connection.exec_driver_sql(f"PRAGMA {each}").scalar_one() for each in ("page_count", "page_size")
        )
    return int(pages) * int(size)


def test_transactions_are_found_together_in_the_order_asked(ledger: SqlStore) -> None:
    ids = [stored.transaction.id for stored in ledger.replay()]
    asked = [ids[3], ids[1], Digest("f" * 64), ids[0]]
    assert [stored.arrival for stored in ledger.transactions(asked)] == [3, 1, 0]  # type: ignore[arg-type]
    assert ledger.transactions([]) == []
