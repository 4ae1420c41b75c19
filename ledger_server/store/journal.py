"""The journal of one ledger, in SQLite or PostgreSQL by statements that both understand; models in a ``BlobStore``.

What it promises:

* what ``create`` and the appends have returned for is on disk, and what they have raised for is not there at all;
* arrivals count 0, 1, 2, … without gaps in the order of commit, so that ``page(after=cursor)`` misses nothing
  and never shows a transaction before its parents;
* transactions, parents and models never change; only selections that nobody published, and the bytes of models that
  are recorded as pruned and of evidence that is archived, are ever deleted.

An append is one write transaction (``Database.writing``), which excludes all other writers. Inside it the store sees
whether the journal is where the writer expects it, and only then writes: so arrivals have no gaps, and a commit whose
answer was lost shows up at the next append.

A model is held, pruned or unknown, as its row in ``models`` says. Its bytes are put before that row is committed, and
dropped after it was marked as pruned, both inside write transactions (``ledger_server.store.removal``).

Nothing here knows the rules of a ledger, and no model is hashed: who calls has admitted what it hands over, and
every blob goes by the digest in the transaction's header.
"""

import secrets
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self, TypeVar

from cachetools import LRUCache
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Executable,
    Function,
    LargeBinary,
    bindparam,
    delete,
    exists,
    func,
    insert,
    select,
    tuple_,
    union_all,
    update,
)

from fl_core.dag.acts import SignedAct
from fl_core.dag.genesis import parse_genesis
from fl_core.dag.receipt import RECEIVED_AT
from fl_core.dag.transaction import AUTHOR_AT, Transaction
from fl_core.errors import ModelMalformedError
from fl_core.models import Buffer, ModelLayout
from fl_core.step_coding import CODED_HEAD_BYTES, LEAST_BYTES, base_of, decode_step, is_coded
from fl_core.sync.items import Item
from fl_core.types import ZERO_ID, Digest, PublicKey, TxId, digest_of
from ledger_server.store import acts, appending, evidence, pending
from ledger_server.store.appending import SET_WHOLE, Entry
from ledger_server.store.blobs.protocol import BlobStore, MemoryReader, ModelReader
from ledger_server.store.database import Database
from ledger_server.store.engine import batches, together
from ledger_server.store.errors import LedgerExistsError, StoreInconsistentError
from ledger_server.store.evidence import Named
from ledger_server.store.removal import Removal
from ledger_server.store.schema import REVISION
from ledger_server.store.stored import STORED, StoredTransaction, stored_of
from ledger_server.store.tables import (
    CHANGED,
    HexBytes,
    attachments,
    checkpoints,
    journal,
    models,
    selections,
    sketches,
    summaries,
    transactions,
)

T = TypeVar("T")

REPLAY_PAGE: Final = 1000
"""Transactions in memory at a time while replaying."""
_UNPACKED_BYTES: Final = 64 << 20
_IDS_PER_QUERY: Final = 10_000
_NONE: Final[Mapping[Digest, Sequence[TxId]]] = MappingProxyType({})


def _part(column: Column[bytes], where: slice) -> Function[bytes]:
    return func.substr(column, where.start + 1, where.stop - where.start, type_=LargeBinary)


