"""DAG-ACFL's candidates: of what ``newest`` offers, the tips: who is named as a parent is offered no more.

Whoever averages a model hides it from the others, up to ``max_parents`` at once, and averages are of few models where
clients come one after another: for ledgers among friends, and for the papers' tables.

Source: DAG-ACFL, Sec. III-C.
"""

from collections.abc import Iterable

from fl_core.candidates.newest import Newest
from fl_core.dag.graph import Node
from fl_core.types import AuthorId, TxId


class Tips(Newest):
    """The tips of one graph that can be offered; see ``CandidateRule`` for its methods."""

    def _displaced_by(self, node: Node) -> Iterable[TxId]:
        return node.parents

    def _can_be_offered(self, newest: Node) -> bool:
        return super()._can_be_offered(newest) and self._graph.is_tip(newest.id)

    def own(self, author: AuthorId) -> TxId | None:
        """The author's newest while it is a tip."""
        newest = super().own(author)
        return newest if newest is not None and self._graph.is_tip(newest) else None
