"""The journal in SQLite or PostgreSQL, by plain SQL statements that both understand.

Writers take turns twice over: a lock of this object, so that threads queue here and not in the database, and the
database's own (``engine.writing``), so that a second process cannot take the same arrival. Readers never wait.

When a commit fails, one thing is unknown: whether it happened. Two ways out, neither of which acknowledges:

* SQLite after an I/O error, as models' files after one or after a sync that failed for any reason: what the disk holds
  and what the kernel shows may differ from now on, so this store writes no more until the server is restarted and
  reads the journal from the disk again.
* Otherwise (a connection lost while committing): the next writer looks, under the writer's lock, whether the
  transaction is there. If it is not, nothing has happened. If it is, the very same transaction may be appended
  again (the client's retry, answered with its arrival); anything else is refused until a restart, because the
  service does not know of it.
"""

import errno
import secrets
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from sqlalchemy import (
    Connection,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    text,
    union_all,
    update,
)
from sqlalchemy.engine import Engine
from sqlalchemy.exc import SQLAlchemyError

from fl_core.dag.receipt import decode_receipt
from fl_core.dag.transaction import Transaction
from fl_core.models import Buffer
from fl_core.types import ZERO_ID, Digest, TxId, digest_of
from ledger_server.store.blobs.protocol import Blob, BlobStore, Place
from ledger_server.store.engine import as_store_error, our_errors, sqlite_code, writing
from ledger_server.store.errors import (
    LedgerExistsError,
    StoredUnseenError,
    StoreError,
    StoreInconsistentError,
    StoreUnavailableError,
    SyncFailedError,
)
from ledger_server.store.protocol import HeldModel, ModelReader, Pruned, StoredTransaction
from ledger_server.store.tables import (
    PIECE_BYTES,
    attachments,
    drops,
    journal,
    model_pieces,
    models,
    parents,
    prunings,
    selections,
    transactions,
)

REPLAY_PAGE: Final = 1000
"""Transactions in memory at a time while replaying."""
SMALLEST_BLOB_BYTES: Final = 128 << 10
"""Smaller models lie in the database although there is a blob store: a row costs less than a file."""
EPOCH_BYTES: Final = 16
BY_DIGEST: Final = 0
"""Segment of a blob that goes by its digest; files count from 1."""
_DROP_PAGE: Final = 20
"""A deletion in a bucket takes a round trip, and publications wait for a page of them."""
_IDS_PER_QUERY: Final = 10_000
_FREE_PAGES: Final = ("freelist_count", "page_size")
_READING: Final = "the database cannot be read"
_WRITING: Final = "the database cannot be written"

