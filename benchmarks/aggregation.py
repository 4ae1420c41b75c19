"""FedAvg of 30 models of 13 MB against the time that reading those bytes takes on this machine.

The limit is measured in the same run, interleaved, with the same number of threads: reading every value of
every model once, by the fastest of three ways that NumPy has (maximum, sum, copy into a cached block). BLAS
(a matrix-vector product over the stacked models) is measured beside it as information: it is not
byte-identical between CPUs. Writes ``benchmarks/results/aggregation.json``.

    python benchmarks/aggregation.py
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise

import harness
import numpy as np

from fl_core.aggregation import ArraySource, FedAvg
from fl_core.aggregation.fedavg import BLOCK
from fl_core.aggregation.span_pool import SpanPool
from fl_core.types import Vector32

MODELS = 30
VALUES = 13_000_000 // 4
TARGET = 0.6


def main() -> None:
    parser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=21)
    options = parser.parse_args()
    result = harness.Result("aggregation", f"FedAvg of {MODELS} models of {VALUES * 4:,} bytes", options.date)
    rng = np.random.default_rng(7)
    stacked = rng.standard_normal((MODELS, VALUES), dtype=np.float32)
    weights = [float(each) for each in rng.integers(20, 80, MODELS)]
    sources = [ArraySource(row) for row in stacked]
    normalised = (np.array(weights) / sum(weights)).astype(np.float32)
    for threads in (1, 2):
        fedavg = FedAvg(pool=SpanPool(threads))
        reads = {"maximum": read_maximum, "sum": read_sum, "copy": read_copy}
        with ThreadPoolExecutor(threads) as pool:
            work: dict[str, Callable[[], object]] = {
                "fedavg": partial(fedavg.aggregate, sources, weights),
                **{f"read by {how}": partial(split, pool, threads, read, stacked) for how, read in reads.items()},
            }
            if threads == 1:
                work["BLAS gemv, for information"] = lambda: normalised @ stacked
            times = harness.interleave(work, repeats=options.repeats, warmup=2)
        suffix = f", {threads} thread{'s' * (threads > 1)}"
        result.timings |= {f"{name}{suffix}": timing for name, timing in times.items()}
        limit = min((times[f"read by {how}"] for how in reads), key=lambda timing: timing.median_s)
        result.ratios.append(
            harness.Ratio(
                f"share of the read limit{suffix}",
                limit.median_s / times["fedavg"].median_s,
                TARGET,
                "at least",
                "p50 of the fastest read / of FedAvg, same number of threads",
            )
        )
    print(result.write())


def split(pool: ThreadPoolExecutor, threads: int, read: Callable[[Vector32], None], stacked: Vector32) -> None:
    edges = [VALUES * part // threads for part in range(threads + 1)]
    parts = [pool.submit(read, stacked[:, low:high]) for low, high in pairwise(edges)]
    for part in parts:
        part.result()


def read_maximum(rows: Vector32) -> None:
    for row in rows:
        np.maximum.reduce(row)


def read_sum(rows: Vector32) -> None:
    for row in rows:
        np.add.reduce(row)


def read_copy(rows: Vector32) -> None:
    block = np.empty(BLOCK, dtype=np.float32)
    for row in rows:
        for low in range(0, len(row), BLOCK):
            piece = row[low : low + BLOCK]
            np.copyto(block[: len(piece)], piece)


if __name__ == "__main__":
    main()
