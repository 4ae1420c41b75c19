"""What the rules that look for a change of update similarity share: which change counts, and who is too unlike.

A rule names places where the falling sequence of update similarities may change; how it finds them is its own
business. From there all of them go the same way, so that they differ in the search alone and can be compared:

1. Only the head of the ranking is searched (``head_of``): a cut beyond ``max_selected`` cannot matter.
2. Where no drop could part clusters nothing is searched (``may_change``).
3. Of the places named, the first counts whose drop is large enough, also beside the others' (``first_large``).
4. The candidates before it are taken, at least ``min_tips``; none whose update similarity is below the floor. Where
   that leaves none a lower floor holds, if the ledger has one; else the client keeps its own model (``answer_before``).

The defaults were measured for ``beast`` (ADR 0004); what the lower floor is for, ADR 0074 says.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fl_core.parameters import parameter
from fl_core.selection.change_points import MIN_LENGTH
from fl_core.selection.protocol import Selection, SelectionRequest
from fl_core.selection.ranking import answer, rank
from fl_core.types import Vector64

MIN_HEAD: Final = 64


@dataclass(frozen=True)
class FilterParams:
    """The parameters of these filters, for rules that add theirs."""

    min_tips: int = parameter(
        1, at_least=1, at_most=10_000, doc="Tips to take when the change comes earlier (DAG-ACFL's nt)."
    )
    gap_filter: float = parameter(
        0.3,
        at_least=0.0,
        at_most=1.0,
        doc="Share of the largest drop at a change that a change's own drop must reach; 0 is no filter.",
    )
    min_drop: float = parameter(
        0.05, at_least=0.0, at_most=2.0, doc="Smallest drop of update similarity that can part clusters."
    )
    min_update_similarity: float = parameter(
        0.5,
        at_least=-1.0,
        at_most=1.0,
        doc="Update similarity below which a tip is foreign; -1 never keeps the own model.",
    )
    min_update_similarity_alone: float = parameter(
        1.0,
        at_least=-1.0,
        at_most=1.0,
        doc="Update similarity that suffices where nobody reaches min_update_similarity; 1 is none.",
    )


def head_of(scores: Vector64, order: NDArray[np.intp], *, max_selected: int) -> Vector64:
    """The part of the ranked scores that is searched for a change: twice ``max_selected``, at least 64."""
    return scores[order[: max(MIN_HEAD, 2 * max_selected)]]


def may_change(head: Vector64, *, min_drop: float) -> bool:
    """False where no rule could find a change that counts.

    That is: fewer than 3 values (between two the floor decides), all of them the same, or no drop of ``min_drop``.
    """
    return len(head) >= MIN_LENGTH and bool(head[0] != head[-1]) and float(np.max(head[:-1] - head[1:])) >= min_drop


def first_large(ranked: Vector64, places: NDArray[np.intp], *, gap_filter: float, min_drop: float) -> int | None:
    """How many elements stand before the first place whose drop is large enough; None when there is none.

    Args:
        ranked: Values in falling order, shape ``(n,)``.
        places: Rising indices in 1..n-1, shape ``(m,)``; a place i has i elements before it.
        gap_filter: The drop from i - 1 to i is at least this share of the largest drop at any of the places.
        min_drop: And at least this.
    """
    drops = ranked[places - 1] - ranked[places]
    least = max(min_drop, gap_filter * float(drops.max(initial=0.0)))
    large = places[drops >= least]
    return int(large[0]) if len(large) else None


def choose_by_change(
    request: SelectionRequest, params: FilterParams, *, places: Callable[[Vector64], NDArray[np.intp]], rule: str
) -> Selection:
    """Rank by update similarity, cut at the first place in the head that counts; see ``answer_before``."""
    order = rank(request.update_similarities)
    head = head_of(request.update_similarities, order, max_selected=request.max_selected)
    change = None
    if may_change(head, min_drop=params.min_drop):
        change = first_large(head, places(head), gap_filter=params.gap_filter, min_drop=params.min_drop)
    return answer_before(request, order, params, change=change, rule=rule)


def answer_before(
    request: SelectionRequest,
    order: NDArray[np.intp],
    params: FilterParams,
    *,
    change: int | None,
    rule: str,
    probabilities: Sequence[float] | Vector64 = (),
) -> Selection:
    """The selection that takes the candidates before ``change``, all of them where it is None.

    At least ``min_tips``, and none below ``min_update_similarity`` or, where nobody reaches that, below
    ``min_update_similarity_alone``. ``order`` is by update similarity. ``rule`` is the first word of what is said about
    the decision, as in ``robust: change point``.
    """
    alike = int(np.count_nonzero(request.update_similarities >= params.min_update_similarity))
    alone = alike == 0
    if alone:
        alike = int(np.count_nonzero(request.update_similarities >= params.min_update_similarity_alone))
    cut = len(order) if change is None else max(change, params.min_tips)
    if len(order) == 0:
        decided = "no candidate"
    elif alike == 0:
        decided = "resembles nobody"
    elif alone:
        decided = "lower floor"
    elif cut > alike:
        decided = "similarity floor"
    else:
        decided = "no change" if change is None else "change point"
    return answer(request, order, cut=min(cut, alike), rule=f"{rule}: {decided}", probabilities=probabilities)
