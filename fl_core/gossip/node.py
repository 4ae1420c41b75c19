"""One server's side of gossip: what to ask of whom and when, and what to do with what comes.

Sans I/O: the caller brings the clock, the network, the disk and the ledger's admission, and does what the
returned effects say. Nothing here waits or blocks, and no peer is trusted:

* nothing is kept that was not asked for, and nothing before its size, id and signatures are checked;
* every queue has a bound per peer, so a bad peer costs its own share and nobody else's;
* the ledger decides what is admitted, by the same rules as for a client.

    node = GossipNode(ledger, items, checkpoint=…, peers=[…], blobs=…, check=…, rng=rng)
    for effect in node.poll(now_s): …           # at least every 100 ms, and after every call below
    for effect in node.answered(ask, response, now_s): …
    for effect in node.failed(ask, now_s, kind=Failure.TIMEOUT): …
    for effect in node.announced(peer, announcement, now_s): …
    for effect in node.published(announcement, now_s): …    # this server admitted it from a client
    for effect in node.admitted(transaction_id, now_s): …   # in answer to Admit
    for effect in node.refused(transaction_id, now_s, reason="…"): …

Calls must not overlap; the caller holds one lock or owns the node in one thread. Calls are short.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from fl_core.dag.transaction import Transaction
from fl_core.gossip.checkpoint import Checkpoint
from fl_core.gossip.effects import Ask, Effect, Failure
from fl_core.gossip.items import ItemSet
from fl_core.gossip.messages import Announcement, Peer, Response
from fl_core.ledger import Ledger
from fl_core.types import Digest, TxId


class Rng(Protocol):
    """Where jitter comes from: ``random.Random`` and numpy's ``Generator`` both do."""

    def random(self) -> float:
        """A number in [0, 1)."""
        ...


class HeldBlobs(Protocol):
    """What the node must know of the caller's blob store."""

    def is_complete(self, digest: Digest) -> bool:
        """Whether the whole model is here, verified."""
        ...

    def bytes_held(self, digest: Digest) -> int:
        """How many bytes of an incomplete model are here; 0 for none. A fetch goes on from there."""
        ...


class GossipNode:
    """See the module's docstring.

    Args:
        ledger: What is here; the node only reads it.
        items: The set of the ledger's ids, genesis included; the node adds what is published and admitted.
        checkpoint: Makes this server's own checkpoint as of now.
        peers: Whom to ask and tell.
        blobs: The caller's blob store.
        check: Raises a ``DagAcflError`` for a transaction whose header or signatures break a rule
            (``check_header`` and ``check_signatures``), before anything of it is kept.
        rng: Jitter of intervals and backoff.
        cursors: Where to go on with each peer, from ``KeepCursor``.
        relay: Whether to announce what came from a peer to the others: True unless every server is a peer
            of every other.
    """

    def __init__(
        self,
        ledger: Ledger,
        items: ItemSet,
        *,
        checkpoint: Callable[[], Checkpoint],
        peers: Sequence[Peer],
        blobs: HeldBlobs,
        check: Callable[[Transaction], None],
        rng: Rng,
        cursors: Mapping[Peer, str] | None = None,
        relay: bool = False,
    ) -> None:
        raise NotImplementedError

    def poll(self, now_s: float) -> list[Effect]:
        """What is due: asks, and what has become of those that nobody answered."""
        raise NotImplementedError

    def answered(self, ask: Ask, response: Response, now_s: float) -> list[Effect]:
        """A peer's answer. One that comes too late, or for another ask, changes nothing."""
        raise NotImplementedError

    def failed(self, ask: Ask, now_s: float, *, kind: Failure) -> list[Effect]:
        """An ask has no answer."""
        raise NotImplementedError

    def blob_progress(self, ask: Ask, bytes_held: int, now_s: float) -> Ask | None:
        """More bytes of a ``GetBlob`` are in the caller's store: the ask with its new deadline, None to stop."""
        raise NotImplementedError

    def announced(self, peer: Peer, announcement: Announcement, now_s: float) -> list[Effect]:
        """A peer says that it holds a transaction."""
        raise NotImplementedError

    def heard(self, peer: Peer, now_s: float) -> None:
        """A peer sent any authenticated request: it is reachable again, so backing off ends."""
        raise NotImplementedError

    def published(self, announcement: Announcement, now_s: float) -> list[Effect]:
        """This server made a client's transaction visible."""
        raise NotImplementedError

    def admitted(self, transaction: TxId, now_s: float) -> list[Effect]:
        """The ``Admit`` is done: the transaction is durable and visible (or was here before)."""
        raise NotImplementedError

    def refused(self, transaction: TxId, now_s: float, *, reason: str) -> list[Effect]:
        """The ``Admit`` broke a rule of the ledger: never ask for it again, and hold it against the peer."""
        raise NotImplementedError

    def deferred(self, transaction: TxId, now_s: float) -> list[Effect]:
        """The ``Admit`` failed for this server's own reasons (a full disk): nobody's fault, tried again later."""
        raise NotImplementedError

    def is_banned(self, peer: Peer) -> bool:
        """Whether the peer's requests and announcements are to be refused too."""
        raise NotImplementedError
