"""Every peer with what is kept of it: its standing, the cursor on its log, the audit of its ledger."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fl_core.sync.auditing import Audit
from fl_core.sync.effects import Effect, Incident, KeepCursor, Notice
from fl_core.sync.items import ItemSet
from fl_core.sync.limits import GossipLimits
from fl_core.sync.messages import Peer
from fl_core.sync.peers import PeerHealth, Rng
from fl_core.sync.pulling import CursorPull
from fl_core.types import TxId


@dataclass(slots=True)
class Known:
    """What is kept of one peer."""

    health: PeerHealth
    pull: CursorPull
    audit: Audit
    has_transactions_asked: bool = False


class Roster:
    """The peers, who never change while the node lives.

    Args:
        peers: Their names.
        items: Our set, for the audits.
        rng: Jitter.
        now_s: The clock as of now.
        cursors: Where to go on with each.
        limits: Intervals and bounds.
    """

    def __init__(
        self,
        peers: Sequence[Peer],
        items: ItemSet,
        *,
        rng: Rng,
        now_s: float,
        cursors: Mapping[Peer, str],
        limits: GossipLimits,
    ) -> None:
        self._limits, self._rng = limits, rng
        self._just_banned: list[Peer] = []
        self._known = {
            peer: Known(
                PeerHealth(limits, rng),
                CursorPull(cursors.get(peer), limits),
                Audit(items, limits, first_s=now_s + limits.audit_interval_s * rng.random()),
            )
            for peer in peers
        }

    def __getitem__(self, peer: Peer) -> Known:
        return self._known[peer]

    def __iter__(self) -> Iterator[Peer]:
        return iter(self._known)

    def scores(self, now_s: float) -> dict[Peer, float]:
        """Those who may be asked now, best first."""
        scores = {peer: known.health.score(now_s) for peer, known in self._known.items() if known.health.can_ask(now_s)}
        return dict(sorted(scores.items(), key=lambda item: item[1]))

    def to_tell(self, besides: Sequence[Peer]) -> tuple[Peer, ...]:
        """Those to whom an announcement goes; one that does not answer will pull when it is back."""
        return tuple(
            peer
            for peer, known in self._known.items()
            if peer not in besides and not known.health.is_banned and not known.health.is_failing
        )

    def pause_s(self, interval_s: float) -> float:
        """An interval, give or take a quarter, so that servers do not come in step."""
        return interval_s * (0.75 + 0.5 * self._rng.random())

    def heard(self, peer: Peer) -> None:
        """It answered or called: it is reachable, and after a silence it may have much that is new."""
        if self._known[peer].health.reached():
            self._known[peer].pull.hurry()

    def settled(self, transaction: TxId, now_s: float, *, dropped: bool, only: Peer | None = None) -> list[Effect]:
        """An id needs nothing more, or nothing for now: move the cursors, or one of them, that waited for it."""
        effects: list[Effect] = []
        for peer in self._known if only is None else (only,):
            pause_s = self.pause_s(self._limits.pull_interval_s)
            cursor = self._known[peer].pull.settled(transaction, now_s, pause_s=pause_s, dropped=dropped)
            effects += [] if cursor is None else [KeepCursor(peer, cursor)]
        return effects

    def held_up(self, transaction: TxId, now_s: float) -> None:
        """An id waits for what peers list behind it: whoever listed it is read on."""
        for known in self._known.values():
            known.pull.held_up(transaction, now_s, pause_s=self.pause_s(self._limits.pull_interval_s))

    def let_go_of_stalled_pages(self, now_s: float) -> list[Effect]:
        """Pages of which nothing has been settled for long."""
        effects: list[Effect] = []
        for peer, known in self._known.items():
            cursor = known.pull.stalled(now_s, pause_s=self.pause_s(self._limits.pull_interval_s))
            effects += [] if cursor is None else [KeepCursor(peer, cursor)]
        return effects

    def unserved(self, peer: Peer, what: str, now_s: float) -> list[Effect]:
        """It did not serve what it had advertised."""
        self._known[peer].health.unserved(now_s)
        return [Notice(peer, Incident.UNSERVED, what)]

    def invalid(self, peer: Peer, detail: str) -> list[Effect]:
        """It sent what no honest server sends; after too much of it, it is banned (see ``take_banned``)."""
        effects: list[Effect] = [Notice(peer, Incident.INVALID, detail)]
        if self._known[peer].health.invalid():
            self._just_banned.append(peer)
            effects.append(Notice(peer, Incident.BANNED, f"{self._limits.banned_after} invalid messages"))
        return effects

    def take_banned(self) -> list[Peer]:
        """Who has been banned since this was last asked."""
        banned, self._just_banned = self._just_banned, []
        return banned