# Statements are built once: SQLAlchemy then finds their SQL by identity instead of compiling it.
_LENGTH = select(func.coalesce(func.max(transactions.c.arrival) + 1, 0))
_POSITION = select(
    _LENGTH.scalar_subquery(), journal.c.changes, journal.c.epoch, journal.c.server_key, REVISION.scalar_subquery()
)
_PAGE = (
    select(*STORED)
    .where(transactions.c.arrival > bindparam("after"))
    .order_by(transactions.c.arrival)
    .limit(bindparam("limit"))
)
_IDS = (
    select(transactions.c.id)
    .where(transactions.c.arrival >= bindparam("start"))
    .order_by(transactions.c.arrival)
    .limit(bindparam("limit"))
)
_AT = (
    select(*STORED)
    .where(transactions.c.arrival.in_(bindparam("arrivals", expanding=True)))
    .order_by(transactions.c.arrival)
)
_ARRIVALS = select(transactions.c.id, transactions.c.arrival).where(
    transactions.c.id.in_(bindparam("ids", expanding=True))
)
_BEGINNING = (
    select(*STORED)
    .where(transactions.c.id.between(bindparam("low", type_=HexBytes), bindparam("high", type_=HexBytes)))
    .order_by(transactions.c.id)
    .limit(bindparam("limit"))
)
_place = tuple_(transactions.c.depth, transactions.c.id)
_ITEMS = (
    select(transactions.c.depth, transactions.c.id)
    .where(
        _place > tuple_(bindparam("above", type_=BigInteger), bindparam("beyond", type_=HexBytes)),
        _place <= tuple_(bindparam("depth", type_=BigInteger), bindparam("last", type_=HexBytes)),
    )
    .order_by(transactions.c.depth, transactions.c.id)
)
_WHO = (
    select(_part(transactions.c.header, AUTHOR_AT), _part(transactions.c.receipt, RECEIVED_AT), transactions.c.depth)
    .where(transactions.c.arrival > bindparam("after"))
    .order_by(transactions.c.arrival)
    .limit(bindparam("limit"))
)
_BY_IDS = select(*STORED).where(transactions.c.id.in_(bindparam("ids", expanding=True)))
_CARRYING = select(*STORED).where(transactions.c.model_digest.in_(bindparam("digests", expanding=True)))
_GENESIS = (
    select(*STORED, attachments.c.data)
    .join_from(transactions, attachments, transactions.c.attachment_digest == attachments.c.digest)
    .where(transactions.c.arrival == 0)
)
_ATTACHMENT = union_all(
    select(attachments.c.data).where(attachments.c.digest == bindparam("digest")),
    select(selections.c.data).where(selections.c.digest == bindparam("digest")),
).limit(1)

_HELD_SIZE = select(models.c.size).where(models.c.digest == bindparam("digest"), models.c.pruned_at_ms.is_(None))
_PACKED_BY = (
    select(models.c.digest)
    .where(models.c.base.in_(bindparam("bases", expanding=True)), models.c.pruned_at_ms.is_(None))
    .order_by(models.c.digest)
)
_TO_PACK = (
    select(*STORED)
    .join(models, models.c.digest == transactions.c.model_digest)
    .where(
        transactions.c.arrival > bindparam("after"),
        models.c.pruned_at_ms.is_(None),
        models.c.base.is_(None),
        models.c.size >= bindparam("least"),
    )
    .order_by(transactions.c.arrival)
    .limit(bindparam("limit"))
)
_ARE_WHOLE = (
    select(func.count())
    .select_from(models)
    .where(
        models.c.digest.in_(bindparam("digests", expanding=True)),
        models.c.pruned_at_ms.is_(None),
        models.c.base.is_(None),
    )
)
_IS_PACKED = select(
    exists().where(models.c.digest == bindparam("digest"), models.c.pruned_at_ms.is_(None), models.c.base.is_not(None))
)
_SET_PACKED = (
    update(models).where(models.c.digest == bindparam("of")).values(base=bindparam("by"), packed_size=bindparam("take"))
)
_HELD_BYTES = select(func.coalesce(func.sum(func.coalesce(models.c.packed_size, models.c.size)), 0)).where(
    models.c.pruned_at_ms.is_(None)
)
_SKETCH = select(sketches.c.data, sketches.c.digest).where(sketches.c.model == bindparam("digest"))
_SUMMARY = select(summaries.c.data, summaries.c.digest).join(journal, journal.c.epoch == summaries.c.epoch)
_CHECKPOINTS = select(checkpoints.c.served).order_by(checkpoints.c.member)
_ARCHIVED = select(journal.c.archived)
_GENESIS_ATTACHMENT = select(transactions.c.attachment_digest).where(transactions.c.arrival == 0)


