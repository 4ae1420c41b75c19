"""v_steady of graphs of 100,000 nodes: in closed form, by detailed balance, and by power iteration.

Barabási-Albert graphs of mean degree 16 and the same with a fifth of the arcs taken away, so that it is directed; and
the longest way round, a ring weighted by amounts of data, which power iteration would not finish. Held against the
targets in seconds, and against sorting the graph's arcs once, which any of them must at least afford.

    python benchmarks/steady_state.py
"""

import time
from collections.abc import Callable

import harness
import numpy as np

from fl_simulator.graphs.gain.steady_state import averaging_matrix, power_iteration, steady_state
from fl_simulator.graphs.graph import Graph
from fl_simulator.graphs.mixing import decentralised_average

NODES = 100_000
NEIGHBOURS = 8
TARGET_S = 2.0


def attached(nodes: int, each: int, *, seed: int = 0) -> Graph:
    """Preferential attachment: each new node draws its neighbours among ends of the edges that there are."""
    rng = np.random.default_rng(seed)
    ends = np.empty(2 * each * nodes, dtype=np.int64)
    edges: set[tuple[int, int]] = {(0, other) for other in range(1, each + 1)}
    filled = 2 * len(edges)
    ends[:filled] = np.array(sorted(edges)).ravel()
    for node in range(each + 1, nodes):
        chosen: set[int] = set()
        while len(chosen) < each:
            chosen.update(ends[rng.integers(filled, size=each - len(chosen))].tolist())
        for other in sorted(chosen):
            edges.add((other, node))
            ends[filled : filled + 2] = other, node
            filled += 2
    return Graph.from_edges(nodes, np.array(sorted(edges)))


def main() -> None:
    parser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    result = harness.Result("steady_state", f"v_steady of graphs of {NODES:,} nodes", options.date)
    graph = attached(NODES, NEIGHBOURS)
    rng = np.random.default_rng(1)
    matrix = averaging_matrix(graph)
    ring = Graph.from_edges(NODES, [(node, (node + 1) % NODES) for node in range(NODES)])
    by_data = decentralised_average(ring, rng.integers(1, 600, NODES), include_self=True)
    keys = graph.sources * NODES + graph.targets
    work: dict[str, Callable[[], object]] = {
        "preferential attachment": lambda: steady_state(matrix),
        "ring by amounts of data": lambda: steady_state(by_data),
        "sorting the arcs": lambda: np.argsort(keys, kind="stable"),
    }
    result.timings = harness.interleave(work, repeats=options.repeats)
    result.ratios = [
        harness.Ratio(f"{name}, s", result.timings[name].median_s, TARGET_S, "at most", "median seconds")
        for name in work
        if name != "sorting the arcs"
    ]
    closed = (graph.degrees + 1) / (graph.degrees + 1).sum()
    cpu_s = {}
    for name, call in work.items():  # what a busy machine's clock hides
        begun = time.process_time()
        call()
        cpu_s[name] = round(time.process_time() - begun, 3)
    result.facts = {
        "arcs": {"preferential attachment": graph.num_arcs, "ring": ring.num_arcs},
        "sum_of_differences_to_closed_form": {
            "steady_state": float(np.abs(steady_state(matrix) - closed).sum()),
            "power iteration": float(np.abs(power_iteration(matrix) - closed).sum()),
        },
        "cpu_s": cpu_s,
        "in_sortings": {
            name: round(timing.median_s / result.timings["sorting the arcs"].median_s, 2)
            for name, timing in result.timings.items()
        },
    }
    print(result.write())


if __name__ == "__main__":
    main()
