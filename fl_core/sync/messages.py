"""What servers say to one another, as values: how they look on the wire is the transport's business.

A request goes to one peer and has one response class; ``RESPONSES`` is that table. Only ids travel in
lists. A transaction travels as its exact bytes with its signatures; a model travels by itself, by digest,
and is streamed past these classes into the caller's blob store.

    GetChanges         what has come to you since this cursor?          Changes | CursorUnknown
    GetTransactions    these, please                                    Transactions
    GetBlob            this model, from this byte on                    BlobComplete | BlobUnknown | BlobCorrupt
    GetCheckpoint      what do you hold, in one signed line?            CheckpointAnswer
    ReconcileFrame     one frame of range-based reconciliation          ReconcileAnswer

A cursor is text that only the server that gave it understands; that server's journal epoch is part of it.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

from fl_core.dag.transaction import Transaction
from fl_core.sync.checkpoint import Checkpoint
from fl_core.types import ZERO_ID, AuthorId, Digest, PublicKey, TxId

Peer: TypeAlias = PublicKey
"""A peer is its key; addresses are the caller's."""

MAX_IDS_PER_CALL: Final = 100
"""Transactions that one ``GetTransactions`` names at most."""

MAX_CHANGES: Final = 1000
"""Ids in one page of changes."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a server says it holds: about 300 bytes, sent to every peer when a transaction becomes visible."""

    id: TxId
    parents: tuple[TxId, ...]
    model_digest: Digest
    model_size: int
    author: AuthorId
    attachment_digest: Digest

    @classmethod
    def of(cls, transaction: Transaction) -> "Announcement":
        """What is announced of a transaction."""
        header = transaction.header
        return cls(
            transaction.id,
            header.parents,
            header.model_digest,
            header.model_size,
            header.author,
            header.attachment_digest,
        )


@dataclass(frozen=True, slots=True)
class CarriedTransaction:
    """A transaction as it travels: exact header bytes and signatures, and its attachment where it has one."""

    transaction: Transaction
    attachment: bytes | None = None

    @property
    def nbytes(self) -> int:
        """What keeping it in memory costs, in bytes, near enough to bound a queue."""
        return len(self.transaction.header_bytes) + 256 + len(self.attachment or b"")

    @property
    def lacks_attachment(self) -> bool:
        """Whether the header names an attachment that did not come along, or none came that it names."""
        return (self.attachment is None) != (self.transaction.header.attachment_digest == ZERO_ID)


@dataclass(frozen=True, slots=True)
class GetChanges:
    """Ids that came to the peer after ``after`` (None: from the beginning), in its order of arrival."""

    after: str | None
    limit: int = MAX_CHANGES


@dataclass(frozen=True, slots=True)
class Changes:
    """A page of ids; ``next`` asks for what follows, now if ``more``, later otherwise."""

    ids: tuple[TxId, ...]
    next: str
    more: bool


@dataclass(frozen=True, slots=True)
class CursorUnknown:
    """The peer did not give that cursor, or its journal began anew: ask without one."""


@dataclass(frozen=True, slots=True)
class GetTransactions:
    """At most ``MAX_IDS_PER_CALL`` ids."""

    ids: tuple[TxId, ...]


@dataclass(frozen=True, slots=True)
class Transactions:
    """Those that fit into one answer, in the order asked; ``unknown`` names those that the peer does not hold."""

    found: tuple[CarriedTransaction, ...]
    unknown: tuple[TxId, ...] = ()


@dataclass(frozen=True, slots=True)
class GetBlob:
    """A model's bytes from ``start`` on; ``size`` is that of the whole, so that the caller stops there."""

    digest: Digest
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class BlobComplete:
    """All bytes are in the caller's store and hash to the digest."""


@dataclass(frozen=True, slots=True)
class BlobUnknown:
    """The peer does not have it; ``pruned`` when it says that it dropped the bytes by policy."""

    pruned: bool = False


@dataclass(frozen=True, slots=True)
class BlobCorrupt:
    """All bytes came and do not hash to the digest; the caller has thrown them away."""


@dataclass(frozen=True, slots=True)
class GetCheckpoint:
    """The peer's signed state."""


@dataclass(frozen=True, slots=True)
class CheckpointAnswer:
    """The checkpoint; the caller has verified the signature and that it is the peer's own."""

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class ReconcileFrame:
    """A frame as ``fl_core.sync.reconcile`` makes it."""

    frame: bytes


@dataclass(frozen=True, slots=True)
class ReconcileAnswer:
    """The peer's frame in answer."""

    frame: bytes


Request: TypeAlias = GetChanges | GetTransactions | GetBlob | GetCheckpoint | ReconcileFrame
Response: TypeAlias = (
    Changes
    | CursorUnknown
    | Transactions
    | BlobComplete
    | BlobUnknown
    | BlobCorrupt
    | CheckpointAnswer
    | ReconcileAnswer
)

RESPONSES: Final[dict[type[Request], tuple[type[Response], ...]]] = {
    GetChanges: (Changes, CursorUnknown),
    GetTransactions: (Transactions,),
    GetBlob: (BlobComplete, BlobUnknown, BlobCorrupt),
    GetCheckpoint: (CheckpointAnswer,),
    ReconcileFrame: (ReconcileAnswer,),
}
"""What may answer what; anything else is a peer that does not keep to the protocol."""
