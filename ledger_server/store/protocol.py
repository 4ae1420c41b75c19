"""What the service asks of a database: a durable journal of transactions, and the blobs beside it.

Decides the promises, not how they are kept (``ledger_server.store.sql``):

* what ``create`` and ``append`` have returned for is on disk, and what they have raised for is not there at all;
* arrivals count 0, 1, 2, … without gaps in the order of commit, so that ``page(after=cursor)`` misses nothing
  and never shows a transaction before its parents;
* transactions, parents and models never change; only selections that nobody published, and the bytes of models that
  are recorded as pruned, are ever deleted.

Nothing here knows the rules of a ledger, and no model is hashed: who calls has admitted what it hands over, and
every blob goes by the digest in the transaction's header. All methods may be called from many threads, and
raise only ``ledger_server.store.errors.StoreError``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

from fl_core.dag.acts import SignedAct
from fl_core.dag.transaction import Transaction
from fl_core.models import Buffer
from fl_core.types import Digest, TxId


@dataclass(frozen=True, slots=True)
class StoredTransaction:
    """A transaction as the journal holds it.

    Args:
        arrival: Its place in this server's order of arrival, from 0 (genesis).
        transaction: Header bytes and signatures, exactly as they were appended.
        norm: Euclidean norm of its model, so that a replay need not read models.
        received_at_ms: When this server stored it, milliseconds since 1970 UTC.
        stored_id: The id that it is kept under: the header's own, unless a disk or a person changed the bytes since.
            ``ledger verify`` compares the two; nothing else relies on it.
    """

    arrival: int
    transaction: Transaction
    norm: float
    received_at_ms: int
    stored_id: TxId | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Stored:
    """An append has happened, durably; the transaction's place is ``arrival``."""

    arrival: int


@dataclass(frozen=True, slots=True)
class MovedOn:
    """An append has not happened: the journal has other transactions than its writer expected, ``length`` in all."""

    length: int


