"""Each author's newest update, approved or not, while it is inside the freshness window.

Nobody hides a model by naming it as a parent, and an average has as many models as the asker has peers that resemble
it. Of more than ``bounds.max_compared``, those are compared whose small sketches are most like the asker's
(docs/adr/0066). Beyond ``bounds.max_candidates`` the members take turns: in each, every member adds the
longest-standing of the authors that it has received updates of itself, by its own receipts. Who comes later, under
however many names, crowds nobody out, and no member, however it dates its receipts, takes more than its turns. Only
authors who may publish are ranked. Kept up to date as updates come, so that a question costs as much as its answer
(docs/adr/0052).
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from itertools import islice

from fl_core.dag.genesis import Genesis
from fl_core.dag.graph import Graph, Node
from fl_core.selection.protocol import Candidate
from fl_core.types import AuthorId, PublicKey, TxId


class Newest:
    """What of one graph can be offered; see ``CandidateRule`` for its methods."""

    def __init__(self, graph: Graph, genesis: Genesis) -> None:
        self._graph, self._window_ms = graph, genesis.window_ms
        self._most, self._bounds = genesis.bounds.max_candidates, genesis.bounds
        self._eligible: dict[TxId, Candidate] = {}
        self._of_author: dict[AuthorId, tuple[int, TxId]] = {}
        """When each one's eligible update was received, and which it is."""
        self._standing: dict[AuthorId, tuple[tuple[PublicKey | None, int], ...]] = {}
        self._rankings: defaultdict[PublicKey | None, list[tuple[int, AuthorId]]] = defaultdict(list)
        """Each member's authors and when it first heard of them: the longest-standing first."""
        self._ages: list[tuple[int, TxId]] = []  # the same, the oldest first
        self._front: dict[TxId, Candidate] | None = None

    @property
    def eligible(self) -> AbstractSet[TxId]:
        return self._eligible.keys()

    def admit(self, node: Node) -> tuple[TxId, ...]:
        """See ``CandidateRule.admit``."""
        retired = [parent for parent in self._displaced_by(node) if self._retire(parent)]
        # Also where one of its former names published: since when it stands follows from all of them.
        retired += self.reconsider(self._graph.author_list.current(node.author))
        stale = [transaction for _, transaction in self._ages[: bisect_left(self._ages, (self._oldest_ms,))]]
        for transaction in stale:
            self._retire(transaction)
        return tuple(each for each in (*retired, *stale) if each not in self._eligible)

    def reconsider(self, author: AuthorId) -> tuple[TxId, ...]:
        """See ``CandidateRule.reconsider``."""
        self._front = None
        held = self._of_author.get(author)
        if held is not None:
            self._retire(held[1])
        newest = self._graph.newest_of(author)
        if newest is not None and newest.received_at_ms >= self._oldest_ms and self._can_be_offered(newest):
            self._take(newest)
        return () if held is None or held[1] in self._eligible else (held[1],)

    @property
    def _oldest_ms(self) -> int:
        return self._graph.now_ms - self._window_ms

    def _displaced_by(self, node: Node) -> Iterable[TxId]:  # noqa: ARG002 (rules that hide more do)
        """Others' updates that may no longer be offered now that this node is here."""
        return ()

    def _can_be_offered(self, newest: Node) -> bool:
        return self._graph.author_list.allows(newest.author)

    def _take(self, node: Node) -> None:
        author = node.author
        self._eligible[node.id] = Candidate(node.id, author, node.sequence, node.depth)
        self._of_author[author] = received = node.received_at_ms, node.id
        self._standing[author] = self._graph.first_received(author)
        for member, since_ms in self._standing[author]:
            insort(self._rankings[member], (since_ms, author))
        insort(self._ages, received)

    def _retire(self, transaction: TxId) -> bool:
        candidate = self._eligible.pop(transaction, None)
        if candidate is None:
            return False
        author = candidate.author
        del self._ages[bisect_left(self._ages, self._of_author.pop(author))]
        for member, since_ms in self._standing.pop(author):
            ranking = self._rankings[member]
            del ranking[bisect_left(ranking, (since_ms, author))]
        return True

    def own(self, author: AuthorId) -> TxId | None:
        """See ``CandidateRule.own``."""
        newest = self._graph.newest_of(author)
        return None if newest is None else newest.id

    def candidates(self, asker: AuthorId | None, *, nearest: Iterable[TxId] | None = None) -> tuple[Candidate, ...]:
        """See ``CandidateRule.candidates``."""
        front = self.front()
        own = None if asker is None else self._of_author.get(asker)
        left_out = None if own is None else own[1]
        if left_out not in front and len(front) > self._most:
            left_out = next(reversed(front))
        if nearest is None or len(front) - (left_out in front) <= self._bounds.max_compared:
            return tuple(front[each] for each in sorted(front) if each != left_out)
        offered = (each for each in nearest if each in front and each != left_out)
        return tuple(front[each] for each in sorted(islice(offered, self._bounds.shortlist)))

    def front(self) -> dict[TxId, Candidate]:
        """See ``CandidateRule.front``."""
        if len(self._of_author) <= self._most:  # nobody has to be left out
            return self._eligible
        if self._front is None:
            newest = [self._of_author[author][1] for author in self._first_in_turn(self._most + 1)]
            self._front = {each: self._eligible[each] for each in newest}
        return self._front

    def _first_in_turn(self, most: int) -> list[AuthorId]:
        """The authors whose turn comes first: by the best place that a member gives each, then by id."""
        turns = [
            (place, author) for ranking in self._rankings.values() for place, (_, author) in enumerate(ranking[:most])
        ]
        return [*dict.fromkeys([author for _, author in sorted(turns)])][:most]
