"""DAG-ACFL's candidates: tips, while each is its author's newest update and inside the freshness window.

Beyond ``bounds.max_candidates`` the deepest are offered. Kept up to date as updates come, so that a question costs as
much as its answer, however many tips have piled up below (docs/adr/0015).

Source: DAG-ACFL, Sec. III-C.
"""

from bisect import bisect_left, insort
from collections.abc import Set as AbstractSet
from operator import attrgetter
from typing import Final

from fl_core.dag.genesis import Genesis
from fl_core.dag.graph import Graph, Node
from fl_core.selection.protocol import Candidate
from fl_core.types import AuthorId, TxId

_transaction_of: Final = attrgetter("transaction")


def oldest_fresh_depth(graph: Graph, genesis: Genesis) -> int:
    """The least depth inside the freshness window; at least 1, as genesis is nobody's trained model."""
    return max(graph.deepest - genesis.window_generations, 1)


class Tips:
    """The tips of one graph that can be offered; see ``CandidateRule`` for its methods."""

    def __init__(self, graph: Graph, genesis: Genesis) -> None:
        self._graph, self._genesis = graph, genesis
        self._eligible: dict[TxId, Candidate] = {}
        self._of_author: dict[AuthorId, TxId] = {}
        self._ranking: list[tuple[int, TxId]] = []  # (-depth, id) of the eligible: the deepest first, then by id
        self._front: tuple[Candidate, ...] | None = ()

    @property
    def eligible(self) -> AbstractSet[TxId]:
        return self._eligible.keys()

    def admit(self, node: Node) -> tuple[TxId, ...]:
        """See ``CandidateRule.admit``: an update is approved, superseded by its author's newer one, or stale."""
        retired = [parent for parent in node.parents if self._retire(parent)]
        oldest = oldest_fresh_depth(self._graph, self._genesis)
        if self._graph.newest_of(node.author) is node:
            before = self._of_author.get(node.author)
            if before is not None and self._retire(before):
                retired.append(before)
            if node.depth >= oldest:
                self._eligible[node.id] = Candidate(node.id, node.author, node.sequence, node.depth)
                self._of_author[node.author] = node.id
                insort(self._ranking, (-node.depth, node.id))
        first_stale = bisect_left(self._ranking, (1 - oldest,))
        stale = [transaction for _, transaction in self._ranking[first_stale:]]
        del self._ranking[first_stale:]
        for transaction in stale:
            del self._of_author[self._eligible.pop(transaction).author]
        self._front = None
        return (*retired, *stale)

    def _retire(self, transaction: TxId) -> bool:
        candidate = self._eligible.pop(transaction, None)
        if candidate is None:
            return False
        del self._of_author[candidate.author]
        del self._ranking[bisect_left(self._ranking, (-candidate.depth, transaction))]
        return True

    def candidates(self, asker: AuthorId | None) -> tuple[Candidate, ...]:
        front = offered = self.front()
        own = None if asker is None else self._of_author.get(asker)
        if own is not None:
            place = bisect_left(front, own, key=_transaction_of)
            if place < len(front) and front[place].transaction == own:
                offered = front[:place] + front[place + 1 :]
        if len(offered) > self._genesis.bounds.max_candidates:
            last = self._ranking[len(front) - 1][1]
            offered = tuple(each for each in offered if each.transaction != last)
        return offered

    def front(self) -> tuple[Candidate, ...]:
        if self._front is None:
            ranked = self._ranking[: self._genesis.bounds.max_candidates + 1]
            self._front = tuple(self._eligible[each] for each in sorted(transaction for _, transaction in ranked))
        return self._front
