"""One contract for every journal: what was returned is there, what was refused is not, and nothing changes."""

import errno
import os
import sqlite3
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from sqlalchemy import event, make_url, text
from sqlalchemy.engine import Engine

from fl_core.dag.acts import Act, ActKind, sign_act
from fl_core.dag.figures import Figures, Step
from fl_core.dag.transaction import Transaction
from fl_core.models import Buffer, ModelLayout, TensorSpec, encode_flat
from fl_core.types import Digest, TxId, digest_of
from ledger_server.buckets import S3Address
from ledger_server.store import open_store, schema
from ledger_server.store.appending import Entry
from ledger_server.store.engine import BUSY_TIMEOUT_MS, PAGE_BYTES
from ledger_server.store.errors import (
    LedgerExistsError,
    StoreError,
    StoreInconsistentError,
    StoreLocationError,
    StoreUnavailableError,
)
from ledger_server.store.journal import Store
from ledger_server.store.stored import StoredTransaction
from ledger_server.store.tables import PIECE_BYTES
from tests.builders import TinyLedger, genesis_transaction, key_from_seed, make_genesis, model
from tests.postgres import commit_and_lose_the_answer, conninfo

NOW_MS = 1_700_000_001_000
IMMUTABLE = {"transactions": "figures", "attachments": "digest", "acts": "id", "act_signatures": "act"}
"""Tables whose rows never change and never go, with one of their columns."""
UNKNOWN = Digest("f" * 64)
EVIDENCE = b'{"evidence":1}'
LARGE = ModelLayout.of([TensorSpec("w", "F32", (5 * PIECE_BYTES // 8,))])  # 2.5 pieces and a header


@pytest.fixture
def tiny() -> TinyLedger:
    return TinyLedger()


@pytest.fixture
def ledger(store: Store, tiny: TinyLedger) -> Store:
    """A journal that holds a genesis."""
    found(store, tiny)
    return store


def at(arrival: int, transaction: Transaction, *, norm: float = 1.5) -> StoredTransaction:
    return StoredTransaction(arrival, transaction, Figures(norm).encode(), NOW_MS)


def found(store: Store, tiny: TinyLedger) -> None:
    store.create(at(0, tiny.genesis_transaction), document=tiny.genesis.document, model=tiny.genesis_model)


def put(store: Store, transaction: Transaction, model_bytes: Buffer, *, attachment: bytes | None = None) -> int:
    """Append as a writer who reads on whenever the journal has moved on; returns the arrival."""
    while True:
        new = at(store.length(), transaction)
        if store.append(new, model=model_bytes, attachment=attachment):
            return new.arrival


def engine_of(store: Store) -> Engine:
    return store.database.engine


def ids(page: list[StoredTransaction]) -> list[TxId]:
    return [stored.transaction.id for stored in page]


def counts(store: Store) -> dict[str, int]:
    with engine_of(store).connect() as connection:
        return {
            table: connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()
            for table in (*IMMUTABLE, "models", "model_pieces", "selections")
        }


# -- an empty journal ---------------------------------------------------------------------------------


def test_an_empty_journal_has_no_genesis_and_no_transactions(store: Store) -> None:
    assert store.genesis() is None
    assert list(store.replay()) == []
    assert store.page(after=-1, limit=10) == []


def test_what_nobody_stored_is_none(ledger: Store) -> None:
    assert ledger.transaction(TxId(UNKNOWN)) is None
    assert ledger.model(UNKNOWN) is None
    assert ledger.open_model(UNKNOWN) is None
    assert ledger.attachment(UNKNOWN) is None


def test_a_ledger_is_created_once(ledger: Store, tiny: TinyLedger) -> None:
    with pytest.raises(LedgerExistsError):
        found(ledger, tiny)
    assert ledger.genesis() == (tiny.genesis_transaction, tiny.genesis.document)
    assert counts(ledger)["transactions"] == 1


def test_nothing_is_appended_before_genesis(store: Store, tiny: TinyLedger) -> None:
    with pytest.raises(StoreInconsistentError, match="1 of 1 parents"):
        put(store, tiny.draft("ann", [tiny.genesis_id], model(1)), model(1))
    assert set(counts(store).values()) == {0}


# -- appending ----------------------------------------------------------------------------------------


def test_a_transaction_comes_back_as_it_went_in(ledger: Store, tiny: TinyLedger) -> None:
    draft = tiny.draft("ann", [tiny.genesis_id], model(1, 2, 3), metrics={"accuracy": 0.5}, attachment=EVIDENCE)
    figures = Figures(3.7416573867739413, Step(0.5, (0.5,)), (0.25, 0.75))
    new = StoredTransaction(1, draft, figures.encode(), NOW_MS)
    assert ledger.append(new, model=model(1, 2, 3), attachment=EVIDENCE)
    stored = ledger.transaction(draft.id)
    assert stored == new
    assert ledger.model(draft.header.model_digest) == model(1, 2, 3)
    assert ledger.attachment(digest_of(EVIDENCE)) == EVIDENCE
    stored.transaction.verify_signatures()
    keyless = Transaction(tiny.draft("bob", [tiny.genesis_id], model(1)).header_bytes, None, draft.receipt)
    put(ledger, keyless, model(1))
    assert [each.transaction for each in ledger.transactions([keyless.id])] == [keyless]


def test_an_append_at_another_position_is_not_stored(ledger: Store, tiny: TinyLedger) -> None:
    first, second = (tiny.draft(name, [tiny.genesis_id], model(1)) for name in ("ann", "bob"))
    steps = [(first, 2, False), (first, 1, True), (second, 1, False), (first, 1, False), (second, 2, True)]
    for draft, arrival, is_stored in steps:
        assert ledger.append(at(arrival, draft), model=model(1), attachment=None) is is_stored
    assert ledger.length() == 3


def test_a_transaction_is_stored_once(ledger: Store, tiny: TinyLedger) -> None:
    first = tiny.draft("ann", [tiny.genesis_id], model(1))
    put(ledger, first, model(1))
    with pytest.raises(StoreInconsistentError, match=r"(?i)unique"):
        ledger.append(at(2, first), model=model(1), attachment=None)
    assert ledger.length() == 2


def test_several_are_appended_together_or_not_at_all(ledger: Store, tiny: TinyLedger) -> None:
    names = ("ann", "bob", "eve")
    drafts = [tiny.draft(name, [tiny.genesis_id], model(7), attachment=EVIDENCE) for name in names]
    entries = [Entry(at(arrival, draft), model(7), EVIDENCE) for arrival, draft in enumerate(drafts, 1)]
    orphan = tiny.draft("fay", [drafts[0].id, TxId(UNKNOWN)], model(8))
    with pytest.raises(StoreInconsistentError, match="1 of 2 parents"):
        ledger.append_all([*entries, Entry(at(4, orphan), model(8), None)])
    with pytest.raises(StoreInconsistentError, match="follows one another"):
        ledger.append_all([entries[0], entries[2]])
    assert ledger.length() == 1
    assert ledger.append_all(entries)
    assert not ledger.append_all(entries), "the journal has moved on"
    assert [(each.arrival, each.transaction) for each in ledger.page(after=0, limit=9)] == [*enumerate(drafts, 1)]
    assert ledger.model(digest_of(model(7))) == model(7)


@pytest.mark.parametrize("blobs", ["database"])
def test_each_more_that_is_appended_together_costs_the_statement_of_its_model_alone(
    ledger: Store, tiny: TinyLedger
) -> None:
    drafts = [tiny.draft(f"author {n}", [tiny.genesis_id], model(n), attachment=EVIDENCE) for n in range(9)]
    entries = [Entry(at(arrival, draft), model(arrival - 1), EVIDENCE) for arrival, draft in enumerate(drafts, 1)]
    statements: list[str] = []
    event.listen(engine_of(ledger), "before_cursor_execute", lambda *given: statements.append(given[2]))
    assert ledger.append_all(entries[:1])
    alone = len(statements)
    assert ledger.append_all(entries[1:])
    assert len(statements) <= 2 * alone + 7


@pytest.mark.parametrize("blobs", ["database"])
def test_small_models_come_together_but_for_those_that_are_pruned_or_not_here(ledger: Store, tiny: TinyLedger) -> None:
    drafts = [tiny.draft(name, [tiny.genesis_id], model(n)) for n, name in enumerate(("ann", "bob", "cid"))]
    for n, draft in enumerate(drafts):
        put(ledger, draft, model(n))
    digests = [draft.header.model_digest for draft in drafts]
    ledger.removal.prune(digests[:1], known=4, now_ms=NOW_MS)
    assert ledger.small_models([*digests, UNKNOWN]) == {digests[1]: model(1), digests[2]: model(2)}


@pytest.mark.parametrize("blobs", ["database"])
def test_a_model_that_two_transactions_name_is_stored_once(ledger: Store, tiny: TinyLedger) -> None:
    for name in ("ann", "bob"):
        put(ledger, tiny.draft(name, [tiny.genesis_id], model(7)), model(7))
    assert counts(ledger) == {
        "transactions": 3,
        "models": 2,
        "model_pieces": 2,
        "attachments": 1,
        "selections": 0,
        "acts": 0,
        "act_signatures": 0,
    }


def test_every_kind_of_buffer_is_taken(ledger: Store, tiny: TinyLedger) -> None:
    for name, kind in (("ann", bytes), ("bob", bytearray), ("cid", memoryview)):
        data = model(len(name), ord(name[0]))
        draft = tiny.draft(name, [tiny.genesis_id], data)
        put(ledger, draft, kind(data))
        assert ledger.model(digest_of(data)) == data


@pytest.mark.parametrize(
    ("fault", "match"),
    [
        ({"model": model(1) + b"x"}, "bytes of model"),
        ({"attachment": None}, "an attachment comes exactly"),
    ],
)
def test_what_contradicts_the_header_is_refused_whole(
    ledger: Store, tiny: TinyLedger, fault: dict[str, Any], match: str
) -> None:
    before = counts(ledger)
    draft = tiny.draft("ann", [tiny.genesis_id], model(1), attachment=EVIDENCE)
    given = {"model": model(1), "attachment": EVIDENCE, **fault}
    with pytest.raises(StoreInconsistentError, match=match):
        ledger.append(at(1, draft), **given)
    assert counts(ledger) == before


def test_a_transaction_whose_parent_is_not_stored_is_refused_whole(ledger: Store, tiny: TinyLedger) -> None:
    before = counts(ledger)
    with pytest.raises(StoreInconsistentError, match="1 of 2 parents"):
        put(ledger, tiny.draft("ann", [tiny.genesis_id, TxId(UNKNOWN)], model(1)), model(1))
    assert counts(ledger) == before


def test_many_parents_are_kept(ledger: Store, tiny: TinyLedger) -> None:
    drafts = [tiny.draft(f"author {number}", [tiny.genesis_id], model(1)) for number in range(40)]
    for draft in drafts:
        put(ledger, draft, model(1))
    assert put(ledger, tiny.draft("zoe", [draft.id for draft in drafts], model(2)), model(2)) == 41
    stored = ledger.page(after=40, limit=1)[0]
    assert stored.transaction.header.parents == tuple(sorted(draft.id for draft in drafts))


@pytest.mark.parametrize("blobs", ["database"])
def test_a_row_says_how_deep_a_transaction_lies_and_what_bounds_its_step(
    ledger: Store, tiny: TinyLedger, database_url: str
) -> None:
    a = tiny.publish("ann", [tiny.genesis_id], model(1))
    b = tiny.publish("bob", [a], model(2))
    c = tiny.publish("ann", [a, b], model(3))
    alone = [tiny.publish("ann", [c], model(4))]
    alone.append(tiny.publish("ann", [alone[0]], model(5)))
    for each in (a, b, c, *alone):
        transaction = tiny.transactions[each]
        put(ledger, transaction, tiny.models[transaction.header.model_digest])

    def places() -> list[tuple[TxId, int, tuple[TxId, ...]]]:
        return [(node.id, node.depth, node.bounded_by) for node in (each.node for each in ledger.replay())]

    expected = [(tiny.genesis_id, 0, ()), (a, 1, (tiny.genesis_id,)), (b, 2, (a,)), (c, 3, tuple(sorted([a, b])))]
    expected += [(alone[0], 4, tuple(sorted([a, b]))), (alone[1], 5, tuple(sorted([a, b])))]
    assert places() == expected
    assert expected == [(node.id, node.depth, node.bounded_by) for node in tiny.ledger]
    with engine_of(ledger).begin() as connection:  # as revision 0001 had it
        for name in ("depth", "model_digest"):
            connection.execute(text(f"DROP INDEX ix_transactions_{name}"))
        for name in ("depth", "bounded_by"):
            connection.execute(text(f"ALTER TABLE transactions DROP COLUMN {name}"))
        for name in ("changes", "server_key", "archived"):
            connection.execute(text(f"ALTER TABLE journal DROP COLUMN {name}"))
        if not ledger.database.is_sqlite:
            for name in ("delete", "update"):
                connection.execute(text(f"DROP TRIGGER attachments_no_{name} ON attachments"))
            trigger = "BEFORE UPDATE OR DELETE ON attachments FOR EACH ROW EXECUTE FUNCTION ledger_never_changes()"
            connection.execute(text(f"CREATE TRIGGER attachments_no_change {trigger}"))
        connection.execute(text("DROP INDEX ix_models_base"))
        for name in ("base", "packed_size"):
            connection.execute(text(f"ALTER TABLE models DROP COLUMN {name}"))
        for name in ("sketches", "summaries", "averages"):
            connection.execute(text(f"DROP TABLE {name}"))
        connection.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    schema.upgrade(database_url)
    assert places() == expected


# -- order --------------------------------------------------------------------------------------------


def test_pages_follow_each_other_in_order_of_arrival(
    ledger: Store, tiny: TinyLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    appended = [tiny.draft(name, [tiny.genesis_id], model(1)) for name in ("ann", "bob", "cid")]
    for draft in appended:
        put(ledger, draft, model(1))
    everything = [tiny.genesis_id, *(draft.id for draft in appended)]
    assert ids(ledger.page(after=-1, limit=10)) == everything
    assert ids(ledger.page(after=0, limit=2)) == everything[1:3]
    assert ids(ledger.page(after=2, limit=2)) == everything[3:]
    assert ledger.page(after=3, limit=2) == []
    monkeypatch.setattr("ledger_server.store.journal.REPLAY_PAGE", 3)
    assert ids(list(ledger.replay())) == everything
    assert [stored.arrival for stored in ledger.replay()] == [0, 1, 2, 3]


def test_writers_in_eight_threads_and_two_stores_leave_no_gap_and_a_follower_misses_nothing(
    ledger: Store, tiny: TinyLedger, database_url: str, bucket: S3Address | None, tmp_path: Path
) -> None:
    threads, each = 8, 6
    chains = [[tiny.draft(f"author {t}", [tiny.genesis_id], model(t))] for t in range(threads)]
    for t, chain in enumerate(chains):
        chain += [tiny.draft(f"author {t}", [chain[0].id], model(t), sequence=n) for n in range(1, each)]
    delays = iter([0.001 * (n * 7 % 5) for n in range(10 * threads * each)])
    seen: list[StoredTransaction] = []
    finished = threading.Event()

    def follow() -> None:
        while not finished.is_set() or len(seen) <= threads * each:
            seen.extend(ledger.page(after=seen[-1].arrival if seen else -1, limit=5))
            finished.wait(0.001)  # and leaves the writers their turn

    with open_store(database_url, data_dir=tmp_path, s3=bucket) as other:
        for opened in (ledger, other):  # commits that dawdle, so that a cursor has something to miss
            event.listen(engine_of(opened), "commit", lambda _: time.sleep(next(delays)))

        def write(t: int) -> list[int]:
            return [put((ledger, other)[t % 2], draft, model(t)) for draft in chains[t]]

        with ThreadPoolExecutor(threads + 1) as pool:
            follower = pool.submit(follow)
            arrivals = [arrival for part in pool.map(write, range(threads)) for arrival in part]
            finished.set()
            follower.result(timeout=30)
    assert sorted(arrivals) == list(range(1, threads * each + 1))
    assert [stored.arrival for stored in seen] == list(range(threads * each + 1))
    known: set[TxId] = set()
    for stored in seen:
        assert known.issuperset(stored.transaction.header.parents)
        known.add(stored.transaction.id)


# -- models -------------------------------------------------------------------------------------------


@pytest.fixture
def large(store: Store) -> tuple[Store, bytes]:
    """A journal whose genesis has a model of several pieces, every value of which is another."""
    data = encode_flat(LARGE, np.arange(LARGE.num_parameters, dtype=np.float32))
    genesis = make_genesis(layout=LARGE)
    first = genesis_transaction(genesis, data)
    store.create(at(0, first), document=genesis.document, model=data)
    return store, data


def test_a_large_model_is_read_whole_and_in_any_range(large: tuple[Store, bytes]) -> None:
    store, data = large
    assert store.model(digest_of(data)) == data
    ranges = [
        (0, 0),
        (0, 8),
        (0, PIECE_BYTES),
        (PIECE_BYTES - 1, PIECE_BYTES + 1),
        (PIECE_BYTES, 2 * PIECE_BYTES),
        (5, 2 * PIECE_BYTES + 5),
        (2 * PIECE_BYTES + 1, 1 << 40),
        (1 << 40, 1 << 41),
        (3, 7),
    ]
    with store.open_model(digest_of(data)) or pytest.fail("no model") as reader:
        assert reader.size == len(data)
        for start, stop in ranges:
            assert reader.read(start, stop) == data[start:stop], (start, stop)
        step = 384 << 10
        assert b"".join(reader.read(at, at + step) for at in range(0, len(data), step)) == data


def test_threads_may_share_a_reader(large: tuple[Store, bytes]) -> None:
    store, data = large
    step = 100_000
    starts = [at * 7919 % len(data) for at in range(64)]
    with store.open_model(digest_of(data)) or pytest.fail("no model") as reader, ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda at: reader.read(at, at + step), starts)) == [data[at : at + step] for at in starts]


def test_a_closed_reader_and_an_impossible_range_are_value_errors(ledger: Store, tiny: TinyLedger) -> None:
    reader = ledger.open_model(digest_of(tiny.genesis_model)) or pytest.fail("no model")
    for start, stop in ((-1, 1), (3, 2)):
        with pytest.raises(ValueError, match="no bytes"):
            reader.read(start, stop)
    reader.close()
    reader.close()
    with pytest.raises(ValueError, match="closed"):
        reader.read(0, 1)


def test_many_readers_are_open_at_once_while_others_write(ledger: Store, tiny: TinyLedger) -> None:
    digest = digest_of(tiny.genesis_model)
    readers = [ledger.open_model(digest) or pytest.fail("no model") for _ in range(100)]
    put(ledger, tiny.draft("ann", [tiny.genesis_id], model(1)), model(1))
    assert {reader.read(0, 8) for reader in readers} == {tiny.genesis_model[:8]}
    assert (ledger.open_model(digest_of(model(1))) or pytest.fail("no model")).size == len(model(1))


# -- selections ---------------------------------------------------------------------------------------


def test_a_selection_is_kept_once(ledger: Store) -> None:
    for evidence in ([EVIDENCE], [EVIDENCE, b"other"]):
        ledger.keep_selections(evidence, now_ms=NOW_MS)
    assert ledger.attachment(digest_of(EVIDENCE)) == EVIDENCE
    assert counts(ledger)["selections"] == 2


def test_a_published_selection_is_never_kept_beside_and_never_forgotten(ledger: Store, tiny: TinyLedger) -> None:
    ledger.keep_selections([EVIDENCE], now_ms=NOW_MS)
    put(ledger, tiny.draft("ann", [tiny.genesis_id], model(1), attachment=EVIDENCE), model(1), attachment=EVIDENCE)
    ledger.keep_selections([EVIDENCE], now_ms=NOW_MS + 10 * 60_000)
    assert ledger.forget_selections(before_ms=NOW_MS + 20 * 60_000, keep=0) == 0
    assert ledger.attachment(digest_of(EVIDENCE)) == EVIDENCE
    put(ledger, tiny.draft("bob", [tiny.genesis_id], model(2), attachment=EVIDENCE), model(2), attachment=EVIDENCE)
    assert counts(ledger)["attachments"] == 2


def test_selections_are_forgotten_by_age_and_by_number(ledger: Store) -> None:
    evidence = [b"evidence %d" % n for n in range(5)]
    for n, data in enumerate(evidence):
        ledger.keep_selections([data], now_ms=NOW_MS + n)
    assert ledger.forget_selections(before_ms=NOW_MS + 1, keep=10) == 1
    assert ledger.forget_selections(before_ms=0, keep=2) == 2
    assert [ledger.attachment(digest_of(data)) is not None for data in evidence] == [False] * 3 + [True] * 2
    assert ledger.forget_selections(before_ms=0, keep=2) == 0


def test_a_selection_in_use_stays_young(ledger: Store) -> None:
    for data in (EVIDENCE, b"other"):
        ledger.keep_selections([data], now_ms=NOW_MS)
    for now_ms in (NOW_MS + 60_000, NOW_MS - 60_000):  # and is made no older by a clock that was set back
        ledger.keep_selections([EVIDENCE], now_ms=now_ms)
    assert ledger.forget_selections(before_ms=NOW_MS + 1, keep=10) == 1
    assert ledger.attachment(digest_of(EVIDENCE)) == EVIDENCE


# -- members' acts ------------------------------------------------------------------------------------

QUARANTINE = Act(
    ledger=TxId("1e" * 32), number=1, created_at_ms=5, kind=ActKind.QUARANTINE, subject="update:" + "ab" * 32
)


def test_acts_and_their_signatures_are_kept(ledger: Store) -> None:
    first, both = sign_act(QUARANTINE, key_from_seed(71)), sign_act(QUARANTINE, key_from_seed(71), key_from_seed(72))
    other = sign_act(replace(QUARANTINE, subject="update:" + "cd" * 32), key_from_seed(71))
    assert (ledger.acts(), ledger.count_act_signatures()) == ([], 0)
    for signed, count in ((first, 1), (other, 2), (both, 3), (first, 3)):
        ledger.keep_act(signed)
        assert ledger.count_act_signatures() == count, "it tells another process that something is new"
    assert ledger.acts() == sorted([both, other], key=lambda each: each.id)


# -- nothing changes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("blobs", ["database"])
@pytest.mark.parametrize("table", IMMUTABLE)
def test_the_database_itself_refuses_change(ledger: Store, tiny: TinyLedger, table: str) -> None:
    put(ledger, tiny.draft("ann", [tiny.genesis_id], model(1)), model(1))
    ledger.keep_act(sign_act(QUARANTINE, key_from_seed(71)))
    column, before = IMMUTABLE[table], counts(ledger)
    statements = [f"UPDATE {table} SET {column} = {column}", f"DELETE FROM {table}"]
    if ledger.database.is_sqlite:
        statements.append(f"INSERT OR REPLACE INTO {table} SELECT * FROM {table}")
    else:
        statements.append(f"TRUNCATE {table} CASCADE")
    for statement in statements:
        with engine_of(ledger).connect() as connection, pytest.raises(Exception, match=r"never change"):
            connection.execute(text(statement))
    assert counts(ledger) == before


def test_a_reopened_journal_shows_the_same(
    ledger: Store, tiny: TinyLedger, database_url: str, bucket: S3Address | None, tmp_path: Path
) -> None:
    draft = tiny.draft("ann", [tiny.genesis_id], model(1), attachment=EVIDENCE)
    put(ledger, draft, model(1), attachment=EVIDENCE)
    ledger.keep_selections([b"kept"], now_ms=NOW_MS)
    before = list(ledger.replay())
    ledger.close()
    ledger.close()
    with open_store(database_url, data_dir=tmp_path, s3=bucket) as again:
        assert list(again.replay()) == before
        assert again.genesis() == (tiny.genesis_transaction, tiny.genesis.document)
        assert again.model(digest_of(model(1))) == model(1)
        assert again.attachment(digest_of(EVIDENCE)) == EVIDENCE
        assert again.attachment(digest_of(b"kept")) == b"kept"


# -- failures -----------------------------------------------------------------------------------------


@contextmanager
def listening(store: Store, name: str, act: Callable[..., None]) -> Iterator[None]:
    event.listen(engine_of(store), name, act)
    try:
        yield
    finally:
        event.remove(engine_of(store), name, act)


class CrashError(Exception):
    """Stands for the process ending between two statements."""


def test_a_crash_between_any_two_statements_leaves_nothing_behind(ledger: Store, tiny: TinyLedger) -> None:
    draft = tiny.draft("ann", [tiny.genesis_id], model(1), attachment=EVIDENCE)
    ledger.keep_selections([EVIDENCE], now_ms=NOW_MS)
    before = counts(ledger)
    executed = crash_after = 0

    def crash(*_: object) -> None:
        nonlocal executed
        executed += 1
        if executed == crash_after:
            raise CrashError

    stored = False
    while not stored:
        executed, crash_after = 0, crash_after + 1
        with listening(ledger, "after_cursor_execute", crash):
            try:
                put(ledger, draft, model(1), attachment=EVIDENCE)
                stored = True
            except CrashError:
                pass
        assert stored or counts(ledger) == before
    assert executed >= 5, "fewer statements than tables: the crash was never inside"
    assert counts(ledger)["transactions"] == 2
    assert ledger.attachment(digest_of(EVIDENCE)) == EVIDENCE


def test_a_full_disk_refuses_cleanly_and_recovers(sqlite_url: str, tiny: TinyLedger, tmp_path: Path) -> None:
    with open_store(sqlite_url, data_dir=tmp_path, blobs="database") as store:
        found(store, tiny)
        with engine_of(store).connect() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()

        def allow(pages: int) -> None:
            with engine_of(store).connect() as connection:
                connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")

        data = encode_flat(LARGE, np.zeros(LARGE.num_parameters, np.float32))
        draft = tiny.draft("ann", [tiny.genesis_id], data)
        before = counts(store)
        allow(pages + 8)
        with pytest.raises(StoreUnavailableError, match="disk is full"):
            put(store, draft, data)
        assert counts(store) == before
        store.check()
        allow(pages + 1000)
        assert put(store, draft, data) == 1


def _fail_commit(error_code: int) -> Callable[[object], None]:
    def fail(_: object) -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = error_code
        raise error

    return fail


def assert_only_read(store: Store, draft: Transaction, tiny: TinyLedger) -> None:
    """Nothing is written any more, and what is there is read."""
    for attempt in (
        lambda: put(store, draft, model(1)),
        lambda: store.keep_selections([EVIDENCE], now_ms=NOW_MS),
        store.check,
    ):
        with pytest.raises(StoreUnavailableError, match="restart"):
            attempt()
    assert store.model(digest_of(tiny.genesis_model)) == tiny.genesis_model


def test_after_an_io_error_nothing_more_is_written_until_a_restart(
    sqlite_url: str, tiny: TinyLedger, tmp_path: Path
) -> None:
    with open_store(sqlite_url, data_dir=tmp_path) as store:
        found(store, tiny)
        draft = tiny.draft("ann", [tiny.genesis_id], model(1))
        with (
            listening(store, "commit", _fail_commit(sqlite3.SQLITE_IOERR_FSYNC)),
            pytest.raises(StoreUnavailableError, match="disk failed"),
        ):
            put(store, draft, model(1))
        assert_only_read(store, draft, tiny)
    with open_store(sqlite_url, data_dir=tmp_path) as store:
        assert put(store, draft, model(1)) == 1


@pytest.mark.parametrize("sync", ["fdatasync", "fsync"])
def test_after_a_models_sync_that_failed_for_any_reason_nothing_more_is_written_until_a_restart(
    sqlite_url: str, tiny: TinyLedger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: str
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with open_store(sqlite_url, data_dir=tmp_path, blobs="directory") as store:
        found(store, tiny)
    draft = tiny.draft("ann", [tiny.genesis_id], model(1))
    with open_store(sqlite_url, data_dir=tmp_path, blobs="directory") as store:
        with monkeypatch.context() as patched:
            patched.setattr(os, sync, fail)
            with pytest.raises(StoreUnavailableError, match="No space left"):
                put(store, draft, model(1))
        assert_only_read(store, draft, tiny)
    with open_store(sqlite_url, data_dir=tmp_path, blobs="directory") as store:
        assert put(store, draft, model(1)) == 1


def test_a_folder_that_cannot_be_synced_is_not_opened(
    sqlite_url: str, tiny: TinyLedger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(sqlite_url, data_dir=tmp_path) as store:
        found(store, tiny)
    log = Path(f"{make_url(sqlite_url).database}-wal")
    assert not log.exists(), "the last to close it removes it"
    synced: list[bool] = []

    def fail(file: int) -> None:
        synced.append(log.exists() and os.path.samestat(os.fstat(file), log.parent.stat()))
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(StoreUnavailableError, match="Input/output error"):
            open_store(sqlite_url, data_dir=tmp_path)
    assert synced == [True]
    with open_store(sqlite_url, data_dir=tmp_path) as store:
        assert store.model(digest_of(tiny.genesis_model)) == tiny.genesis_model


def test_a_connection_lost_before_commit_stores_nothing_and_the_retry_does(
    postgresql_url: str, tiny: TinyLedger, tmp_path: Path
) -> None:
    with open_store(postgresql_url, data_dir=tmp_path) as store:
        found(store, tiny)
        draft = tiny.draft("ann", [tiny.genesis_id], model(1))

        def terminate(connection: Any) -> None:
            backend = connection.connection.driver_connection.info.backend_pid
            with psycopg.connect(conninfo(make_url(postgresql_url)), autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s, 5000)", (backend,))

        with listening(store, "commit", terminate), pytest.raises(StoreUnavailableError):
            put(store, draft, model(1))
        assert store.transaction(draft.id) is None
        store.check()
        other = tiny.draft("bob", [tiny.genesis_id], model(2))
        assert [put(store, other, model(2)), put(store, draft, model(1))] == [1, 2]


def test_connections_that_postgresql_has_ended_are_replaced_unnoticed(
    postgresql_url: str, tiny: TinyLedger, tmp_path: Path
) -> None:
    with open_store(postgresql_url, data_dir=tmp_path) as store:
        found(store, tiny)
        with psycopg.connect(conninfo(make_url(postgresql_url)), autocommit=True) as other:
            ours = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            assert other.execute(f"SELECT bool_and(pg_terminate_backend(pid, 5000)) {ours}").fetchone() == (True,)
        assert store.length() == 1
        assert put(store, tiny.draft("ann", [tiny.genesis_id], model(1)), model(1)) == 1


def test_a_commit_that_only_seemed_to_fail_moves_the_journal_on(
    postgresql_url: str, tiny: TinyLedger, tmp_path: Path
) -> None:
    with open_store(postgresql_url, data_dir=tmp_path) as store:
        found(store, tiny)
        draft, other = (tiny.draft(name, [tiny.genesis_id], model(1)) for name in ("ann", "bob"))
        with (
            listening(store, "commit", commit_and_lose_the_answer),
            pytest.raises(StoreUnavailableError, match="closed"),
        ):
            put(store, draft, model(1))
        for attempt in (draft, other):
            assert not store.append(at(1, attempt), model=model(1), attachment=None)
        assert ids(store.page(after=0, limit=10)) == [draft.id]
        assert store.append(at(2, other), model=model(1), attachment=None)


def test_a_lock_that_another_process_holds_is_unavailable(sqlite_url: str, tiny: TinyLedger, tmp_path: Path) -> None:
    with open_store(sqlite_url, data_dir=tmp_path) as store:
        found(store, tiny)
        with engine_of(store).connect() as connection:
            connection.exec_driver_sql("PRAGMA busy_timeout=20")
        holder = sqlite3.connect(str(make_url(sqlite_url).database), isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        try:
            with pytest.raises(StoreUnavailableError, match="another process"):
                put(store, tiny.draft("ann", [tiny.genesis_id], model(1)), model(1))
            assert store.genesis() is not None
        finally:
            holder.close()
        assert put(store, tiny.draft("ann", [tiny.genesis_id], model(1)), model(1)) == 1


# -- opening ------------------------------------------------------------------------------------------


def test_a_new_sqlite_file_is_made_with_the_settings_that_durability_needs(tmp_path: Path) -> None:
    file = tmp_path / "data" / "ledger.sqlite3"
    with open_store(f"sqlite:///{file}", data_dir=file.parent) as store, engine_of(store).connect() as connection:
        values = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in (
                "journal_mode",
                "synchronous",
                "foreign_keys",
                "recursive_triggers",
                "busy_timeout",
                "page_size",
            )
        }
    assert values == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "recursive_triggers": 1,
        "busy_timeout": BUSY_TIMEOUT_MS,
        "page_size": PAGE_BYTES,
    }


def test_postgresql_commits_synchronously_even_where_the_database_says_otherwise(
    postgresql_url: str, tmp_path: Path
) -> None:
    name = make_url(postgresql_url).database
    with psycopg.connect(conninfo(make_url(postgresql_url)), autocommit=True) as connection:
        connection.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off'.encode())
    with open_store(postgresql_url, data_dir=tmp_path) as store, engine_of(store).connect() as connection:
        assert connection.execute(text("SHOW synchronous_commit")).scalar_one() == "on"


def test_what_holds_models_is_for_this_user_only(tmp_path: Path, tiny: TinyLedger) -> None:
    folder, before = tmp_path / "data", os.umask(0)
    try:
        with open_store(f"sqlite:///{folder / 'ledger.sqlite3'}", data_dir=folder, blobs="directory") as store:
            found(store, tiny)
            assert sorted(each.name for each in folder.glob("*-*")) == ["ledger.sqlite3-shm", "ledger.sqlite3-wal"]
            modes = {stat.S_IMODE(each.stat().st_mode) for each in folder.rglob("*") if each.is_file()}
            folders = {stat.S_IMODE(each.stat().st_mode) for each in (folder, *folder.rglob("*")) if each.is_dir()}
    finally:
        os.umask(before)
    assert (modes, folders) == ({0o600}, {0o700})


def _text_file(folder: Path) -> str:
    (folder / "notes.txt").write_text("not a database, but long enough to be looked at\n" * 50)
    return f"sqlite:///{folder / 'notes.txt'}"


def _foreign_database(folder: Path) -> str:
    with sqlite3.connect(folder / "other.sqlite3") as connection:
        connection.execute("CREATE TABLE customers (name TEXT)")
    connection.close()
    return f"sqlite:///{folder / 'other.sqlite3'}"


def _damaged_database(folder: Path) -> str:
    file = folder / "ledger.sqlite3"
    open_store(f"sqlite:///{file}", data_dir=folder).close()
    content = bytearray(file.read_bytes())
    content[100:4096] = bytes(n % 251 for n in range(3996))
    file.write_bytes(content)
    return f"sqlite:///{file}"


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (_text_file, "not a SQLite database"),
        (_foreign_database, r"holds other tables \(customers"),
        (_damaged_database, "damaged"),
        (lambda folder: f"sqlite:///{folder}", "is a folder"),
        (lambda folder: f"sqlite:///{folder}/missing/ledger.sqlite3", "does not exist"),
        (lambda _: "sqlite://", "needs a file"),
        (lambda _: "sqlite:///:memory:", "needs a file"),
        (lambda _: "mysql://root:hunter2@localhost/ledger", "no ledger in 'mysql'"),
        (lambda _: "root:hunter2@localhost", "cannot be read"),
        (lambda _: "", "cannot be read"),
    ],
)
def test_what_is_no_place_for_a_ledger_is_one_clear_error(
    tmp_path: Path, make: Callable[[Path], str], match: str
) -> None:
    with pytest.raises(StoreError, match=match) as raised:
        open_store(make(tmp_path), data_dir=tmp_path)
    assert "\n" not in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_a_folder_that_cannot_be_written_is_named() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o555)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)  # root may write anywhere; nobody may not
        try:
            with pytest.raises(StoreLocationError, match=f"{name} cannot be written"):
                open_store(f"sqlite:///{folder}/ledger.sqlite3", data_dir=folder)
            with pytest.raises(StoreLocationError, match="cannot be made"):
                open_store(f"sqlite:///{folder}/ledger.sqlite3", data_dir=folder / "data")
        finally:
            os.seteuid(user)
            folder.chmod(0o755)


