"""Each author's newest update, approved or not, while it is inside the freshness window.

Nobody hides a model by naming it as a parent, and an average has as many models as the asker has peers that resemble
it. Beyond ``bounds.max_candidates`` those of the longest-standing authors are offered: who comes later, under however
many names, crowds nobody out. Kept up to date as updates come, so that a question costs as much as its answer
(docs/adr/0052).
"""

from bisect import bisect_left, insort
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from operator import attrgetter
from typing import Final

from fl_core.dag.genesis import Genesis
from fl_core.dag.graph import Graph, Node
from fl_core.selection.protocol import Candidate
from fl_core.types import AuthorId, TxId

_transaction_of: Final = attrgetter("transaction")


class Newest:
    """What of one graph can be offered; see ``CandidateRule`` for its methods."""

    def __init__(self, graph: Graph, genesis: Genesis) -> None:
        self._graph, self._window_ms, self._most = graph, genesis.window_ms, genesis.bounds.max_candidates
        self._eligible: dict[TxId, Candidate] = {}
        self._of_author: dict[AuthorId, TxId] = {}
        self._standing: dict[AuthorId, int] = {}
        self._ranking: list[tuple[int, AuthorId]] = []  # when an author was first heard of: the longest-standing first
        self._ages: list[tuple[int, TxId]] = []  # when an eligible update was received: the oldest first
        self._front: tuple[Candidate, ...] | None = ()

    @property
    def eligible(self) -> AbstractSet[TxId]:
        return self._eligible.keys()

    def admit(self, node: Node) -> tuple[TxId, ...]:
        """See ``CandidateRule.admit``."""
        self._front = None
        retired = [each for each in self._displaced_by(node) if self._retire(each)]
        newest = self._graph.newest_of(node.author)
        oldest_ms = self._graph.now_ms - self._window_ms
        if newest is not None and newest.received_at_ms >= oldest_ms and self._can_be_offered(newest):
            self._take(newest)
        stale = [transaction for _, transaction in self._ages[: bisect_left(self._ages, (oldest_ms,))]]
        for transaction in stale:
            self._retire(transaction)
        return tuple(each for each in (*retired, *stale) if each not in self._eligible)

    def _displaced_by(self, node: Node) -> Iterable[TxId]:
        """What may no longer be offered, or stands elsewhere, now that this node is here."""
        held = self._of_author.get(node.author)
        return () if held is None else (held,)

    def _can_be_offered(self, newest: Node) -> bool:  # noqa: ARG002 (rules that ask for more do)
        return True

    def _take(self, node: Node) -> None:
        author = node.author
        self._eligible[node.id] = Candidate(node.id, author, node.sequence, node.depth)
        self._of_author[author] = node.id
        self._standing[author] = self._graph.first_ms(author)
        insort(self._ranking, (self._standing[author], author))
        insort(self._ages, (node.received_at_ms, node.id))

    def _retire(self, transaction: TxId) -> bool:
        candidate = self._eligible.pop(transaction, None)
        if candidate is None:
            return False
        node = self._graph.get(transaction)
        assert node is not None, "what is eligible is in the graph"
        del self._of_author[node.author]
        del self._ranking[bisect_left(self._ranking, (self._standing.pop(node.author), node.author))]
        del self._ages[bisect_left(self._ages, (node.received_at_ms, transaction))]
        return True

    def own(self, author: AuthorId) -> TxId | None:
        """See ``CandidateRule.own``."""
        newest = self._graph.newest_of(author)
        return None if newest is None else newest.id

    def candidates(self, asker: AuthorId | None) -> tuple[Candidate, ...]:
        front = offered = self.front()
        own = None if asker is None else self._of_author.get(asker)
        if own is not None:
            place = bisect_left(front, own, key=_transaction_of)
            if place < len(front) and front[place].transaction == own:
                offered = front[:place] + front[place + 1 :]
        if len(offered) > self._most:
            last = self._ranking[len(front) - 1][1]
            offered = tuple(each for each in offered if each.author != last)
        return offered

    def front(self) -> tuple[Candidate, ...]:
        if self._front is None:
            first = [self._of_author[author] for _, author in self._ranking[: self._most + 1]]
            self._front = tuple(self._eligible[each] for each in sorted(first))
        return self._front
