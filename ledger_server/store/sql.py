"""The journal in SQLite or PostgreSQL, by plain SQL statements that both understand; models' bytes in a ``BlobStore``.

An append is one write transaction (``Database.writing``), which excludes all other writers. Inside it the store sees
whether the journal is where the writer expects it, and only then writes: so arrivals have no gaps, and a commit whose
answer was lost shows up as ``MovedOn`` at the next append.

A model is held, pruned or unknown, as its row in ``models`` says. Its bytes are put before that row is committed, and
dropped after it was marked as pruned, both inside write transactions; what a crash leaves between, ``sweep`` finds.
"""

import logging
import secrets
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from sqlalchemy import Connection, bindparam, exists, func, insert, select, union_all, update

from fl_core.dag.acts import SignedAct
from fl_core.dag.receipt import decode_receipt
from fl_core.dag.transaction import Transaction
from fl_core.models import Buffer
from fl_core.types import ZERO_ID, Digest, TxId
from ledger_server.store import acts, pending
from ledger_server.store.blobs.protocol import BlobStore
from ledger_server.store.database import Database
from ledger_server.store.errors import LedgerExistsError, StoreError, StoreInconsistentError
from ledger_server.store.protocol import HeldModel, ModelReader, MovedOn, Pruned, Stored, StoredTransaction
from ledger_server.store.tables import attachments, journal, models, selections, transactions

T = TypeVar("T")
logger = logging.getLogger(__name__)

REPLAY_PAGE: Final = 1000
"""Transactions in memory at a time while replaying."""
_DROP_PAGE: Final = 20
"""A deletion in a bucket takes a round trip, and publications wait for a page of them."""
_SWEEP_PAGE: Final = 500
_IDS_PER_QUERY: Final = 10_000

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
_LENGTH = select(func.coalesce(func.max(transactions.c.arrival) + 1, 0))
_BEFORE = select(
    _LENGTH.scalar_subquery().label("length"),
    select(func.count())
    .where(transactions.c.id.in_(bindparam("parents", expanding=True)))
    .scalar_subquery()
    .label("parents"),
    exists().where(models.c.digest == bindparam("model")).label("knows_model"),
    exists().where(models.c.digest == bindparam("model"), models.c.pruned_at_ms.is_not(None)).label("pruned_model"),
    exists().where(attachments.c.digest == bindparam("attachment")).label("has_attachment"),
)
"""All that an append must know beforehand, asked at once: every statement hands the interpreter to another thread."""
_PAGE = (
    select(*_STORED)
    .where(transactions.c.arrival > bindparam("after"))
    .order_by(transactions.c.arrival)
    .limit(bindparam("limit"))
)
_BY_IDS = select(*_STORED).where(transactions.c.id.in_(bindparam("ids", expanding=True)))
_GENESIS = (
    select(*_STORED, attachments.c.data)
    .join_from(transactions, attachments, transactions.c.attachment_digest == attachments.c.digest)
    .where(transactions.c.arrival == 0)
)
_ATTACHMENT = union_all(
    select(attachments.c.data).where(attachments.c.digest == bindparam("digest")),
    select(selections.c.data).where(selections.c.digest == bindparam("digest")),
).limit(1)

_HELD_SIZE = select(models.c.size).where(models.c.digest == bindparam("digest"), models.c.pruned_at_ms.is_(None))
_HELD = (
    select(models.c.digest, models.c.size)
    .where(models.c.digest > bindparam("after"), models.c.pruned_at_ms.is_(None))
    .order_by(models.c.digest)
    .limit(bindparam("limit"))
)
_HELD_AMONG = select(models.c.digest).where(
    models.c.digest.in_(bindparam("digests", expanding=True)), models.c.pruned_at_ms.is_(None)
)
_HELD_BYTES = select(func.coalesce(func.sum(models.c.size), 0)).where(models.c.pruned_at_ms.is_(None))
_IS_PRUNED = select(exists().where(models.c.digest == bindparam("digest"), models.c.pruned_at_ms.is_not(None)))
_PRUNED_COUNT = select(func.count()).select_from(models).where(models.c.pruned_at_ms.is_not(None))
_GENESIS_MODEL = select(transactions.c.model_digest).where(transactions.c.arrival == 0)
_TO_PRUNE = select(models.c.digest, models.c.size).where(
    models.c.digest.in_(bindparam("digests", expanding=True)),
    models.c.pruned_at_ms.is_(None),
    # What came after the caller had looked may carry one of these models.
    models.c.digest.not_in(select(transactions.c.model_digest).where(transactions.c.arrival >= bindparam("known"))),
)
_SET_PRUNED = update(models).where(models.c.digest == bindparam("of")).values(pruned_at_ms=bindparam("at_ms"))


