"""What every selector does alike: put candidates in order, and turn a cut into an answer."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fl_core.selection.protocol import Ranking, Selection, SelectionRequest
from fl_core.types import Vector64


def rank(scores: Vector64) -> NDArray[np.intp]:
    """Positions by falling score, shape ``(n,)``; equal scores keep their order.

    Requests list candidates by rising transaction id, so ties break by transaction id.
    """
    return np.argsort(-scores, kind="stable")


def answer(
    request: SelectionRequest,
    order: NDArray[np.intp],
    *,
    cut: int,
    rule: str,
    probabilities: Sequence[float] | Vector64 = (),
) -> Selection:
    """The selection that takes the first ``cut`` candidates of ``order``, as far as there is room.

    ``probabilities`` belong to the head of ``order`` and may be shorter than it. No candidate taken means
    that the client keeps its own model.
    """
    cut = min(cut, request.room, len(order))
    ranked = Ranking(
        request.candidates,
        request.similarities,
        request.update_similarities,
        order=order,
        cut=cut,
        probabilities=probabilities,
    )
    if cut == 0:
        return Selection((request.own_newest or request.genesis,), "own", rule, 0, ranked)
    chosen = {request.candidates[index].transaction for index in order[:cut]}
    if request.own_averaged is not None:
        chosen.add(request.own_averaged)
    return Selection(tuple(sorted(chosen)), "parents", rule, cut, ranked)