class Position(NamedTuple):
    """Where a journal stands.

    Attributes:
        length: How many transactions it has.
        changes: Another number after acts, checkpoints, or models that were pruned.
        epoch: See ``Store.epoch``.
        server_key: See ``Store.server_key``.
        revision: The database's.
    """

    length: int
    changes: int
    epoch: str = ""
    server_key: PublicKey | None = None
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class Appending:
    """The journal while all other writers are kept out.

    Attributes:
        position: Where it stands.
        append: Writes transactions there, as ``Store.append_all`` does; committed at the end of the block.
    """

    position: Position
    append: Callable[[Sequence[Entry]], bool]


class Store:
    """See the module docstring. ``open_store`` builds it; close it, or use it in a ``with``.

    All methods may be called from many threads, and raise only ``ledger_server.store.errors.StoreError``.

    Args:
        database: Of the current revision, with its size and log; closed with the store.
        blobs: Where models' bytes lie.
        place: The name of that kind of place, recorded with genesis.

    Attributes:
        removal: How models leave it.
        unpacked: The packed models that were read last.
    """

    def __init__(self, database: Database, blobs: BlobStore, *, place: str) -> None:
        self.database: Database = database
        self._blobs, self._place = blobs, place
        self.removal: Removal = Removal(database, blobs)
        self._unpacked_lock = threading.Lock()
        self.unpacked: LRUCache[Digest, Buffer] = LRUCache(_UNPACKED_BYTES, getsizeof=len)

    # -- writing ----------------------------------------------------------------------------------

    def create(self, first: StoredTransaction, *, document: bytes, model: Buffer) -> None:
        """Write genesis, as arrival 0.

        Raises:
            LedgerExistsError: There is a ledger, be it the same one.
        """
        identity = secrets.token_hex(16)
        with self.database.writing(durable=True) as connection:
            if connection.execute(_LENGTH).scalar_one() != 0:
                raise LedgerExistsError("this database holds a ledger already; choose another folder or database")
            self._blobs.claim(identity, ledger=first.transaction.id)
            row = {"number": 1, "epoch": secrets.token_hex(16), "id": identity, "models": self._place}
            connection.execute(insert(journal), row)
            appending.append(connection, self._blobs, [Entry(first, model, document)])

    def prepare_model(self, digest: Digest, model: Buffer) -> None:
        """Write a model ahead of its transaction, so that other writers need not wait; ``append`` does what is left.

        What is prepared and not appended costs space until ``sweep``, and is nowhere to be seen.

        Raises:
            StoreUnavailableError: Not stored.
        """
        self.database.require_room(len(model))
        with self.database.noting_disk_failure():
            self._blobs.prepare(digest, model)

    def append(self, new: StoredTransaction, *, model: Buffer | None, attachment: bytes | None) -> bool:
        """As ``append_all``, of one transaction."""
        return self.append_all([Entry(new, model, attachment)])

    @contextmanager
    def appending(self, nbytes: int) -> Iterator[Appending]:
        """Keep all other writers out, of every process; what is appended in the block is committed at its end, durably:
        all or none.

        Args:
            nbytes: Of the models that are to be written.

        Raises:
            StoreUnavailableError: Nothing is stored; or, when the connection was lost in the commit, perhaps all: then
                it is in the journal for who reads on.
        """
        self.database.require_room(nbytes)
        with self.database.writing(durable=True) as connection:
            position = _position(connection)

            def append(entries: Sequence[Entry]) -> bool:
                _check_order(entries)
                is_next = entries[0].stored.arrival == position.length
                if is_next:
                    appending.append(connection, self._blobs, entries)
                return is_next

            yield Appending(position, append)

    def append_all(self, entries: Sequence[Entry]) -> bool:
        """Write transactions with models and attachments at the expected position of the journal, durably: all or none.

        This is the one rule for writers: whoever has seen n transactions may write those of arrivals n, n + 1, …, and
        whoever is behind (another writer was faster, or an earlier append whose commit seemed to fail has happened) is
        told so, reads the journal from its position on, and tries again. Who reads on inside ``appending`` is not
        behind. Any number of writers may follow one journal.

        A model or attachment that is here already is not written again, a pruned model is; a selection becomes part
        of the ledger and is no longer forgotten.

        Args:
            entries: At least one, by arrival; the first one's is the number of transactions that the writer has seen.

        Returns:
            Whether they were stored; False: the journal has moved on.

        Raises:
            StoreUnavailableError: Not stored; or, when the connection was lost in the commit, perhaps stored: then
                the next append answers False.
            StoreInconsistentError: A parent is not stored, there is no genesis, or a size does not agree.
        """
        with self.appending(sum(len(entry.model) for entry in entries if entry.model is not None)) as journal:
            return journal.append(entries)

    # -- reading ----------------------------------------------------------------------------------

    def _scalar(self, statement: Executable, **parameters: object) -> Any:
        with self.database.reading() as connection:
            return connection.execute(statement, parameters).scalar_one_or_none()

    def genesis(self) -> tuple[Transaction, bytes] | None:
        """The first transaction and its document; None while there is no ledger."""
        with self.database.reading() as connection:
            row = connection.execute(_GENESIS).one_or_none()
        return None if row is None else (stored_of(row).transaction, row.data)

    def epoch(self) -> str:
        """Names this journal, 32 hexadecimal digits: drawn with genesis, and anew when a copy was put back.

        Arrivals are told apart by it: a copy that was put back ends earlier than the original, and goes on otherwise.

        Raises:
            StoreInconsistentError: There is no ledger.
        """
        epoch: str | None = self._scalar(select(journal.c.epoch))
        if epoch is None:
            raise StoreInconsistentError("there is no ledger here yet")
        return epoch

    def renew_epoch(self) -> str:
        """Draw another epoch, durably: this database was put back from a copy. Processes that serve it end.

        Whose server serves it from here on is open: the key may be lost.

        Raises:
            StoreInconsistentError: There is no ledger.
        """
        drawn = secrets.token_hex(16)
        with self.database.writing(durable=True) as connection:
            if connection.execute(update(journal).values(epoch=drawn, server_key=None)).rowcount != 1:
                raise StoreInconsistentError("there is no ledger here yet")
        return drawn

    def server_key(self) -> PublicKey | None:
        """The public key of the server that serves the ledger; None: none has since it was made or put back."""
        key: PublicKey | None = self._scalar(select(journal.c.server_key))
        return key

    def set_server_key(self, key: PublicKey, *, former: PublicKey | None) -> bool:
        """Note whose server serves the ledger, durably; False, and nothing is changed, where it is not the former's."""
        change = update(journal).where(journal.c.server_key.is_not_distinct_from(former)).values(server_key=key)
        with self.database.writing(durable=True) as connection:
            return connection.execute(change).rowcount == 1

    def length(self) -> int:
        return int(self._scalar(_LENGTH))

    def position(self) -> Position:
        """Where the journal stands, as of now: whoever serves it and has another one is behind."""
        with self.database.reading() as connection:
            return _position(connection)

    def replay(self) -> Iterator[StoredTransaction]:
        """All transactions in order of arrival; a page is a read of its own, so a long replay holds no snapshot."""
        after = -1
        while page := self.page(after=after, limit=REPLAY_PAGE):
            yield from page
            after = page[-1].arrival

    def page(self, *, after: int, limit: int) -> list[StoredTransaction]:
        """At most ``limit`` transactions with arrivals beyond ``after`` (-1: from genesis), in order."""
        with self.database.reading() as connection:
            rows = connection.execute(_PAGE, {"after": after, "limit": limit}).all()
        return [stored_of(row) for row in rows]

    def at(self, arrivals: Sequence[int]) -> list[StoredTransaction]:
        """Transactions by their arrivals, ascending; those that are not here are left out."""
        with self.database.reading() as connection:
            rows = connection.execute(_AT, {"arrivals": [*arrivals]}).all()
        return [stored_of(row) for row in rows]

    def beginning_with(self, digits: str, *, limit: int) -> list[StoredTransaction]:
        """At most ``limit`` transactions whose ids begin with these hexadecimal digits, ascending."""
        asked = {"low": digits.ljust(64, "0"), "high": digits.ljust(64, "f"), "limit": limit}
        with self.database.reading() as connection:
            rows = connection.execute(_BEGINNING, asked).all()
        return [stored_of(row) for row in rows]

    def who(self, *, after: int, limit: int) -> list[tuple[bytes, bytes, int]]:
        """Of at most ``limit`` transactions beyond ``after``, in order, what can be read of a million of them.

        Returns:
            Of each the author (``AUTHOR_AT``), the server and the time (``RECEIVED_AT``), and the depth.
        """
        with self.database.reading() as connection:
            return [tuple(row) for row in connection.execute(_WHO, {"after": after, "limit": limit})]

    def arrivals(self, ids: Sequence[TxId]) -> dict[TxId, int]:
        """The arrivals of transactions, by id; those that are not here are left out."""
        found: dict[TxId, int] = {}
        for batch in batches(ids, _IDS_PER_QUERY):
            with self.database.reading() as connection:
                found.update((TxId(id_), arrival) for id_, arrival in connection.execute(_ARRIVALS, {"ids": batch}))
        return found

    def ids(self, *, start: int, limit: int) -> list[TxId]:
        """Of at most ``limit`` transactions, from the arrival ``start`` on, in order."""
        with self.database.reading() as connection:
            return list(connection.execute(_IDS, {"start": start, "limit": limit}).scalars())

    def items(self, after: Item | None, last: Item) -> list[Item]:
        """Depths and ids beyond ``after`` (None: from the first on) up to ``last``, in their order."""
        above, beyond = (-1, "") if after is None else after
        asked = {"above": above, "beyond": beyond, "depth": last[0], "last": last[1]}
        with self.database.reading() as connection:
            return [(depth, TxId(id_)) for depth, id_ in connection.execute(_ITEMS, asked)]

    def transaction(self, transaction: TxId) -> StoredTransaction | None:
        return next(iter(self.transactions([transaction])), None)

    def transactions(self, ids: Sequence[TxId]) -> list[StoredTransaction]:
        """Several transactions by id, in the order asked; those that are not here are left out."""
        found: dict[TxId | None, StoredTransaction] = {}
        for batch in batches(ids, _IDS_PER_QUERY):
            with self.database.reading() as connection:
                rows = connection.execute(_BY_IDS, {"ids": batch}).all()
            found.update((stored.stored_id, stored) for stored in map(stored_of, rows))
        return [found[each] for each in ids if each in found]

    def carrying(self, digests: Sequence[Digest]) -> Iterator[StoredTransaction]:
        """All transactions with one of these models, in no order; a read of its own, so go through them at once."""
        with self.database.reading(page_by_page=True) as connection:
            few_at_a_time = connection.execution_options(yield_per=REPLAY_PAGE)
            yield from map(stored_of, few_at_a_time.execute(_CARRYING, {"digests": digests}))

    def attachment(self, digest: Digest) -> bytes | None:
        """A genesis document, or a selection's evidence; empty: it was archived."""
        data: bytes | None = self._scalar(_ATTACHMENT, digest=digest)
        return data

    # -- evidence that is archived ------------------------------------------------------------------

    def archived(self) -> int:
        """How many transactions there are up to the last whose evidence was archived; 0: none was."""
        return int(self._scalar(_ARCHIVED) or 0)

    def evidence_here(self, digests: Sequence[Digest]) -> dict[Digest, int]:
        """Of these attachments those that are here, and their sizes in bytes."""
        found: dict[Digest, int] = {}
        for batch in batches(digests, _IDS_PER_QUERY):
            with self.database.reading() as connection:
                found |= evidence.here(connection, batch)
        return found

    def named(self, *, after: int, limit: int) -> list[Named]:
        """At most ``limit`` transactions with arrivals beyond ``after`` (-1: from genesis), in order."""
        with self.database.reading() as connection:
            return evidence.named(connection, after=after, limit=limit)

    def archive(self, digests: Sequence[Digest], *, known: int, up_to: int) -> dict[Digest, int]:
        """Let go of evidence that an archive holds, durably; ``attachment`` answers with nothing for it.

        Publications wait meanwhile, so some hundreds at a time. One that an update of arrival ``known`` or later
        carries is left: the caller has not seen that update.

        Args:
            digests: Of evidence; what is archived already is passed over.
            known: How many transactions the caller knew when it decided.
            up_to: How many there are up to the last that carries one of these.

        Returns:
            What went, and the sizes in bytes.

        Raises:
            StoreUnavailableError: Nothing goes.
            StoreInconsistentError: The genesis document is among them.
        """
        with self.database.writing(durable=True) as connection:
            if connection.execute(_GENESIS_ATTACHMENT).scalar_one_or_none() in digests:
                raise StoreInconsistentError("the genesis document is never archived")
            gone = evidence.empty(connection, digests, known=known)
            if gone:
                evidence.reaches(connection, up_to - 1)
        return gone

    # -- what a server sums up ----------------------------------------------------------------------

    def keep_summary(self, data: bytes) -> None:
        """Keep what a server sums up of the journal so far, in place of what was kept before.

        Raises:
            StoreUnavailableError: That is kept.
        """
        row = {"number": 1, "epoch": self.epoch(), "digest": digest_of(data), "data": data}
        with self.database.writing(durable=False) as connection:
            connection.execute(delete(summaries))
            connection.execute(insert(summaries), row)

    def summary(self) -> bytes | None:
        """What was kept; None: nothing, or it is damaged, or of a journal in whose place a copy was put."""
        with self.database.reading() as connection:
            row = connection.execute(_SUMMARY).one_or_none()
        return row.data if row is not None and digest_of(row.data) == row.digest else None

    # -- selections and acts ----------------------------------------------------------------------

    def keep_selections(
        self, evidences: Sequence[bytes], *, averaged: Mapping[Digest, Sequence[TxId]] = _NONE, now_ms: int
    ) -> None:
        """Store selections' evidence, to be forgotten unless it is published, and of what averages are the average.

        Keeping one again makes it younger; one that was published stays as it is. A power cut may lose the newest;
        who holds one of them asks for a new selection.
        """
        with self.database.writing(durable=False, alone=False) as connection, together(connection):
            pending.keep(connection, evidences, averaged, now_ms=now_ms)

    def averaged(self, digest: Digest) -> tuple[TxId, ...] | None:
        """The updates whose average a model is, where ``keep_selections`` was told; it may be forgotten by now."""
        with self.database.reading() as connection:
            return pending.averaged(connection, digest)

    def forget_selections(self, *, before_ms: int, keep: int) -> int:
        """Delete unpublished selections last kept before ``before_ms``, and all but the ``keep`` newest; averages too.

        Returns:
            How many were deleted.
        """
        with self.database.writing(durable=False) as connection:
            return pending.forget(connection, before_ms=before_ms, keep=keep)

    def keep_act(self, signed: SignedAct) -> None:
        """Add a member's act, or what is new of its signatures, durably.

        Raises:
            StoreUnavailableError: Nothing is added.
        """
        with self.database.writing(durable=True) as connection:
            acts.keep(connection, signed)
            connection.execute(CHANGED)

    def count_act_signatures(self) -> int:
        """How many signatures all acts have together; it grows with each that is kept, by whichever process."""
        with self.database.reading() as connection:
            return acts.count_signatures(connection)

    def acts(self) -> list[SignedAct]:
        with self.database.reading() as connection:
            return acts.read(connection)

    def keep_checkpoint(self, member: PublicKey, served: bytes) -> None:
        """Keep a member's checkpoint (``fl_core.joining.ServedCheckpoint``) in place of its earlier one, durably.

        Raises:
            StoreUnavailableError: The earlier one is kept.
        """
        with self.database.writing(durable=True) as connection:
            connection.execute(delete(checkpoints).where(checkpoints.c.member == member))
            connection.execute(insert(checkpoints), {"member": member, "served": served})
            connection.execute(CHANGED)

    def checkpoints(self) -> list[bytes]:
        """The checkpoints that were kept, ascending by member."""
        with self.database.reading() as connection:
            return list(connection.execute(_CHECKPOINTS).scalars())

    # -- models -----------------------------------------------------------------------------------

    def model(self, digest: Digest) -> Buffer | None:
        """A model's bytes; None where it is not here, or pruned."""
        size: int | None = self._scalar(_HELD_SIZE, digest=digest)
        return None if size is None else self._whole(digest, size)

    def small_models(self, digests: Collection[Digest]) -> dict[Digest, bytes]:
        """Those of several models that are here and whole, small, and read faster together: perhaps none."""
        return self._blobs.small(digests)

    def open_model(self, digest: Digest) -> ModelReader | None:
        """Random access to a model, for ranges and for averages, without holding all of it; None as of ``model``.

        A packed one is held after all: not for long, as few are read that are superseded.
        """
        size: int | None = self._scalar(_HELD_SIZE, digest=digest)
        reader = None if size is None else self._blobs.open(digest, size)
        if size is None or reader is None or not is_coded(reader.read(0, CODED_HEAD_BYTES)):
            return reader
        reader.close()
        whole = self._whole(digest, size)
        return None if whole is None else MemoryReader(whole)

    @property
    def is_shared(self) -> bool:
        """Whether other servers keep their models in the same place."""
        return self._blobs.is_shared

    def others_model(self, digest: Digest, size: int) -> Buffer | None:
        """A model that another server has put into the shared place, checked by its digest; None: none is there.

        It is not here before a transaction that carries it is appended, which then need not write it.
        """
        return self._blobs.others(digest, size)

    def link(self, digest: Digest) -> str | None:
        """A URL at which a model's own bytes can be fetched for some minutes; None: it is not here, or not so."""
        return self._blobs.link(digest) if self._scalar(_ARE_WHOLE, digests=[digest]) else None

    def _whole(self, digest: Digest, size: int) -> Buffer | None:
        """A model's own bytes; what is packed says so itself, and by which other model."""
        with self._unpacked_lock:
            if (known := self.unpacked.get(digest)) is not None:
                return known
        data = self._blobs.get(digest, size)
        if data is None or not is_coded(data):
            return data
        by = base_of(data)
        base = None if by == ZERO_ID else self._whole(by, size)
        if base is None and by != ZERO_ID:
            return None
        try:
            found = decode_step(self._layout, data, base)
        except ModelMalformedError:
            return data  # damaged: it hashes to something else, as whoever asked will find
        with self._unpacked_lock, suppress(ValueError):  # larger than the cache
            self.unpacked[digest] = found
        return found

    @cached_property
    def _layout(self) -> ModelLayout:
        held = self.genesis()
        assert held is not None, "models are packed by those of a ledger"
        return parse_genesis(held[1]).layout

    def to_pack(self, *, after: int, limit: int) -> list[StoredTransaction]:
        """As ``page``, of those whose models are here, whole, and large enough to be packed."""
        with self.database.reading() as connection:
            rows = connection.execute(_TO_PACK, {"after": after, "limit": limit, "least": LEAST_BYTES}).all()
        return [stored_of(row) for row in rows]

    def packed_by(self, bases: Sequence[Digest]) -> list[Digest]:
        """The models that are packed by one of these."""
        with self.database.reading() as connection:
            return list(connection.execute(_PACKED_BY, {"bases": bases}).scalars())

    def pack(self, digest: Digest, coded: bytes, *, base: Digest) -> bool:
        """Keep a model coded, durably; False, and nothing is changed, where it or its base is not here and whole.

        A base is whole when something is packed by it, and may be packed itself later: so there are no circles.

        Args:
            digest: Whose next update has come long ago.
            coded: ``fl_core.step_coding.encode_step`` of it, from which it has been decoded again.
            base: By which; ``ZERO_ID`` for none.
        """
        needed = {digest, base} - {Digest(ZERO_ID)}
        with self.database.writing(durable=True) as connection:
            if connection.execute(_ARE_WHOLE, {"digests": [*needed]}).scalar_one() != len(needed):
                return False
            connection.execute(_SET_PACKED, {"of": digest, "by": base, "take": len(coded)})
        with self.database.writing(durable=True) as connection:  # what its row says holds before and after this
            if connection.execute(_IS_PACKED, {"digest": digest}).scalar_one():
                self._blobs.replace(connection, digest, coded)
        return True

    def unpack(self, digest: Digest) -> None:
        """Keep a model whole again, durably, as its base is to go."""
        with self.database.writing(durable=True) as connection:
            size = connection.execute(_HELD_SIZE, {"digest": digest}).scalar_one_or_none()
            if size is None or (whole := self._whole(digest, size)) is None:
                return
            self._blobs.replace(connection, digest, whole)
        with self.database.writing(durable=True) as connection:
            connection.execute(SET_WHOLE, {"of": digest})

    def sketch(self, digest: Digest) -> bytes | None:
        """What was kept of a model that is here as what is compared of it; None: nothing, or it is damaged."""
        with self.database.reading() as connection:
            row = connection.execute(_SKETCH, {"digest": digest}).one_or_none()
        return row.data if row is not None and digest_of(row.data) == row.digest else None

    # -- the whole --------------------------------------------------------------------------------

    def storage_bytes(self) -> int:
        """Bytes that database (log and indexes included) and models take."""
        elsewhere = 0 if self._place == "database" else int(self._scalar(_HELD_BYTES))
        return self.database.storage_bytes() + elsewhere

    def require_room(self, nbytes: int = 0) -> None:
        """See that so many bytes can be written and leave free what is to stay free.

        Raises:
            StoreUnavailableError: They cannot.
        """
        self.database.require_room(nbytes)

    def check(self, nbytes: int = 0) -> None:
        """Ask the database whether it can be used, and so many bytes written.

        Raises:
            StoreUnavailableError: It does not answer, has failed a write and wants a restart, or there is no room.
        """
        self.database.refuse_after_failure()
        self.require_room(nbytes)
        self.length()
        self._blobs.check()

    def close(self) -> None:
        """Let go of the database, after a write in progress; further closing does nothing."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_order(entries: Sequence[Entry]) -> None:
    if not all(entry.stored.transaction.header.parents for entry in entries):
        raise StoreInconsistentError("a transaction without parents is a genesis; create a ledger with it")
    first = entries[0].stored.arrival
    if [entry.stored.arrival for entry in entries] != [*range(first, first + len(entries))]:
        raise StoreInconsistentError("what is appended together follows one another")


def _position(connection: Connection) -> Position:
    row = connection.execute(_POSITION).one_or_none()
    return Position(0, 0) if row is None else Position(*row)