class SqlStore:
    """The journal of one ledger; see ``Store``. Build it with ``ledger_server.store.open_store``.

    Args:
        database: Of the current revision; closed with the store.
        blobs: Where models' bytes lie; closed with the store.
        place: The name of that kind of place, recorded with genesis.
    """

    def __init__(self, database: Database, blobs: BlobStore, *, place: str) -> None:
        self._database, self._blobs, self._place = database, blobs, place

    # -- the journal ------------------------------------------------------------------------------

    def create(
        self, transaction: Transaction, *, document: bytes, model: Buffer, norm: float, received_at_ms: int
    ) -> None:
        """See ``Store.create``."""
        identity = secrets.token_bytes(16)
        with self._database.writing(durable=True) as connection:
            if connection.execute(_LENGTH).scalar_one() != 0:
                raise LedgerExistsError("this database holds a ledger already; choose another folder or database")
            self._blobs.claim(identity.hex())
            row = {"number": 1, "epoch": secrets.token_bytes(16), "id": identity, "models": self._place}
            connection.execute(insert(journal), row)
            self._write(
                connection,
                transaction,
                expected=0,
                norm=norm,
                model=model,
                attachment=document,
                received_at_ms=received_at_ms,
            )

    def prepare_model(self, digest: Digest, model: Buffer) -> None:
        """See ``Store.prepare_model``."""
        with self._database.noting_disk_failure():
            self._blobs.prepare(digest, model)

    def append(
        self,
        transaction: Transaction,
        *,
        expected: int,
        norm: float,
        model: Buffer,
        attachment: bytes | None,
        received_at_ms: int,
    ) -> Stored | MovedOn:
        """See ``Store.append``."""
        if not transaction.header.parents:
            raise StoreInconsistentError("a transaction without parents is a genesis; create a ledger with it")
        with self._database.writing(durable=True) as connection:
            return self._write(
                connection,
                transaction,
                expected=expected,
                norm=norm,
                model=model,
                attachment=attachment,
                received_at_ms=received_at_ms,
            )

    def _write(
        self,
        connection: Connection,
        transaction: Transaction,
        *,
        expected: int,
        norm: float,
        model: Buffer,
        attachment: bytes | None,
        received_at_ms: int,
    ) -> Stored | MovedOn:
        header = transaction.header
        if len(model) != header.model_size:
            raise StoreInconsistentError(f"the header names {header.model_size} bytes of model, {len(model)} came")
        if (attachment is None) != (header.attachment_digest == ZERO_ID):
            raise StoreInconsistentError("an attachment comes exactly when the header names one")
        model_digest, attachment_digest = bytes.fromhex(header.model_digest), bytes.fromhex(header.attachment_digest)
        parents = [bytes.fromhex(parent) for parent in header.parents]
        before = connection.execute(
            _BEFORE, {"parents": parents, "model": model_digest, "attachment": attachment_digest}
        ).one()
        if before.length != expected:
            return MovedOn(before.length)
        if before.parents != len(parents):
            missing = len(parents) - before.parents
            raise StoreInconsistentError(f"{missing} of {len(parents)} parents are not stored")
        with self._database.noting_disk_failure():
            self._blobs.put(connection, header.model_digest, model)
        if not before.knows_model:
            connection.execute(insert(models), {"digest": model_digest, "size": len(model), "pruned_at_ms": None})
        elif before.pruned_model:
            connection.execute(_SET_PRUNED, {"of": model_digest, "at_ms": None})
        if attachment is not None and not before.has_attachment:
            connection.execute(insert(attachments), {"digest": attachment_digest, "data": attachment})
            pending.adopt(connection, attachment_digest)
        connection.execute(
            insert(transactions),
            {
                "arrival": expected,
                "id": bytes.fromhex(transaction.id),
                "header": transaction.header_bytes,
                "author_signature": transaction.author_signature,
                "receipt": transaction.receipt.encode(),
                "model_digest": model_digest,
                "attachment_digest": None if attachment is None else attachment_digest,
                "norm": norm,
                "received_at_ms": received_at_ms,
            },
        )
        return Stored(expected)

    def genesis(self) -> tuple[Transaction, bytes] | None:
        """See ``Store.genesis``."""
        with self._database.reading() as connection:
            row = connection.execute(_GENESIS).one_or_none()
        return None if row is None else (_stored(row).transaction, bytes(row.data))

    def epoch(self) -> str:
        """See ``Store.epoch``."""
        with self._database.reading() as connection:
            found = connection.execute(select(journal.c.epoch)).scalar_one_or_none()
        if found is None:
            raise StoreInconsistentError("there is no ledger here yet")
        return bytes(found).hex()

    def renew_epoch(self) -> str:
        """See ``Store.renew_epoch``."""
        drawn = secrets.token_bytes(16)
        with self._database.writing(durable=True) as connection:
            if connection.execute(update(journal).values(epoch=drawn)).rowcount != 1:
                raise StoreInconsistentError("there is no ledger here yet")
        return drawn.hex()

    def length(self) -> int:
        """See ``Store.length``."""
        with self._database.reading() as connection:
            return int(connection.execute(_LENGTH).scalar_one())

    def replay(self) -> Iterator[StoredTransaction]:
        """See ``Store.replay``; a page is a read of its own, so a long replay holds no snapshot."""
        after = -1
        while page := self.page(after=after, limit=REPLAY_PAGE):
            yield from page
            after = page[-1].arrival

    def page(self, *, after: int, limit: int) -> list[StoredTransaction]:
        """See ``Store.page``."""
        with self._database.reading() as connection:
            rows = connection.execute(_PAGE, {"after": after, "limit": limit}).all()
        return [_stored(row) for row in rows]

    def transaction(self, transaction: TxId) -> StoredTransaction | None:
        """See ``Store.transaction``."""
        return next(iter(self.transactions([transaction])), None)

    def transactions(self, ids: Sequence[TxId]) -> list[StoredTransaction]:
        """See ``Store.transactions``; one query for every ten thousand."""
        found: dict[TxId | None, StoredTransaction] = {}
        for batch in _batches(ids, _IDS_PER_QUERY):
            with self._database.reading() as connection:
                rows = connection.execute(_BY_IDS, {"ids": [bytes.fromhex(each) for each in batch]}).all()
            found.update((stored.stored_id, stored) for stored in map(_stored, rows))
        return [found[each] for each in ids if each in found]

    def attachment(self, digest: Digest) -> bytes | None:
        """See ``Store.attachment``."""
        with self._database.reading() as connection:
            data = connection.execute(_ATTACHMENT, {"digest": bytes.fromhex(digest)}).scalar_one_or_none()
        return None if data is None else bytes(data)

    def keep_selections(self, evidences: Sequence[bytes], *, now_ms: int) -> int:
        """See ``Store.keep_selections``."""
        with self._database.writing(durable=False) as connection:
            return pending.keep(connection, evidences, now_ms=now_ms)

    def forget_selections(self, *, before_ms: int, keep: int) -> int:
        """See ``Store.forget_selections``."""
        with self._database.writing(durable=False) as connection:
            return pending.forget(connection, before_ms=before_ms, keep=keep)

    def keep_act(self, signed: SignedAct) -> None:
        """See ``Store.keep_act``."""
        with self._database.writing(durable=True) as connection:
            acts.keep(connection, signed)

    def acts(self) -> list[SignedAct]:
        """See ``Store.acts``."""
        with self._database.reading() as connection:
            return acts.read(connection)

    # -- models -----------------------------------------------------------------------------------

    def _held_size(self, digest: Digest) -> int | None:
        with self._database.reading() as connection:
            size: int | None = connection.execute(_HELD_SIZE, {"digest": bytes.fromhex(digest)}).scalar_one_or_none()
        return size

    def model(self, digest: Digest) -> bytes | None:
        """See ``Store.model``."""
        size = self._held_size(digest)
        return None if size is None else self._blobs.get(digest, size)

    def open_model(self, digest: Digest) -> ModelReader | None:
        """See ``Store.open_model``."""
        size = self._held_size(digest)
        return None if size is None else self._blobs.open(digest, size)

    def is_pruned(self, digest: Digest) -> bool:
        """See ``Store.is_pruned``."""
        with self._database.reading() as connection:
            return bool(connection.execute(_IS_PRUNED, {"digest": bytes.fromhex(digest)}).scalar_one())

    def pruned_models(self) -> int:
        """See ``Store.pruned_models``."""
        with self._database.reading() as connection:
            return int(connection.execute(_PRUNED_COUNT).scalar_one())

    def held_models(self, *, after: Digest | None, limit: int) -> list[HeldModel]:
        """See ``Store.held_models``."""
        with self._database.reading() as connection:
            rows = connection.execute(_HELD, {"after": bytes.fromhex(after or ""), "limit": limit}).all()
        return [HeldModel(Digest(bytes(digest).hex()), size) for digest, size in rows]

    def prune(self, digests: Sequence[Digest], *, known: int, now_ms: int) -> Pruned:
        """See ``Store.prune``: recorded in one transaction, dropped in the next."""
        keys = [bytes.fromhex(each) for each in digests]
        with self._database.writing(durable=True) as connection:
            if connection.execute(_GENESIS_MODEL).scalar_one_or_none() in keys:
                raise StoreInconsistentError("genesis's model is never pruned")
            rows = connection.execute(_TO_PRUNE, {"digests": keys, "known": known}).all()
            if rows:
                connection.execute(_SET_PRUNED, [{"of": row.digest, "at_ms": now_ms} for row in rows])
        try:
            self._drop([Digest(bytes(row.digest).hex()) for row in rows])
        except StoreError as error:
            logger.warning("pruned models still take space", extra={"reason": str(error)})
        return Pruned(len(rows), sum(row.size for row in rows))

    def sweep(self) -> int:
        """See ``Store.sweep``."""
        return sum(self._drop(page) for page in _batches(self._blobs.digests(), _SWEEP_PAGE))

    def _drop(self, digests: Sequence[Digest]) -> int:
        """Drop those blobs that no transaction holds, a few at a time, since publications wait meanwhile."""
        with self._database.reading() as connection:
            candidates = _unheld(connection, digests)
        dropped = 0
        for batch in _batches(candidates, _DROP_PAGE):
            with self._database.writing(durable=False) as connection:
                # Asked again where no publication can come in between: a digest may come back at any time.
                for digest in _unheld(connection, batch):
                    with self._database.noting_disk_failure():
                        self._blobs.drop(connection, digest)
                    dropped += 1
        return dropped

    # -- the whole --------------------------------------------------------------------------------

    def compact(self) -> None:
        """See ``Store.compact``."""
        self._database.compact()

    def reusable_bytes(self) -> int | None:
        """See ``Store.reusable_bytes``; PostgreSQL does not say."""
        return self._database.reusable_bytes()

    def storage_bytes(self) -> int:
        """See ``Store.storage_bytes``."""
        if self._place == "database":
            return self._database.storage_bytes()
        with self._database.reading() as connection:
            elsewhere = int(connection.execute(_HELD_BYTES).scalar_one())
        return self._database.storage_bytes() + elsewhere

    def check(self) -> None:
        """See ``Store.check``."""
        self._database.refuse_after_failure()
        self.length()
        self._blobs.check()

    def close(self) -> None:
        """See ``Store.close``; waits for a write in progress."""
        self._database.close()
        self._blobs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    source = iter(items)
    while batch := list(islice(source, size)):
        yield batch


def _unheld(connection: Connection, digests: Sequence[Digest]) -> list[Digest]:
    keys = [bytes.fromhex(each) for each in digests]
    held = {bytes(each).hex() for each in connection.execute(_HELD_AMONG, {"digests": keys}).scalars()}
    return [each for each in digests if each not in held]


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
