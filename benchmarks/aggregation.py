"""FedAvg of 30 models of 13 MB against the time that reading those bytes takes on this machine.

The limit is measured in the same run, interleaved, with the same number of threads: reading every value of
every model once, by the fastest of three ways that NumPy has (maximum, sum, copy into a cached block). BLAS
(a matrix-vector product over the stacked models) is measured beside it as information: it is not
byte-identical between CPUs. Writes ``benchmarks/results/aggregation.json``.

    OMP_NUM_THREADS=1 python benchmarks/aggregation.py
"""

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy: gemv is measured with one thread
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from fl_core.aggregation import ArraySource, FedAvg
from fl_core.aggregation.fedavg import BLOCK
from fl_core.types import Vector32

MODELS = 30
VALUES = 13_000_000 // 4
REPEATS = 21
TARGET = 0.6
OUT = Path(__file__).resolve().parent / "results" / "aggregation.json"


def main() -> None:
    rng = np.random.default_rng(7)
    stacked = rng.standard_normal((MODELS, VALUES), dtype=np.float32)
    weights = [float(each) for each in rng.integers(20, 80, MODELS)]
    sources = [ArraySource(row) for row in stacked]
    normalised = (np.array(weights) / sum(weights)).astype(np.float32)
    results: dict[str, Any] = {}
    for threads in (1, 2):
        fedavg = FedAvg(threads=threads)
        with ThreadPoolExecutor(threads) as pool:
            work: dict[str, Callable[[], object]] = {
                "fedavg": lambda f=fedavg: f.aggregate(sources, weights),
                "read_maximum": lambda p=pool, t=threads: split(p, t, read_maximum, stacked),
                "read_sum": lambda p=pool, t=threads: split(p, t, read_sum, stacked),
                "read_copy": lambda p=pool, t=threads: split(p, t, read_copy, stacked),
            }
            if threads == 1:
                work["blas_gemv"] = lambda: normalised @ stacked
            times = interleaved(work)
        limit = min(times[name]["min_ms"] for name in times if name.startswith("read_"))
        limit_median = min(times[name]["median_ms"] for name in times if name.startswith("read_"))
        results[f"threads_{threads}"] = {
            **times,
            "limit_ms": limit,
            "share_of_limit": round(limit / times["fedavg"]["min_ms"], 3),
            "share_of_limit_by_medians": round(limit_median / times["fedavg"]["median_ms"], 3),
        }
    document = {
        "what": f"FedAvg of {MODELS} float32 models of {VALUES * 4:,} bytes, weighted by examples",
        "target": f"at least {TARGET:.0%} of the read limit at the same number of threads",
        "repeats": REPEATS,
        "machine": machine(),
        "results": results,
    }
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    for name, result in results.items():
        taken, limit, share = result["fedavg"]["min_ms"], result["limit_ms"], result["share_of_limit"]
        print(f"{name}: {taken} ms, limit {limit} ms, share {share}")


def interleaved(work: dict[str, Callable[[], object]]) -> dict[str, dict[str, float]]:
    """Times of each, measured in turn so that a disturbance meets all of them."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(REPEATS):
        for name, call in work.items():
            start = time.perf_counter()
            call()
            times[name].append((time.perf_counter() - start) * 1e3)
    return {
        name: {
            "min_ms": round(min(each), 2),
            "median_ms": round(statistics.median(each), 2),
            "p90_ms": round(sorted(each)[int(0.9 * len(each))], 2),
        }
        for name, each in times.items()
    }


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


def machine() -> dict[str, object]:
    model = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text(encoding="utf-8").splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "load_before": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


if __name__ == "__main__":
    main()
