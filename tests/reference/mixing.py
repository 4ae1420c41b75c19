"""Naive twins of mixing: the papers' formulas, entry by entry, over dictionaries."""

Arcs = dict[tuple[int, int], float]
"""Weight of each arc; ``(i, j)`` says that i hears j."""


def metropolis_hastings(count: int, arcs: Arcs) -> list[list[float]]:
    """W of D-Cliques, Eq. (metro)."""

    def degree(i: int) -> int:
        return sum(a == i for a, _ in arcs)

    w = [[0.0] * count for _ in range(count)]
    for i in range(count):
        for j in range(count):
            if (i, j) in arcs:
                w[i][j] = 1 / (max(degree(i), degree(j)) + 1)
        w[i][i] = 1 - sum(w[i][j] for j in range(count) if j != i)
    return w


def decentralised_average(count: int, arcs: Arcs, examples: list[int], *, include_self: bool) -> list[list[float]]:
    """DecDiff, Eq. (6), and with the node itself among its neighbours Eq. (4), normalised."""
    w = [[0.0] * count for _ in range(count)]
    for i in range(count):
        omega = {j: weight for (a, j), weight in arcs.items() if a == i}
        if include_self:
            omega[i] = 1.0
        total = sum(examples[j] for j in omega)
        p = {j: examples[j] / total if total else 0.0 for j in omega}
        norm = sum(omega[j] * p[j] for j in omega)
        if norm == 0:
            w[i][i] = 1.0
        for j, weight in omega.items():
            if norm > 0:
                w[i][j] = weight * p[j] / norm
    return w


def mix(w: list[list[float]], models: list[list[float]]) -> list[list[float]]:
    """Every node's weighted sum of all models."""
    return [[sum(w[i][j] * models[j][k] for j in range(len(w))) for k in range(len(models[0]))] for i in range(len(w))]