# Statements are built once: SQLAlchemy then finds their SQL by identity instead of compiling it.
_STORED = (
    transactions.c.id,
    transactions.c.arrival,
    transactions.c.header,
    transactions.c.author_signature,
    transactions.c.receipt,
    transactions.c.norm,
    transactions.c.received_at_ms,
)
_ARRIVAL_OF = select(transactions.c.arrival).where(transactions.c.id == bindparam("id"))
_NEXT_ARRIVAL = select(func.coalesce(func.max(transactions.c.arrival) + 1, 0))
_IS_PRUNED = exists().where(prunings.c.model == models.c.arrival)
_BEFORE = select(
    _ARRIVAL_OF.scalar_subquery().label("known"),
    _NEXT_ARRIVAL.scalar_subquery().label("next"),
    exists().where(models.c.digest == bindparam("model"), ~_IS_PRUNED).label("has_model"),
    select(models.c.arrival).where(models.c.digest == bindparam("model"), _IS_PRUNED).scalar_subquery().label("pruned"),
    exists().where(attachments.c.digest == bindparam("attachment")).label("has_attachment"),
)
"""All that an append must know beforehand, asked at once: every statement hands the interpreter to another thread."""
_PAGE = (
    select(*_STORED)
    .where(transactions.c.arrival > bindparam("after"))
    .order_by(transactions.c.arrival)
    .limit(bindparam("limit"))
)
_BY_ID = select(*_STORED).where(transactions.c.id == bindparam("id"))
_GENESIS = (
    select(*_STORED, attachments.c.data)
    .join_from(transactions, attachments, transactions.c.attachment_digest == attachments.c.digest)
    .where(transactions.c.arrival == 0)
)
_EPOCH = select(journal.c.epoch)
_PARENTS = (
    insert(parents)
    .from_select(
        ["child", "parent"],
        select(bindparam("child", type_=parents.c.child.type), transactions.c.arrival).where(
            transactions.c.id.in_(bindparam("ids", expanding=True))
        ),
    )
    .execution_options(preserve_rowcount=True)
)
_BY_IDS = select(*_STORED).where(transactions.c.id.in_(bindparam("ids", expanding=True)))
_MODEL = select(models.c.arrival, models.c.size, models.c.segment, models.c.starts_at).where(
    models.c.digest == bindparam("digest"), ~_IS_PRUNED
)
_IS_PRUNED_DIGEST = select(exists().where(models.c.digest == bindparam("digest"), _IS_PRUNED))
_PRUNED_COUNT = select(func.count()).select_from(prunings)
_HELD = (
    select(models.c.arrival, models.c.digest, models.c.size)
    .where(models.c.arrival > bindparam("after"), ~_IS_PRUNED)
    .order_by(models.c.arrival)
    .limit(bindparam("limit"))
)
_TO_PRUNE = select(models.c.arrival, models.c.size, models.c.segment, models.c.starts_at).where(
    models.c.arrival.in_(bindparam("models", expanding=True)),
    ~_IS_PRUNED,
    # What came after the caller had looked may carry one of these models.
    models.c.digest.not_in(select(transactions.c.model_digest).where(transactions.c.arrival >= bindparam("known"))),
)
_IN_PIECES = select(model_pieces.c.model).where(
    model_pieces.c.model.in_(bindparam("models", expanding=True)), model_pieces.c.number == 0
)
_DELETE_PIECES = delete(model_pieces).where(model_pieces.c.model.in_(bindparam("models", expanding=True)))
_TO_DROP = (
    select(drops.c.model, drops.c.segment, drops.c.starts_at, models.c.digest, models.c.size)
    .join_from(drops, models, drops.c.model == models.c.arrival)
    .order_by(drops.c.segment, drops.c.starts_at, drops.c.model)
    .limit(_DROP_PAGE)
)
_STILL_PRUNED = select(exists().where(prunings.c.model == bindparam("model")))
_DROPPED = delete(drops).where(
    drops.c.model == bindparam("model"),
    drops.c.segment == bindparam("at_segment"),
    drops.c.starts_at == bindparam("at_start"),
)
_PLACED_ANEW = (
    update(models)
    .where(models.c.arrival == bindparam("model"))
    .values(segment=bindparam("new_segment"), starts_at=bindparam("new_start"))
)
_NOT_PRUNED = delete(prunings).where(prunings.c.model == bindparam("model"))
_PIECES = (
    select(model_pieces.c.data)
    .where(
        model_pieces.c.model == bindparam("model"),
        model_pieces.c.number.between(bindparam("first"), bindparam("last")),
    )
    .order_by(model_pieces.c.number)
)
_ALL_PIECES = (
    select(model_pieces.c.data).where(model_pieces.c.model == bindparam("model")).order_by(model_pieces.c.number)
)
_LAST_BLOB = (
    select(models.c.segment, models.c.starts_at, models.c.size)
    .where(models.c.segment > BY_DIGEST)
    .order_by(models.c.segment.desc(), models.c.starts_at.desc())
    .limit(1)
)
_NEWEST_BY_DIGEST = (
    select(models.c.digest, models.c.size)
    .where(models.c.segment == BY_DIGEST, ~_IS_PRUNED)
    .order_by(models.c.arrival.desc())
    .limit(1)
)
_BYTES_BY_DIGEST = select(func.coalesce(func.sum(models.c.size), 0)).where(models.c.segment == BY_DIGEST, ~_IS_PRUNED)
_IS_HELD = select(exists().where(models.c.digest == bindparam("digest"), ~_IS_PRUNED))
_ATTACHMENT = union_all(
    select(attachments.c.data).where(attachments.c.digest == bindparam("digest")),
    select(selections.c.data).where(selections.c.digest == bindparam("digest")),
).limit(1)
_KEEP = (
    insert(selections)
    .from_select(
        ["digest", "kept_at_ms", "data"],
        select(
            bindparam("digest", type_=selections.c.digest.type),
            bindparam("now", type_=selections.c.kept_at_ms.type),
            bindparam("data", type_=selections.c.data.type),
        ).where(
            ~exists().where(attachments.c.digest == bindparam("digest")),
            ~exists().where(selections.c.digest == bindparam("digest")),
        ),
    )
    .execution_options(preserve_rowcount=True)
)
_UNPIN = delete(selections).where(selections.c.digest == bindparam("digest"))
_REFRESH = (
    update(selections)
    .where(selections.c.digest == bindparam("which"))
    .values(
        kept_at_ms=case((selections.c.kept_at_ms < bindparam("now"), bindparam("now")), else_=selections.c.kept_at_ms)
    )
)
_NEWEST_SELECTIONS = (
    select(selections.c.digest).order_by(selections.c.kept_at_ms.desc(), selections.c.digest).limit(bindparam("keep"))
)
_FORGET = delete(selections).where(
    or_(selections.c.kept_at_ms < bindparam("before"), selections.c.digest.not_in(_NEWEST_SELECTIONS))
)


