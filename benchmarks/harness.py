"""What every benchmark shares: pinned threads, timing, the machine's description, and the result file.

Import it before NumPy: BLAS reads its thread count once, when it loads. A benchmark here never prints a bare
time: it measures a limit or a peer in the same run, in turn with the thing itself (``interleave``), and states
their ratio beside the target (``Ratio``). A busy machine is recorded, not refused: the load average stands in
the result before and after, with a calibration figure to tell a slow run from a slow program.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

PINNED = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1")
os.environ.update(PINNED)
# Installed programs have their bytecode. Where the environment forbids to keep it, a start would mostly compile.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import numpy as np  # noqa: E402  # after the pinning, which is the point of this module

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "results"
LIBRARIES = ("numpy", "safetensors", "sqlalchemy", "fastapi", "starlette", "uvicorn", "httptools", "uvloop", "urllib3")

SMALL_MODEL_VALUES = 101_770
"""Float32 values of the paper's MLP: 0.4 MB."""
LARGE_MODEL_VALUES = 3_260_266
"""Float32 values of the paper's MNIST CNN: 13 MB."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Wall-clock seconds of each repeat, in the order they ran."""

    all_s: tuple[float, ...]

    @property
    def min_s(self) -> float:
        return min(self.all_s)

    @property
    def median_s(self) -> float:
        return statistics.median(self.all_s)

    @property
    def max_s(self) -> float:
        return max(self.all_s)

    def as_json(self) -> dict[str, Any]:
        return {
            "min_s": self.min_s,
            "median_s": self.median_s,
            "max_s": self.max_s,
            "all_s": list(self.all_s),
        }


def measure(fn: Callable[[], object], *, repeats: int, warmup: int = 1) -> Timing:
    """Time ``fn`` ``repeats`` times after ``warmup`` calls that do not count."""
    return interleave({"it": fn}, repeats=repeats, warmup=warmup)["it"]


def interleave(work: Mapping[str, Callable[[], object]], *, repeats: int, warmup: int = 1) -> dict[str, Timing]:
    """Time each callable in turn, so that a disturbance of the machine meets all of them alike."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for repeat in range(-warmup, repeats):
        for name, call in work.items():
            start = time.perf_counter()
            call()
            taken = time.perf_counter() - start
            if repeat >= 0:
                times[name].append(taken)
    return {name: Timing(tuple(each)) for name, each in times.items()}


@dataclass(frozen=True, slots=True)
class Ratio:
    """A dimensionless figure, its target, and what stands above and below the line."""

    name: str
    value: float
    target: float
    direction: Literal["at least", "at most"]
    basis: str

    @property
    def is_met(self) -> bool:
        return self.value >= self.target if self.direction == "at least" else self.value <= self.target

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "value": round(self.value, 4),
            "target": self.target,
            "direction": self.direction,
            "is_met": self.is_met,
            "basis": self.basis,
        }


@dataclass(slots=True)
class Result:
    """One benchmark's outcome; ``write`` puts it at ``benchmarks/results/<name>.json`` and prints its ratios."""

    name: str
    what: str
    date: str
    timings: dict[str, Timing] = field(default_factory=dict)
    ratios: list[Ratio] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    before: dict[str, Any] = field(default_factory=lambda: {**load(), "calibration": calibrate()})

    def write(self, *, folder: Path = RESULTS) -> Path:
        document = {
            "name": self.name,
            "what": self.what,
            "date": self.date,
            "command": " ".join([Path(sys.executable).name, *(relative(each) for each in sys.argv)]),
            "commit": commit(),
            "machine": machine(folder),
            "before": self.before,
            "after": {**load(), "calibration": calibrate()},
            "ratios": [each.as_json() for each in self.ratios],
            "timings": {name: each.as_json() for name, each in self.timings.items()},
            "facts": self.facts,
        }
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.json"
        path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        self.show()
        return path

    def show(self) -> None:
        print(f"\n{self.what}")
        if self.timings:
            print_table(
                ("measured", "min ms", "median ms", "max ms", "n"),
                [
                    (name, f"{t.min_s * 1e3:.3f}", f"{t.median_s * 1e3:.3f}", f"{t.max_s * 1e3:.3f}", len(t.all_s))
                    for name, t in self.timings.items()
                ],
            )
        if self.ratios:
            print_table(
                ("ratio", "value", "target", "met", "basis"),
                [
                    (r.name, f"{r.value:.2f}", f"{r.direction} {r.target:g}", "yes" if r.is_met else "NO", r.basis)
                    for r in self.ratios
                ],
            )
        print(f"load average {self.before['load_average'][0]:.2f} before, {load()['load_average'][0]:.2f} after")


def p99(all_s: Sequence[float]) -> float:
    """The 99th percentile; the largest of fewer than a hundred."""
    return sorted(all_s)[min(len(all_s) - 1, int(0.99 * len(all_s)))]


def arguments(what: str) -> argparse.ArgumentParser:
    """A parser with ``--date``: the run's day is passed in, so that a repeated run can write the same file."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--date", default=f"{datetime.now(UTC):%Y-%m-%d}", help="day that the result is filed under")
    return parser


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Aligned columns on stdout: the first to the left, numbers to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(headings), *cells]) for i in range(len(headings))]
    is_number = [all(is_numeric(row[i]) for row in cells) for i in range(len(headings))]
    for row in [list(headings), ["-" * width for width in widths], *cells]:
        line = "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, is_number, strict=True)
        )
        print(line.rstrip())


def is_numeric(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def calibrate() -> dict[str, float]:
    """How fast this machine is at this moment, one thread: float32 products and plain Python, best of five."""
    rng = np.random.default_rng(0)
    left, right = rng.random((512, 512), dtype=np.float32), rng.random((512, 512), dtype=np.float32)
    product = measure(lambda: left @ right, repeats=5, warmup=2)
    loop = measure(lambda: sum(i & 7 for i in range(100_000)), repeats=5)
    return {
        "sgemm_gflops": round(2 * 512**3 / product.min_s / 1e9, 1),
        "python_million_steps_per_s": round(0.1 / loop.min_s, 2),
    }


def load() -> dict[str, Any]:
    """Load averages over 1, 5 and 15 minutes; empty where the system has none."""
    return {"load_average": [round(each, 2) for each in os.getloadavg()]}


def machine(folder: Path) -> dict[str, Any]:
    """Processor, cores, kernel, the disk under ``folder``, and versions of what is measured."""
    return {
        "cpu": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "disk": disk(folder),
        "python": platform.python_version(),
        "libraries": {name: version(name) for name in LIBRARIES},
        "threads": PINNED,
    }


def processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def disk(folder: Path) -> str:
    """File system type and device that hold ``folder`` (its nearest existing parent)."""
    while not folder.exists():
        folder = folder.parent
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return "unknown"
    best = ("", "unknown")
    for line in mounts.read_text(encoding="utf-8").splitlines():
        device, point, kind = line.split()[:3]
        if folder.resolve().is_relative_to(point) and len(point) > len(best[0]):
            best = (point, f"{kind} on {device}")
    return best[1]


def version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def commit() -> str | None:
    """The commit measured, with ``+changes`` where the tree differs, results apart; None outside a repository."""
    try:
        changes = git("status", "--porcelain", "--untracked-files=no", "--", ":!benchmarks/results")
        return git("rev-parse", "HEAD") + ("+changes" if changes else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def relative(argument: str) -> str:
    path = Path(argument).resolve()
    return str(path.relative_to(ROOT)) if path.exists() and path.is_relative_to(ROOT) else argument
