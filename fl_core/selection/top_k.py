"""The k most similar tips (DAG-ACFL, Algorithm 2): for federations whose cluster size is known.

DAG-ACFL's number of tips counts all tips, and a client's own is always the first of them; here ``k``
counts other clients' tips, because the own tip stays out of the ranking. Nothing keeps a client from
being given a foreign cluster's model when its own cluster has no tip: that is what ``beast`` adds.
"""

from dataclasses import dataclass, field

from fl_core.parameters import parameter
from fl_core.selection.protocol import Selection, SelectionRequest
from fl_core.selection.ranking import answer, rank


@dataclass(frozen=True, slots=True)
class TopKParams:
    k: int = parameter(5, at_least=1, at_most=10_000, doc="Other clients' tips to take (DAG-ACFL's nt, Alg. 2).")


@dataclass(frozen=True, slots=True)
class TopK:
    """Takes the ``k`` candidates of highest cosine similarity (Eq. 5)."""

    params: TopKParams = field(default_factory=TopKParams)
    name: str = "top-k"

    def choose(self, request: SelectionRequest) -> Selection:
        """Rank by Eq. 5 and take ``k``, as far as there are so many and there is room."""
        return answer(request, rank(request.similarities), cut=self.params.k, rule="top-k")
