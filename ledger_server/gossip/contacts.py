"""What is known of each peer, for people: in the log, in metrics, and for ``GET /v1/peers``."""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from fl_core.sync.effects import Failure, Incident, LogIncident
from fl_core.types import PublicKey
from ledger_server.gossip.errors import LinkError
from ledger_server.metrics import Metrics
from ledger_server.peers import Peer

logger: logging.Logger = logging.getLogger(__name__)

MAX_REASONS: Final = 8
"""A peer that is down is often up again with another fault, so each reason is logged once, but not without end."""

CALM_S: Final = 30.0
"""Seconds without a failure after which a peer is well again: one that does half its work must not fill the log."""


@dataclass(frozen=True, slots=True)
class PeerState:
    """One peer; nothing has moved between this server and one that is no neighbour."""

    peer: Peer
    is_neighbour: bool
    is_reachable: bool = False
    is_banned: bool = False
    last_heard_s: float | None = None
    silent_s: float = 0.0
    """Since it last answered or asked, or since it became a peer."""
    transactions: int | None = None
    """As many as it said that it holds; None before it did."""
    received_bytes: int = 0
    sent_bytes: int = 0
    troubles: tuple[str, ...] = ()
    """Why it was not reached, or refused, until it is well again."""
    incidents: Mapping[str, int] = field(default_factory=dict)
    """What it sent that was not taken, by kind."""


class Contacts:
    """Notes when peers were heard, why they were not, and what was moved.

    Args:
        metrics: Where traffic and incidents are counted.
        now_ms: Milliseconds since 1970 UTC.
    """

    def __init__(self, *, metrics: Metrics, now_ms: Callable[[], int]) -> None:
        self._peers: dict[PublicKey, Peer] = {}
        self._others: tuple[Peer, ...] = ()
        self._names: dict[PublicKey, str] = {}
        """Also of peers that have left: something may be under way."""
        self._metrics, self._now_ms = metrics, now_ms
        self._since_s: dict[PublicKey, float] = {}
        """When each became a peer."""
        self._heard_s: dict[PublicKey, float] = {}
        self._transactions: dict[PublicKey, int] = {}
        self._failing: set[PublicKey] = set()
        """Those whose last answer did not come, or said no."""
        self._failed_s: dict[PublicKey, float] = {}
        self._told: dict[PublicKey, set[str]] = {}
        """Peers that are not well again yet, each with the reasons that the log has told."""
        self._received = Counter[PublicKey]()
        self._sent = Counter[PublicKey]()
        self._incidents: defaultdict[PublicKey, Counter[str]] = defaultdict(Counter)

    def set_peers(self, peers: Sequence[Peer], others: Sequence[Peer]) -> None:
        """From now on this server speaks to these peers, and leaves the others to them."""
        known = {peer.public_key: peer for peer in peers}
        for left in self._peers.keys() - known:
            self._failing.discard(left)
            for facts in (self._since_s, self._heard_s, self._transactions, self._failed_s, self._told):
                facts.pop(left, None)
        for new in known.keys() - self._peers:
            self._since_s[new] = self._now_s()
        self._peers, self._others = known, tuple(others)
        self._names |= {peer.public_key: peer.name for peer in peers}

    def name(self, peer: PublicKey) -> str:
        """What people call it."""
        return self._names[peer]

    def moved(self, peer: PublicKey, kind: str, sent: int, received: int) -> None:
        """So many bytes went to and fro."""
        self._sent[peer] += sent
        self._received[peer] += received
        self._metrics.gossip_bytes.labels(self.name(peer), kind, "sent").inc(sent)
        self._metrics.gossip_bytes.labels(self.name(peer), kind, "received").inc(received)

    def failed(self, peer: PublicKey, error: LinkError) -> None:
        """A request has no answer, or one that says no; that a peer is busy is no news."""
        is_refusal = error.kind is Failure.REFUSED
        is_ours = error.kind is Failure.LOCAL or (is_refusal and not error.status)
        has_left = peer not in self._peers  # meanwhile
        if has_left or is_ours or error.code.startswith("too-"):
            return
        self._failing.add(peer)
        self._failed_s[peer] = self._now_s()
        self._metrics.peer_failures.labels(self.name(peer), error.code or error.kind.value).inc()
        told, reason = self._told.setdefault(peer, set()), str(error)
        if reason not in told and len(told) < MAX_REASONS:
            told.add(reason)
            what = "peer refuses this server" if is_refusal else "peer does not answer"
            about = {"peer": self.name(peer), "url": self._peers[peer].url, "reason": reason}
            logger.warning(what, extra=about)

    def heard(self, peer: PublicKey) -> None:
        """It asked; whether it answers is another matter."""
        self._heard_s[peer] = self._now_s()

    def answered(self, peer: PublicKey) -> None:
        """It answered."""
        if peer not in self._peers:
            return
        self.heard(peer)
        self._failing.discard(peer)
        if peer in self._told and self._now_s() >= self._failed_s[peer] + CALM_S:
            del self._told[peer]
            logger.info("peer answers again", extra={"peer": self.name(peer)})

    def showed(self, peer: PublicKey, transactions: int) -> None:
        """It said how many transactions it holds."""
        if peer in self._peers:
            self._transactions[peer] = transactions

    def _now_s(self) -> float:
        return self._now_ms() / 1000

    def log(self, event: LogIncident) -> None:
        """What the node noticed."""
        name = self.name(event.peer)
        self._metrics.gossip_incidents.labels(name, event.incident.value).inc()
        self._incidents[event.peer][event.incident.value] += 1
        level = logging.ERROR if event.incident in (Incident.BANNED, Incident.ROLLED_BACK) else logging.INFO
        logger.log(level, "gossip", extra={"peer": name, "incident": event.incident.value, "detail": event.detail})

    def states(self, *, is_banned: Callable[[PublicKey], bool]) -> list[PeerState]:
        """Each peer, and which servers are left to others."""
        now_s = self._now_s()
        spoken_to = [
            PeerState(
                peer,
                is_neighbour=True,
                is_reachable=key in self._heard_s and key not in self._failing,
                is_banned=is_banned(key),
                last_heard_s=self._heard_s.get(key),
                silent_s=max(0.0, now_s - self._heard_s.get(key, self._since_s.get(key, now_s))),
                transactions=self._transactions.get(key),
                received_bytes=self._received[key],
                sent_bytes=self._sent[key],
                troubles=tuple(sorted(self._told.get(key, ()))),
                incidents=dict(self._incidents[key]),
            )
            for key, peer in self._peers.items()
        ]
        return spoken_to + [PeerState(peer, is_neighbour=False) for peer in self._others]
