"""What the node wants done: every call of ``GossipNode`` returns a list of these, to be done in that order.

A crash may lose any of them; the node built after it starts again from the journal and asks for what it lacks.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from fl_core.dag.acts import SignedAct
from fl_core.sync.messages import Announcement, Peer, Request, TransactionBundle
from fl_core.types import Digest, TxId


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Send a request, and report ``answered`` or ``failed`` with this very object.

    ``deadline_s`` is the node's clock at which it gives up by itself; whatever comes later is ignored.
    For ``GetModel`` the caller reports ``model_progress`` too, and the deadline moves with it.
    """

    number: int
    peer: Peer
    request: Request
    deadline_s: float


@dataclass(frozen=True, slots=True)
class Announce:
    """Announce to a peer; nobody waits for an answer, and a lost one is made up for by the next page."""

    peer: Peer
    announcement: Announcement
    is_new: bool
    """Whether a client has just published it here: then a small model may go along."""


@dataclass(frozen=True, slots=True)
class Admit:
    """Put a transaction through the ledger's admission and the journal, then call ``admitted`` or ``refused``.

    Those of one list go together: the parents of each are in the ledger, or stand before it. There are no more until
    each of them is answered.
    """

    bundle: TransactionBundle
    from_peer: Peer
    norm: float | None = None
    """None: its model is complete with the caller. Else nobody serves the model and a checkpoint stands for it; this
    is a bound of its norm."""

    @property
    def id(self) -> TxId:
        """The transaction's id."""
        return self.bundle.id


@dataclass(frozen=True, slots=True)
class KeepActs:
    """Keep these acts durably, then add them to the ``ActSet``; the caller asks whose word counts, and verifies theirs.

    What is not kept is asked for again by the next comparison. A forged signature is ``GossipNode.act_forged``.
    """

    peer: Peer
    acts: tuple[SignedAct, ...]


@dataclass(frozen=True, slots=True)
class DiscardModel:
    """No transaction waits for this model any more: throw away what came in of it (the ledger's store is not meant)."""

    digest: Digest


@dataclass(frozen=True, slots=True)
class SaveCursor:
    """Everything before this cursor is settled: a restarted node may begin here."""

    peer: Peer
    cursor: str


class Incident(Enum):
    """What a person or a metric may want to know about a peer."""

    INVALID = "invalid"
    """It sent something that no honest server sends."""
    BANNED = "banned"
    """It did so too often; nothing is asked of it or taken from it until the next start."""
    UNSERVED = "unserved"
    """It did not serve what it had listed."""
    DROPPED = "dropped"
    """A transaction from it found no room, or waited for longer than the lifetime."""
    ROLLED_BACK = "rolled-back"
    """Its summary shows less than an earlier one of the same journal: its disk went back in time."""
    DIFFERS = "differs"
    """Its summary is not equal to ours; what differs is being looked for."""


@dataclass(frozen=True, slots=True)
class LogIncident:
    """A fact for log and metrics; ``detail`` is for people."""

    peer: Peer
    incident: Incident
    detail: str


Effect: TypeAlias = SendRequest | Announce | Admit | KeepActs | DiscardModel | SaveCursor | LogIncident


class Failure(Enum):
    """Why a request has no answer."""

    UNREACHABLE = "unreachable"
    """No connection, or it broke."""
    TIMEOUT = "timeout"
    """No answer in time."""
    REFUSED = "refused"
    """The peer answered that it will not (busy, forbidden, an internal error)."""
    MALFORMED = "malformed"
    """The answer is not of the protocol: a peer's fault."""
    LOCAL = "local"
    """It came and could not be kept here, such as on a full disk: no peer's fault."""