def test_a_postgresql_that_does_not_answer_is_unavailable_and_its_password_is_not_shown(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="cannot be opened") as raised:
        open_store("postgresql://ann:hunter2@127.0.0.1:9/ledger", data_dir=tmp_path)
    assert "\n" not in str(raised.value)
    assert "hunter2" not in "".join(map(str, (raised.value, raised.value.__cause__)))


def test_a_server_that_is_gone_is_unavailable_for_every_method(
    postgresql_url: str, tiny: TinyLedger, tmp_path: Path
) -> None:
    with open_store(postgresql_url, data_dir=tmp_path) as store:
        found(store, tiny)
        reader = store._blobs.open(digest_of(tiny.genesis_model), 8) or pytest.fail("no model")
        url = engine_of(store).url
        engine_of(store).dispose()
        gone: list[Callable[[], object]] = [
            store.genesis,
            store.check,
            store.storage_bytes,
            lambda: list(store.replay()),
            lambda: store.page(after=-1, limit=1),
            lambda: store.transaction(tiny.genesis_id),
            lambda: store.model(UNKNOWN),
            lambda: store.open_model(UNKNOWN),
            lambda: store.attachment(UNKNOWN),
            lambda: store.keep_selections([EVIDENCE], now_ms=NOW_MS),
            lambda: store.forget_selections(before_ms=0, keep=0),
            lambda: put(store, tiny.draft("ann", [tiny.genesis_id], model(1)), model(1)),
            lambda: reader.read(0, 8),
        ]
        assert url.database
        with psycopg.connect(conninfo(url.set(database="postgres")), autocommit=True) as connection:
            connection.execute(f'ALTER DATABASE "{url.database}" ALLOW_CONNECTIONS false'.encode())
        try:
            for method in gone:
                with pytest.raises(StoreUnavailableError):
                    method()
        finally:
            with psycopg.connect(conninfo(url.set(database="postgres")), autocommit=True) as connection:
                connection.execute(f'ALTER DATABASE "{url.database}" ALLOW_CONNECTIONS true'.encode())
        assert store.genesis() is not None