class SqlStore:
    """The journal of one ledger; build it with ``ledger_server.store.open_store``.

    Args:
        engine: Connections to a database of the current revision; closed with the store.
        blobs: Where larger models lie; closed with the store. None: there are none.
        smallest_blob_bytes: From what size on new ones go there; None: all go into the database.
    """

    def __init__(
        self, engine: Engine, *, blobs: BlobStore | None = None, smallest_blob_bytes: int | None = SMALLEST_BLOB_BYTES
    ) -> None:
        self._engine, self._blobs, self._smallest_blob = engine, blobs, smallest_blob_bytes
        self._sqlite = engine.dialect.name == "sqlite"
        self._writer = threading.Lock()
        self._staging = threading.Lock()
        self._staged: dict[Digest, tuple[Place | None, int]] = {}
        """Where a model was staged, and of how many ``_drops_by_digest`` the one who staged it knew."""
        self._drops_by_digest = 0
        self._disk_failed = False
        self._in_doubt: TxId | None = None

    # -- reading ----------------------------------------------------------------------------------

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with our_errors(_READING), self._engine.connect() as connection:
            yield connection

    def genesis(self) -> tuple[Transaction, bytes] | None:
        """See ``Store.genesis``."""
        with self._reading() as connection:
            row = connection.execute(_GENESIS).one_or_none()
        return None if row is None else (_stored(row).transaction, bytes(row.data))

    def epoch(self) -> str:
        """See ``Store.epoch``."""
        with self._reading() as connection:
            found = connection.execute(_EPOCH).scalar_one_or_none()
        if found is None:
            raise StoreInconsistentError("the journal has no epoch; draw one with: dag-acfl db renew-epoch")
        return bytes(found).hex()

    def renew_epoch(self) -> str:
        """See ``Store.renew_epoch``."""
        drawn = secrets.token_bytes(EPOCH_BYTES)
        with self._writing(durable=True) as connection:
            if connection.execute(_NEXT_ARRIVAL).scalar_one() == 0:
                raise StoreInconsistentError("there is no ledger here yet")
            connection.execute(delete(journal))
            self._write_epoch(connection, drawn)
        return drawn.hex()

    def _write_epoch(self, connection: Connection, drawn: bytes) -> None:
        connection.execute(insert(journal), {"number": 1, "epoch": drawn})

    def replay(self) -> Iterator[StoredTransaction]:
        """See ``Store.replay``; a page is a read of its own, so a long replay holds no snapshot."""
        after = -1
        while page := self.page(after=after, limit=REPLAY_PAGE):
            yield from page
            after = page[-1].arrival

    def page(self, *, after: int, limit: int) -> list[StoredTransaction]:
        """See ``Store.page``."""
        with self._reading() as connection:
            rows = connection.execute(_PAGE, {"after": after, "limit": limit}).all()
        return [_stored(row) for row in rows]

    def transaction(self, transaction: TxId) -> StoredTransaction | None:
        """See ``Store.transaction``."""
        with self._reading() as connection:
            row = connection.execute(_BY_ID, {"id": bytes.fromhex(transaction)}).one_or_none()
        return None if row is None else _stored(row)

    def transactions(self, ids: Sequence[TxId]) -> list[StoredTransaction]:
        """See ``Store.transactions``; one query for every ten thousand."""
        found: dict[TxId | None, StoredTransaction] = {}
        for start in range(0, len(ids), _IDS_PER_QUERY):
            asked = [bytes.fromhex(each) for each in ids[start : start + _IDS_PER_QUERY]]
            with self._reading() as connection:
                rows = connection.execute(_BY_IDS, {"ids": asked}).all()
            found.update((stored.stored_id, stored) for stored in map(_stored, rows))
        return [found[each] for each in ids if each in found]

    def model(self, digest: Digest) -> bytes | None:
        """See ``Store.model``."""
        with self._reading() as connection:
            row = connection.execute(_MODEL, {"digest": bytes.fromhex(digest)}).one_or_none()
            if row is None:
                return None
            if row.segment is None:
                pieces = connection.execute(_ALL_PIECES, {"model": row.arrival}).scalars().all()
                return _joined(pieces) if pieces else None
        return None if self._blobs is None else self._blobs.get(_blob(digest, row))

    def open_model(self, digest: Digest) -> ModelReader | None:
        """See ``Store.open_model``."""
        with self._reading() as connection:
            row = connection.execute(_MODEL, {"digest": bytes.fromhex(digest)}).one_or_none()
        if row is None:
            return None
        if row.segment is not None and self._blobs is not None:
            return self._blobs.open(_blob(digest, row))
        return SqlModelReader(self._engine, model=row.arrival, size=row.size)

    def is_pruned(self, digest: Digest) -> bool:
        """See ``Store.is_pruned``."""
        with self._reading() as connection:
            return bool(connection.execute(_IS_PRUNED_DIGEST, {"digest": bytes.fromhex(digest)}).scalar_one())

    def pruned_models(self) -> int:
        """See ``Store.pruned_models``."""
        with self._reading() as connection:
            return int(connection.execute(_PRUNED_COUNT).scalar_one())

    def held_models(self, *, after: int, limit: int) -> list[HeldModel]:
        """See ``Store.held_models``."""
        with self._reading() as connection:
            rows = connection.execute(_HELD, {"after": after, "limit": limit}).all()
        return [HeldModel(row.arrival, Digest(bytes(row.digest).hex()), row.size) for row in rows]

    def attachment(self, digest: Digest) -> bytes | None:
        """See ``Store.attachment``."""
        with self._reading() as connection:
            data = connection.execute(_ATTACHMENT, {"digest": bytes.fromhex(digest)}).scalar_one_or_none()
        return None if data is None else bytes(data)

    def storage_bytes(self) -> int:
        """See ``Store.storage_bytes``."""
        if self._blobs is None:
            return self._database_bytes()
        with self._reading() as connection:
            elsewhere = int(connection.execute(_BYTES_BY_DIGEST).scalar_one())
        return self._database_bytes() + self._blobs.stored_bytes() + elsewhere

    def _database_bytes(self) -> int:
        if self._sqlite:
            file = str(self._engine.url.database)
            files = (Path(file), Path(f"{file}-wal"), Path(f"{file}-shm"))
            with our_errors(_READING):
                return sum(path.stat().st_size for path in files if path.exists())
        with self._reading() as connection:
            return int(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one())

    def reusable_bytes(self) -> int | None:
        """See ``Store.reusable_bytes``; PostgreSQL does not say."""
        if not self._sqlite:
            return None
        with self._reading() as connection:
            free, size = (connection.exec_driver_sql(f"PRAGMA {each}").scalar_one() for each in _FREE_PAGES)
        return int(free) * int(size)

    def check(self) -> None:
        """See ``Store.check``."""
        self._refuse_after_failure()
        with self._reading() as connection:
            connection.execute(_NEXT_ARRIVAL).scalar_one()
        if self._blobs is not None:
            self._blobs.check()

    # -- writing ----------------------------------------------------------------------------------

    def _refuse_after_failure(self) -> None:
        if self._disk_failed:
            raise StoreUnavailableError(
                "the disk failed while the ledger was written; restart the server when the disk is sound"
            )

    @contextmanager
    def _writing(self, transaction: TxId | None = None, *, durable: bool = False) -> Iterator[Connection]:
        """One transaction; durable if asked, and when it appends one of the ledger's, whose id is ``transaction``."""
        with self._writer:
            self._refuse_after_failure()
            committing = False
            try:
                with writing(self._engine, durable=durable or transaction is not None) as connection:
                    self._settle_doubt(connection, transaction)
                    yield connection
                    committing = True
            except StoreError:
                raise
            except (SQLAlchemyError, sqlite3.Error, OSError) as error:
                if self._sqlite and sqlite_code(error) == sqlite3.SQLITE_IOERR:
                    self._disk_failed = True
                elif committing and transaction is not None and not self._sqlite:
                    self._in_doubt = transaction
                raise as_store_error(error, doing=_WRITING) from error

    def _settle_doubt(self, connection: Connection, transaction: TxId | None) -> None:
        if self._in_doubt is None or transaction is None:  # what is no transaction may be written beside it
            return
        happened = connection.execute(_ARRIVAL_OF, {"id": bytes.fromhex(self._in_doubt)}).scalar_one_or_none()
        if happened is not None and transaction != self._in_doubt:
            raise StoredUnseenError(
                f"transaction {self._in_doubt[:16]}… was stored although its commit seemed to fail; try again",
                transaction=self._in_doubt,
            )
        self._in_doubt = None

    def saw(self, transaction: TxId) -> None:
        """See ``Store.saw``."""
        with self._writer:
            if self._in_doubt == transaction:
                self._in_doubt = None

    def create(
        self, transaction: Transaction, *, document: bytes, model: Buffer, norm: float, received_at_ms: int
    ) -> None:
        """See ``Store.create``."""
        with self._writing(transaction.id) as connection:
            before = self._before(connection, transaction)
            if before.next != 0:
                raise LedgerExistsError("this database holds a ledger already; choose another folder or database")
            self._write(
                connection,
                transaction,
                before=before,
                norm=norm,
                model=model,
                attachment=document,
                received_at_ms=received_at_ms,
            )
            self._write_epoch(connection, secrets.token_bytes(EPOCH_BYTES))

    @contextmanager
    def staged(self, digest: Digest, model: Buffer) -> Iterator[None]:
        """See ``Store.staged``; nothing is written ahead into the database itself."""
        if not self._is_blob(model):
            yield
            return
        known = self._drops_by_digest  # before the bytes are put: a drop that is counted later may take them
        staged = (self._put_blob(digest, model), known)
        place, _ = staged
        with self._staging:
            is_first = self._staged.setdefault(digest, staged) is staged
        is_done = False
        try:
            yield
            is_done = True
        finally:
            with self._staging:
                if is_waiting := self._staged.get(digest) is staged:
                    del self._staged[digest]
            if is_waiting or not is_first or not is_done:
                with suppress(StoreError):
                    self._drop_staged(Blob(digest, len(model), place), is_ours=is_waiting or not is_first)

    def _drop_staged(self, blob: Blob, *, is_ours: bool) -> None:
        """Give back what was staged, unless a transaction names it."""
        if blob.place is not None:
            if is_ours:
                self._drop_blob(blob)
            return
        # By its digest, another transaction may have come to name it, and somebody may just have staged the same: his
        # append finds that there was a drop since, and puts it again.
        with self._writing() as connection:
            if not connection.execute(_IS_HELD, {"digest": bytes.fromhex(blob.digest)}).scalar_one():
                self._drop_by_digest(blob)

    def _drop_by_digest(self, blob: Blob) -> None:
        """Under the writer's lock. Counted afterwards: who has put the same before it is counted, puts it again."""
        try:
            self._drop_blob(blob)
        finally:
            self._drops_by_digest += 1

    def _is_blob(self, model: Buffer) -> bool:
        return self._blobs is not None and self._smallest_blob is not None and len(model) >= self._smallest_blob

    def _put_blob(self, digest: Digest, model: Buffer) -> Place | None:
        assert self._blobs is not None, "the caller has asked _is_blob"
        self._refuse_after_failure()
        with self._noting_failure():
            return self._blobs.put(digest, model)

    def _drop_blob(self, blob: Blob) -> None:
        if self._blobs is not None:
            self._refuse_after_failure()
            with self._noting_failure():
                self._blobs.drop(blob)

    @contextmanager
    def _noting_failure(self) -> Iterator[None]:
        try:
            yield
        except StoreUnavailableError as error:
            has_failed = isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EIO
            if has_failed or isinstance(error, SyncFailedError):
                self._disk_failed = True
            raise

    def append(
        self,
        transaction: Transaction,
        *,
        norm: float,
        model: Buffer,
        attachment: bytes | None,
        received_at_ms: int,
    ) -> int:
        """See ``Store.append``."""
        with self._writing(transaction.id) as connection:
            before = self._before(connection, transaction)
            if before.known is not None:
                return int(before.known)
            if not transaction.header.parents:
                raise StoreInconsistentError("a transaction without parents is a genesis; create a ledger with it")
            self._write(
                connection,
                transaction,
                before=before,
                norm=norm,
                model=model,
                attachment=attachment,
                received_at_ms=received_at_ms,
            )
        return int(before.next)

    def _before(self, connection: Connection, transaction: Transaction) -> Any:
        header = transaction.header
        digests = {"id": transaction.id, "model": header.model_digest, "attachment": header.attachment_digest}
        return connection.execute(_BEFORE, {name: bytes.fromhex(each) for name, each in digests.items()}).one()

    def _write(
        self,
        connection: Connection,
        transaction: Transaction,
        *,
        before: Any,
        norm: float,
        model: Buffer,
        attachment: bytes | None,
        received_at_ms: int,
    ) -> None:
        header, arrival = transaction.header, before.next
        if len(model) != header.model_size:
            raise StoreInconsistentError(f"the header names {header.model_size} bytes of model, {len(model)} came")
        if (attachment is None) != (header.attachment_digest == ZERO_ID):
            raise StoreInconsistentError("an attachment comes exactly when the header names one")
        if not before.has_model:
            if before.pruned is None:
                self._write_model(connection, header.model_digest, model, arrival=arrival)
            else:
                self._bring_back(connection, header.model_digest, model, arrival=before.pruned)
        if attachment is not None and not before.has_attachment:
            digest = bytes.fromhex(header.attachment_digest)
            connection.execute(insert(attachments), {"digest": digest, "data": attachment})
            connection.execute(_UNPIN, {"digest": digest})
        connection.execute(
            insert(transactions),
            {
                "arrival": arrival,
                "id": bytes.fromhex(transaction.id),
                "header": transaction.header_bytes,
                "author_signature": transaction.author_signature,
                "receipt": transaction.receipt.encode(),
                "model_digest": bytes.fromhex(header.model_digest),
                "attachment_digest": None if attachment is None else bytes.fromhex(header.attachment_digest),
                "norm": norm,
                "received_at_ms": received_at_ms,
            },
        )
        if header.parents:
            ids = [bytes.fromhex(parent) for parent in header.parents]
            found = connection.execute(_PARENTS, {"child": arrival, "ids": ids}).rowcount
            if found != len(ids):
                raise StoreInconsistentError(f"{len(ids) - found} of {len(ids)} parents are not stored")

    def _write_model(self, connection: Connection, digest: Digest, model: Buffer, *, arrival: int) -> None:
        is_blob = self._is_blob(model)
        place = self._place(digest, model) if is_blob else None
        row = {
            "arrival": arrival,
            "digest": bytes.fromhex(digest),
            "size": len(model),
            **_where(place, is_blob=is_blob),
        }
        connection.execute(insert(models), row)
        if not is_blob:
            self._write_pieces(connection, model, arrival=arrival)

    def _write_pieces(self, connection: Connection, model: Buffer, *, arrival: int) -> None:
        # Slices of a memoryview: SQLite copies each once, into its own pages; Python copies nothing.
        view = memoryview(model)
        rows: list[dict[str, Any]] = [
            {"model": arrival, "number": number, "data": view[start : start + PIECE_BYTES]}
            for number, start in enumerate(range(0, len(view), PIECE_BYTES))
        ]
        connection.execute(insert(model_pieces), rows)

    def _bring_back(self, connection: Connection, digest: Digest, model: Buffer, *, arrival: int) -> None:
        """The bytes of a pruned model, which a new transaction carries again; where they lay is not used again."""
        is_blob = self._is_blob(model)
        place = self._place(digest, model) if is_blob else None
        if is_blob and place is None:
            # It goes by its digest: what was staged may just have been dropped, which happens under this lock too.
            self._put_blob(digest, model)
            connection.execute(_DROPPED, {"model": arrival, "at_segment": BY_DIGEST, "at_start": 0})
        where = _where(place, is_blob=is_blob)
        anew = {"model": arrival, "new_segment": where["segment"], "new_start": where["starts_at"]}
        connection.execute(_PLACED_ANEW, anew)
        if not is_blob:
            self._write_pieces(connection, model, arrival=arrival)
        connection.execute(_NOT_PRUNED, {"model": arrival})

    def _place(self, digest: Digest, model: Buffer) -> Place | None:
        """Where the model was staged, or is written now; from here on it may have a row, and is not dropped."""
        with self._staging:
            staged = self._staged.pop(digest, None)
        if staged is not None:
            place, known = staged
            if place is not None or known == self._drops_by_digest:
                return place
        return self._put_blob(digest, model)

    # -- pruning ----------------------------------------------------------------------------------

    def prune(self, arrivals: Sequence[int], *, known: int, now_ms: int) -> Pruned:
        """See ``Store.prune``: recorded, and rows deleted, in one transaction; ``drop_pruned`` does the rest."""
        with self._writing(durable=True) as connection:
            rows = connection.execute(_TO_PRUNE, {"models": list(arrivals), "known": known}).all()
            if not rows:
                return Pruned(0, 0)
            chosen = [row.arrival for row in rows]
            in_pieces = set(connection.execute(_IN_PIECES, {"models": chosen}).scalars())
            connection.execute(insert(prunings), [{"model": each, "pruned_at_ms": now_ms} for each in chosen])
            places = [
                {
                    "model": row.arrival,
                    "segment": row.segment,
                    "starts_at": row.starts_at,
                }
                for row in rows
                if row.segment is not None
            ]
            if places:
                connection.execute(insert(drops), places)
            if in_pieces:
                connection.execute(_DELETE_PIECES, {"models": sorted(in_pieces)})
        return Pruned(len(rows), sum(row.size for row in rows))

    def drop_pruned(self) -> int:
        """See ``Store.drop_pruned``."""
        dropped = 0
        while True:
            with self._reading() as connection:
                rows = connection.execute(_TO_DROP).all()
            if not rows:
                return dropped
            for row in rows:
                if row.segment != BY_DIGEST:
                    place = Place(row.segment, row.starts_at)
                    self._drop_blob(Blob(Digest(bytes(row.digest).hex()), row.size, place))
            # A place is never used again, so a hole may be punched twice; a digest may come back, so it is looked at
            # once more, where no publication can come in between.
            with self._writing() as connection:
                for row in rows:
                    if (
                        row.segment == BY_DIGEST
                        and connection.execute(_STILL_PRUNED, {"model": row.model}).scalar_one()
                    ):
                        self._drop_by_digest(Blob(Digest(bytes(row.digest).hex()), row.size, None))
                    done = {"model": row.model, "at_segment": row.segment, "at_start": row.starts_at}
                    connection.execute(_DROPPED, done)
            dropped += len(rows)

    def compact(self) -> None:
        """See ``Store.compact``."""
        with self._writer:
            self._refuse_after_failure()
            with our_errors("the database cannot be rewritten"):
                if self._sqlite:
                    with closing(self._engine.raw_connection()) as connection:
                        connection.cursor().execute("VACUUM")
                        connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                else:
                    with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                        connection.execute(text("VACUUM FULL model_pieces"))

    def keep_selections(self, evidences: Sequence[bytes], *, now_ms: int) -> int:
        """See ``Store.keep_selections``."""
        rows = [{"digest": bytes.fromhex(digest_of(each)), "now": now_ms, "data": each} for each in evidences]
        with self._writing() as connection:
            new = sum(connection.execute(_KEEP, row).rowcount for row in rows)
            if new < len(rows):
                connection.execute(_REFRESH, [{"which": row["digest"], "now": now_ms} for row in rows])
        return new

    def forget_selections(self, *, before_ms: int, keep: int) -> int:
        """See ``Store.forget_selections``."""
        with self._writing() as connection:
            return connection.execute(_FORGET, {"before": before_ms, "keep": keep}).rowcount

    # -- ending -----------------------------------------------------------------------------------

    def close(self) -> None:
        """See ``Store.close``; waits for a write in progress."""
        with self._writer:
            self._engine.dispose()
            if self._blobs is not None:
                self._blobs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class SqlModelReader:
    """A stored model; see ``ModelReader``. It keeps its latest piece and no connection: threads may share it."""

    def __init__(self, engine: Engine, *, model: int, size: int) -> None:
        self._engine, self._model, self._size = engine, model, size
        self._latest: tuple[int, bytes] = (-1, b"")
        self._closed = False

    @property
    def size(self) -> int:
        """See ``ModelReader.size``."""
        return self._size

    def read(self, start: int, stop: int) -> bytes:
        """See ``ModelReader.read``."""
        if self._closed:
            raise ValueError("the model is closed")
        if not 0 <= start <= stop:
            raise ValueError(f"no bytes [{start}, {stop})")
        stop = min(stop, self._size)
        if start >= stop:
            return b""
        first, last = start // PIECE_BYTES, (stop - 1) // PIECE_BYTES
        pieces = self._pieces(first, last)
        base = first * PIECE_BYTES
        if len(pieces) == 1:
            return pieces[0][start - base : stop - base]
        pieces[0] = pieces[0][start - base :]
        pieces[-1] = pieces[-1][: stop - last * PIECE_BYTES]
        return b"".join(pieces)

    def _pieces(self, first: int, last: int) -> list[bytes]:
        number, held = self._latest  # one read of the pair: another thread may replace it
        kept = [held] if number == first else []
        wanted = first + len(kept)
        if wanted <= last:
            with our_errors(_READING), self._engine.connect() as connection:
                rows = connection.execute(_PIECES, {"model": self._model, "first": wanted, "last": last})
                kept += [bytes(data) for data in rows.scalars()]
            if len(kept) != last - first + 1:
                raise StoreInconsistentError(f"pieces of model {self._model} are missing; run: dag-acfl ledger verify")
            self._latest = (last, kept[-1])
        return kept

    def close(self) -> None:
        """See ``ModelReader.close``."""
        self._closed = True
        self._latest = (-1, b"")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def last_blob(engine: Engine) -> Place | None:
    """Behind the last model that the journal knows to lie in a segment; None when it knows none.

    Raises:
        StoreUnavailableError: The database does not answer.
    """
    with our_errors(_READING), engine.connect() as connection:
        row = connection.execute(_LAST_BLOB).one_or_none()
    return None if row is None else Place(row.segment, row.starts_at + row.size)


