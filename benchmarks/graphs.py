"""Mixing 1,000 linear models on a D-Cliques graph against memory bandwidth, and the time to construct that graph.

The limit is measured in the same run, interleaved, with one thread: reading every value of an array that no cache
holds, by the faster of two ways. Two accountings of the bytes that mixing touches stand beside each other:

* rows read: every weight asks for one model, 4 bytes a value. This is what the kernel loads, and what the target is
  held against; it may exceed 1, since blocks of columns stay in a core's cache between weights.
* compulsory: every model read once and written once, which no kernel can avoid.

Other ways to mix (torch's sparse matrices, a dense product) are measured beside it as information. Construction
is the paper's: greedy, complete between cliques; swaps, for skewed nodes, stand beside it. Writes
``benchmarks/results/graphs.json``. Each entry of ``PARTS`` adds to the one result.

    python benchmarks/graphs.py
"""

import time
import warnings
from collections.abc import Callable
from itertools import cycle

import harness
import numpy as np
from numpy.typing import NDArray

from fl_core.types import JsonScalar
from fl_simulator.graphs import mixing
from fl_simulator.graphs.graph import Graph
from fl_simulator.graphs.topology import build_graph

NODES = 1000
CLASSES = 10
VALUES = 7850
"""Of the paper's logistic regression on MNIST: 784 weights and a bias for each of ten classes."""
MEMORY_VALUES = 64 * 2**20
BLOCK = 1 << 16
TARGET_BANDWIDTH = 0.5
TARGET_CONSTRUCTION_S = 1.0


def main() -> None:
    parser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    what = f"Mixing {NODES:,} models of {VALUES:,} values on a D-Cliques graph, and constructing it"
    result = harness.Result("graphs", what, options.date)
    for part in PARTS:
        part(result, options.repeats)
    print(result.write())


def mix_models(result: harness.Result, repeats: int) -> None:
    import torch

    graph = constructed(one_class_each())()
    matrix = mixing.metropolis_hastings(graph)
    models = np.random.default_rng(7).standard_normal((NODES, VALUES), dtype=np.float32)
    memory = np.ones(MEMORY_VALUES, dtype=np.float32)
    rows = torch.from_numpy(models)
    weights = torch.from_numpy(matrix.values.astype(np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch: sparse matrices are in beta
        sparse = torch.sparse_csr_tensor(
            torch.from_numpy(matrix.offsets), torch.from_numpy(matrix.columns), weights, (NODES, NODES)
        )
    dense = torch.from_numpy(matrix.dense().astype(np.float32))
    work: dict[str, Callable[[], object]] = {
        "mix": lambda: mixing.mix(matrix, models),
        "read by maximum": lambda: np.maximum.reduce(memory),
        "read by copy": lambda: read_copy(memory),
        "torch sparse matrix, for information": lambda: sparse @ rows,
        "torch dense product, for information": lambda: dense @ rows,
    }
    times = harness.interleave(work, repeats=repeats, warmup=2)
    result.timings |= times
    limit = min((times["read by maximum"], times["read by copy"]), key=lambda timing: timing.median_s)
    bandwidth = memory.nbytes / limit.median_s
    touched = {"rows read": len(matrix.values) * VALUES * 4, "compulsory": 2 * models.nbytes}
    reached = {name: nbytes / times["mix"].median_s for name, nbytes in touched.items()}
    result.facts |= {
        "edges_per_node": graph.edges_per_node,
        "weights": len(matrix.values),
        "bytes": touched,
        "memory_bandwidth_gb_per_s": round(bandwidth / 1e9, 1),
        "mix_gb_per_s": {name: round(each / 1e9, 1) for name, each in reached.items()},
        "share_of_bandwidth_by_compulsory_bytes": round(reached["compulsory"] / bandwidth, 3),
    }
    result.ratios.append(
        harness.Ratio(
            "mixing, share of memory bandwidth",
            reached["rows read"] / bandwidth,
            TARGET_BANDWIDTH,
            "at least",
            "bytes of the rows read for all weights, per p50 second / bytes per p50 second of reading 256 MiB",
        )
    )


def construct(result: harness.Result, repeats: int) -> None:
    rng = np.random.default_rng(3)
    skewed = np.array([rng.multinomial(45, rng.dirichlet([0.3] * CLASSES)) for _ in range(NODES)])
    work = {
        "D-Cliques construction": constructed(one_class_each()),
        "D-Cliques by swaps, one class a node": constructed(one_class_each(), construction="greedy-swap"),
        "D-Cliques by swaps, Dirichlet 0.3": constructed(skewed, construction="greedy-swap"),
    }
    times = harness.interleave(work, repeats=max(3, repeats // 3))
    result.timings |= times
    # A core's seconds, which others on the machine stretch less than the clock's.
    result.facts["core_s"] = {name: round(core_seconds(call), 3) for name, call in work.items()}
    result.ratios += [
        harness.Ratio(f"{name}, seconds", timing.median_s, TARGET_CONSTRUCTION_S, "at most", "p50, graph and all")
        for name, timing in times.items()
    ]


def core_seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def constructed(label_counts: NDArray[np.int64], **params: JsonScalar) -> Callable[[], Graph]:
    """A call that builds the graph, with another seed each time."""
    count, seeds = len(label_counts), cycle(range(100))
    return lambda: build_graph(
        "d-cliques", params, count=count, rng=np.random.default_rng(next(seeds)), label_counts=label_counts
    )


def one_class_each() -> NDArray[np.int64]:
    """The paper's nodes: 45 samples of one class, every class on as many nodes."""
    labels = np.random.default_rng(1).permutation(np.arange(NODES) % CLASSES)
    counts: NDArray[np.int64] = np.eye(CLASSES, dtype=np.int64)[labels] * 45
    return counts


def read_copy(memory: NDArray[np.float32]) -> None:
    block = np.empty(BLOCK, dtype=np.float32)
    for low in range(0, len(memory), BLOCK):
        np.copyto(block, memory[low : low + BLOCK])


PARTS: tuple[Callable[[harness.Result, int], None], ...] = (mix_models, construct)

if __name__ == "__main__":
    main()