@dataclass(frozen=True, slots=True)
class HeldModel:
    """A model whose bytes are here."""

    digest: Digest
    size: int


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many models were pruned, and the size of all of them."""

    models: int
    nbytes: int


class ModelReader(Protocol):
    """Random access to one model's bytes; close it, or use it in a ``with``. Threads may share it."""

    @property
    def size(self) -> int:
        """Number of bytes."""

    def read(self, start: int, stop: int) -> bytes:
        """The bytes ``[start, stop)``; as with a slice, what lies beyond the end is left out.

        Raises:
            ValueError: ``start`` is negative or beyond ``stop``, or the reader is closed.
        """

    def close(self) -> None:
        """Let go of the database; further closing does nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


class Store(Protocol):
    """The journal of one ledger; close it, or use it in a ``with``."""

    def genesis(self) -> tuple[Transaction, bytes] | None:
        """The first transaction and its document; None while there is no ledger."""

    def create(
        self, transaction: Transaction, *, document: bytes, model: Buffer, norm: float, received_at_ms: int
    ) -> None:
        """Write genesis as arrival 0.

        Raises:
            LedgerExistsError: There is a ledger, be it the same one.
        """

    def epoch(self) -> str:
        """Names this journal, 32 hexadecimal digits: drawn with genesis, and anew when a copy was put back.

        Arrivals are told apart by it: a copy that was put back ends earlier than the original, and goes on otherwise.

        Raises:
            StoreInconsistentError: There is no ledger.
        """

    def renew_epoch(self) -> str:
        """Draw another epoch, durably: this database was put back from a copy. Not beside a running server.

        Raises:
            StoreInconsistentError: There is no ledger.
        """

    def prepare_model(self, digest: Digest, model: Buffer) -> None:
        """Write a model ahead of its transaction, so that other writers need not wait; ``append`` does what is left.

        What is prepared and not appended costs space until ``sweep``, and is nowhere to be seen.

        Raises:
            StoreUnavailableError: Not stored.
        """

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
        """Write a transaction, its model and its attachment at the expected position of the journal, durably.

        This is the one rule for writers: whoever has seen ``expected`` transactions may write the next, and whoever
        is behind (another writer was faster, or an earlier append whose commit seemed to fail has happened) is told
        so, reads the journal from its position on, and tries again. Any number of writers may follow one journal.

        A model or attachment that is here already is not written again, a pruned model is; a selection becomes part
        of the ledger and is no longer forgotten.

        Args:
            transaction: An admitted transaction; its parents are stored.
            expected: How many transactions the writer has seen, which is the new one's arrival.
            norm: Euclidean norm of the model.
            model: The bytes of ``transaction.header.model_digest``.
            attachment: The bytes of ``transaction.header.attachment_digest``; None when it has none.
            received_at_ms: Now, milliseconds since 1970 UTC.

        Raises:
            StoreUnavailableError: Not stored; or, when the connection was lost in the commit, perhaps stored: then
                the next append answers ``MovedOn``.
            StoreInconsistentError: A parent is not stored, there is no genesis, or a size does not agree.
        """

    def length(self) -> int:
        """How many transactions there are."""

    def replay(self) -> Iterator[StoredTransaction]:
        """All transactions in order of arrival, from genesis, a page in memory at a time."""

    def page(self, *, after: int, limit: int) -> list[StoredTransaction]:
        """At most ``limit`` transactions with arrivals beyond ``after`` (-1: from genesis), in order."""

    def transaction(self, transaction: TxId) -> StoredTransaction | None:
        """One transaction by id."""

    def transactions(self, ids: Sequence[TxId]) -> list[StoredTransaction]:
        """Several transactions by id, in the order asked; those that are not here are left out."""

    def model(self, digest: Digest) -> bytes | None:
        """A model's bytes; None where it is not here, or pruned."""

    def open_model(self, digest: Digest) -> ModelReader | None:
        """Random access to a model, for ranges and for averages, without holding all of it."""

    def attachment(self, digest: Digest) -> bytes | None:
        """A genesis document, or a selection's evidence."""

    def keep_selections(self, evidences: Sequence[bytes], *, now_ms: int) -> int:
        """Store selections' evidence, to be forgotten unless it is published; returns how many were new.

        Keeping one again makes it younger. A power cut may lose the newest; who holds one of them asks for a new
        selection.
        """

    def forget_selections(self, *, before_ms: int, keep: int) -> int:
        """Delete unpublished selections last kept before ``before_ms``, and all but the ``keep`` newest.

        Returns:
            How many were deleted.
        """

    def keep_act(self, signed: SignedAct) -> None:
        """Add a member's act, or what is new of its signatures, durably.

        Raises:
            StoreUnavailableError: Nothing is added.
        """

    def acts(self) -> list[SignedAct]:
        """All members' acts, ascending by id."""

    def is_pruned(self, digest: Digest) -> bool:
        """Whether a transaction here carries this model, and its bytes were dropped by ``prune``."""

    def pruned_models(self) -> int:
        """How many models are pruned."""

    def held_models(self, *, after: Digest | None, limit: int) -> list[HeldModel]:
        """At most ``limit`` models whose bytes are here, by digest, beyond ``after`` (None: from the first)."""

    def prune(self, digests: Sequence[Digest], *, known: int, now_ms: int) -> Pruned:
        """Record models as pruned, durably, and drop their bytes; ``model`` and ``open_model`` answer None for them.

        A model is left as it is when a transaction of arrival ``known`` or later carries it: the caller has not
        seen that one. Publications wait meanwhile, so some dozens of models at a time. Bytes that cannot be dropped now
        are dropped by ``sweep``.

        Args:
            digests: Of ``HeldModel``; those that are pruned already are passed over.
            known: How many transactions the caller knew when it decided.
            now_ms: Milliseconds since 1970 UTC.

        Raises:
            StoreUnavailableError: Nothing is pruned.
            StoreInconsistentError: Genesis's model is among them, which is never pruned.
        """

    def sweep(self) -> int:
        """Drop models' bytes that no transaction holds: what a crash left between prune and drop, or put and append.

        Returns:
            How many were dropped.

        Raises:
            StoreUnavailableError: What is left is dropped by the next call.
        """

    def compact(self) -> None:
        """Give what deleted rows took back to the file system; nobody can write meanwhile, on PostgreSQL nor read.

        Raises:
            StoreUnavailableError: The database is in use, or there is no room for a copy of it.
        """

    def reusable_bytes(self) -> int | None:
        """Bytes of the database that new rows will take before it grows; None where it does not say."""

    def storage_bytes(self) -> int:
        """Bytes that database (log and indexes included) and models take."""

    def check(self) -> None:
        """Ask the database whether it can be used.

        Raises:
            StoreUnavailableError: It does not answer, or has failed a write and wants a restart.
        """

    def close(self) -> None:
        """Let go of the database; further closing does nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...