def newest_by_digest(engine: Engine) -> Blob | None:
    """The newest model that the journal knows to be found by its digest; None when it knows none.

    Raises:
        StoreUnavailableError: The database does not answer.
    """
    with our_errors(_READING), engine.connect() as connection:
        row = connection.execute(_NEWEST_BY_DIGEST).one_or_none()
    return None if row is None else Blob(Digest(bytes(row.digest).hex()), row.size, None)


def _stored(row: Any) -> StoredTransaction:
    # Taken apart at once: a server that starts does this for every transaction, and a row's names are dear.
    identity, arrival, header, author_signature, receipt, norm, received_at_ms, *_ = row
    return StoredTransaction(
        arrival=arrival,
        transaction=Transaction(
            header_bytes=bytes(header),
            author_signature=None if author_signature is None else bytes(author_signature),
            receipt=decode_receipt(bytes(receipt)),
        ),
        norm=norm,
        received_at_ms=received_at_ms,
        stored_id=TxId(bytes(identity).hex()),
    )


def _blob(digest: Digest, row: Any) -> Blob:
    return Blob(digest, row.size, Place(row.segment, row.starts_at) if row.segment else None)


def _where(place: Place | None, *, is_blob: bool) -> dict[str, int | None]:
    """What a model's row says of where it lies."""
    if place is not None:
        return {"segment": place.segment, "starts_at": place.start}
    return {"segment": BY_DIGEST, "starts_at": 0} if is_blob else {"segment": None, "starts_at": None}


def _joined(pieces: Sequence[bytes]) -> bytes:
    return bytes(pieces[0]) if len(pieces) == 1 else b"".join(pieces)
