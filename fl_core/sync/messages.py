"""What servers say to one another, as values; the transport decides how they look on the wire.

A request goes to one peer and has one response class; ``RESPONSES`` is that table. A transaction travels as its exact
bytes with its signatures; a model travels by itself, by digest, streamed past these classes to the caller.

    Announcement       this came in                                     -
    GetChanges         what has come to you since this cursor?          Changes | CursorUnknown
    GetTransactions    these, please                                    Transactions
    GetModel           this model, from this byte on                    ModelComplete | ModelUnknown | ModelCorrupt
    GetSummary         what do you hold, in one signed line?            SummaryAnswer
    ReconcileFrame     one frame of range reconciliation                ReconcileAnswer
    GetActs            acts besides these                               Acts
    GetCheckpoint      what stands for the models that you dropped?     CheckpointAnswer

A cursor is text that only the server that gave it understands; the epoch of that server's journal is part of it.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

from fl_core.dag.acts import SignedAct
from fl_core.dag.transaction import Transaction
from fl_core.joining import ServedCheckpoint
from fl_core.models import Buffer
from fl_core.sync.summary import StateSummary
from fl_core.types import ZERO_ID, Digest, PublicKey, TxId, digest_of

Peer: TypeAlias = PublicKey
"""A peer is its key; addresses are the caller's."""

MAX_IDS_PER_CALL: Final = 100
"""Transactions in one ``GetTransactions``, ``Transactions`` or ``Announcement``."""

MAX_CHANGES: Final = 1000
"""Ids in one page of changes."""

MAX_HEADER_BYTES: Final = 48 * 1024
"""More than the format's 1,024 parents and 32 metrics can take."""

MAX_ATTACHMENT_BYTES: Final = 1024 * 1024
"""Largest evidence of a selection; the genesis document is never gossiped."""

MAX_ANNOUNCED_BYTES: Final = 32 * 1024
"""A larger transaction is announced by its id alone."""

MAX_ANNOUNCED_MODEL_BYTES: Final = 256 * 1024
"""A larger model is fetched: pushing it to a peer that has it already would cost more than it saves."""


@dataclass(frozen=True, slots=True)
class TransactionBundle:
    """A transaction as it travels: exact header bytes and signatures, and its attachment where it has one.

    An empty attachment says that the sender has archived it.
    """

    transaction: Transaction
    attachment: bytes | None = None

    @property
    def id(self) -> TxId:
        """The transaction's id."""
        return self.transaction.id

    @property
    def nbytes(self) -> int:
        """About what it takes in memory and in an answer."""
        return len(self.transaction.header_bytes) + 256 + len(self.attachment or b"")

    @property
    def is_without_evidence(self) -> bool:
        """Whether the sender has archived the evidence that the header names."""
        return self.attachment == b"" and self.transaction.header.attachment_digest != ZERO_ID

    @property
    def has_wrong_attachment(self) -> bool:
        """Whether the attachment is not the one that the header names, nor archived."""
        named = self.transaction.header.attachment_digest
        came = ZERO_ID if self.attachment is None else digest_of(self.attachment)
        return came != named and not self.is_without_evidence


@dataclass(frozen=True, slots=True)
class Announcement:
    """Transactions that the sender holds: whole where they are small, by id otherwise.

    ``models`` are small models of what a client has just published at the sender, so that nobody has them yet; the
    caller keeps them as if it had fetched them (``IncomingModels``) before the node hears of the rest.
    """

    bundles: tuple[TransactionBundle, ...] = ()
    ids: tuple[TxId, ...] = ()
    models: tuple[Buffer, ...] = ()

    @classmethod
    def of(cls, bundle: TransactionBundle) -> "Announcement":
        """The announcement of one transaction."""
        return cls((bundle,)) if bundle.nbytes <= MAX_ANNOUNCED_BYTES else cls(ids=(bundle.id,))


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

    found: tuple[TransactionBundle, ...]
    unknown: tuple[TxId, ...] = ()


@dataclass(frozen=True, slots=True)
class GetModel:
    """A model's bytes from ``start`` on; ``size`` is that of the whole, so that the caller stops there."""

    digest: Digest
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class ModelComplete:
    """All bytes are with the caller and hash to the digest."""


@dataclass(frozen=True, slots=True)
class ModelUnknown:
    """The peer does not have it; ``pruned`` when it says that it dropped the bytes by policy."""

    pruned: bool = False


@dataclass(frozen=True, slots=True)
class ModelCorrupt:
    """All bytes came and do not hash to the digest; the caller has thrown them away."""


@dataclass(frozen=True, slots=True)
class GetSummary:
    """The peer's signed state."""


@dataclass(frozen=True, slots=True)
class SummaryAnswer:
    """The summary; the caller has verified the signature and that it is the peer's own."""

    summary: StateSummary


@dataclass(frozen=True, slots=True)
class ReconcileFrame:
    """A frame as ``fl_core.sync.reconcile`` makes it."""

    frame: bytes


@dataclass(frozen=True, slots=True)
class ReconcileAnswer:
    """The peer's frame in answer."""

    frame: bytes


@dataclass(frozen=True, slots=True)
class GetActs:
    """Acts other than those with these digests (``ActSet.digests``)."""

    known: tuple[Digest, ...]


@dataclass(frozen=True, slots=True)
class Acts:
    """Those that fit into one answer; signatures are not verified yet."""

    acts: tuple[SignedAct, ...]


@dataclass(frozen=True, slots=True)
class GetCheckpoint:
    """The peer's checkpoint, as of now."""


@dataclass(frozen=True, slots=True)
class CheckpointAnswer:
    """The checkpoint, which this ledger goes by (``check_checkpoint``); the caller has kept it durably."""

    served: ServedCheckpoint


Request: TypeAlias = GetChanges | GetTransactions | GetModel | GetSummary | ReconcileFrame | GetActs | GetCheckpoint
Response: TypeAlias = (
    Changes
    | CursorUnknown
    | Transactions
    | ModelComplete
    | ModelUnknown
    | ModelCorrupt
    | SummaryAnswer
    | ReconcileAnswer
    | Acts
    | CheckpointAnswer
)

RESPONSES: Final[dict[type[Request], tuple[type[Response], ...]]] = {
    GetChanges: (Changes, CursorUnknown),
    GetTransactions: (Transactions,),
    GetModel: (ModelComplete, ModelUnknown, ModelCorrupt),
    GetSummary: (SummaryAnswer,),
    ReconcileFrame: (ReconcileAnswer,),
    GetActs: (Acts,),
    GetCheckpoint: (CheckpointAnswer,),
}
"""What may answer what; anything else is a peer that does not keep to the protocol."""
