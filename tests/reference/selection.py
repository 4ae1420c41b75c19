"""Algorithms 2 and 3 once more, in plain lists and loops: what the fast versions must agree with."""

from collections.abc import Sequence


def top_k(ids: Sequence[str], similarities: Sequence[float], k: int, room: int) -> set[str]:
    """Algorithm 2."""
    ranked = sorted(zip(ids, similarities, strict=True), key=lambda pair: (-pair[1], pair[0]))
    return {name for name, _ in ranked[: min(k, room)]}


def literal_index(confidence: Sequence[float], alpha: float, nt: int) -> int:
    """Algorithm 3, lines 9-17, with a 0-based index."""
    index = 0
    for i in range(len(confidence)):
        if confidence[i] > alpha:
            index = i
            break
    return max(index, nt)


def robust_cut(
    ranked: Sequence[float],
    confidence: Sequence[float],
    *,
    alpha: float,
    beta: float,
    least: float,
    nt: int,
    floor: float,
) -> int:
    """Our rule: the first change whose drop is large, also among the changes, never below the floor."""
    changes = [i for i in range(1, len(confidence)) if confidence[i] > alpha]
    largest = max((ranked[i - 1] - ranked[i] for i in changes), default=0.0)
    cut = len(ranked)
    for i in changes:
        drop = ranked[i - 1] - ranked[i]
        if drop >= beta * largest and drop >= least:
            cut = max(i, nt)
            break
    while cut > len(ranked) or (cut > 0 and ranked[cut - 1] < floor):
        cut -= 1
    return cut
