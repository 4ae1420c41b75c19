"""Selections and memory with 10,000 lazy tips on genesis, against 1,000 and against 100.

A lazy tip is an unsigned client that joins on genesis once and is never seen again: the way in which tips pile up. Each
pile is published by the service's own way into a database of its own, by a process that ends; another process then
opens it as a server starts, and measures: the time to start, selections by fifty authors drawn from all over the pile,
in turn (a first question reads the asker's model, in a small pile from memory; it is left out), and its own resident
memory, first with the pile as it is and then after rounds that approve 64 tips each, so that others
come in for them. Models have 20,000 values, all compared; the selector is top-k, as BEAST would cost the same in each.

What is compared at once is bounded by genesis's ``max_candidates`` (1,000 here), so 10,000 tips may cost what
1,000 do, and 1,000 cost ten times the comparison that 100 do.

    python benchmarks/tip_pile.py
"""

import argparse
import itertools
import json
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import harness
import numpy as np
from built_ledger import DIMENSIONS, LAYOUT, Models, new_ledger, serving

from fl_core.models import encode_flat
from fl_core.node import Publication
from fl_core.types import TxId
from ledger_server.publishing import LedgerService

PILES = (100, 1_000, 10_000)
ROUNDS = 10
ASKERS = 50
TARGET_LATENCY, TARGET_MEMORY = 1.2, 1.2
"""Of 10,000 tips against 1,000: beyond the bound nothing may grow."""
MB = 1_000_000


def noisy(rng: np.random.Generator, centre: Any) -> bytes:
    return encode_flat(LAYOUT, centre + np.float32(0.3) * rng.standard_normal(DIMENSIONS, dtype=np.float32))


def pile_up(file: Path, tips: int) -> None:
    """Publish the lazy tips, each under a name of its own."""
    models, rng = Models.of(10, clusters=10), np.random.default_rng(5)
    with serving(file) as service:
        for number in range(tips):
            publication = Publication(num_examples=100, parents=(service.id,), secret=secrets.token_hex(32))
            service.publish(publication, noisy(rng, models.clients[number % 10]))


def measure(file: Path, *, repeats: int) -> dict[str, Any]:
    """What a server that starts on this pile needs."""
    start = time.perf_counter()
    with serving(file) as service:
        started_s = time.perf_counter() - start
        tips = [*service.tips()[1]]
        rng = np.random.default_rng(7)
        asking = [tips[number] for number in rng.integers(len(tips), size=ASKERS)]
        figures: dict[str, Any] = {"tips": len(tips), "start_s": round(started_s, 3)}
        figures["rss_at_start_MB"] = resident_mb()
        figures["selection_s"] = timed(service, asking, repeats)
        figures["rss_MB"] = resident_mb()
        approve(service)
        left = [*service.tips()[1]]
        figures["tips_after_rounds"] = len(left)
        asking = [left[number] for number in rng.integers(len(left), size=ASKERS)]
        figures["selection_after_rounds_s"] = timed(service, asking, repeats)
        figures["rss_after_rounds_MB"] = resident_mb()
        figures["rows"] = len(service.node._vectors)  # noqa: SLF001 -- what the figure is about
    return figures


def timed(service: LedgerService, asking: list[TxId], repeats: int) -> list[float]:
    """Seconds of each selection, the first of each asker left out."""
    taken = []
    for transaction in itertools.islice(itertools.cycle(asking), len(asking) + repeats):
        start = time.perf_counter()
        service.selections.select_for(transaction)
        taken.append(time.perf_counter() - start)
    return taken[len(asking) :]


def approve(service: LedgerService) -> None:
    """One author goes on for some rounds, on as many tips as one publication may approve."""
    rng, secret = np.random.default_rng(9), secrets.token_hex(32)
    newest = service.id
    for _ in range(ROUNDS):
        if newest == service.id:
            publication = Publication(num_examples=100, parents=(newest,), secret=secret)
        else:
            selection, _ = service.selections.select_for(newest)
            publication = Publication(num_examples=100, selection=selection.id, secret=secret)
        newest = service.publish(publication, noisy(rng, np.zeros(DIMENSIONS, np.float32))).transaction


def resident_mb() -> float:
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines())
    return round(int(fields["VmRSS"].split()[0]) * 1024 / MB, 1)


def child(step: str, file: Path, number: int) -> str:
    command = [sys.executable, __file__, "--step", step, "--file", str(file), "--number", str(number)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=600).stdout


def main() -> None:
    parser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the databases go")
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--step", choices=("pile", "measure"), help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--number", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step == "pile":
        pile_up(options.file, options.number)
        return
    if options.step == "measure":
        print(json.dumps(measure(options.file, repeats=options.number)))
        return
    result = harness.Result("tip_pile", f"Selections among piles of lazy tips, {DIMENSIONS:,} values", options.date)
    found: dict[int, dict[str, Any]] = {}
    models = Models.of(1, clusters=1)
    for tips in PILES:
        with tempfile.TemporaryDirectory(dir=options.folder) as held:
            file = new_ledger(Path(held) / "ledger", models, selector="top-k")
            child("pile", file, tips)
            figures = json.loads(child("measure", file, options.repeats))
        for name in ("selection_s", "selection_after_rounds_s"):
            seconds = figures.pop(name)
            result.timings[f"{tips:,} tips, {name.removesuffix('_s').replace('_', ' ')}"] = harness.Timing(
                tuple(seconds)
            )
            figures[name.removesuffix("_s") + "_p50_ms"] = round(statistics.median(seconds) * 1e3, 3)
        found[tips] = result.facts[f"{tips:,} tips"] = figures
    few, bound, many = (found[tips] for tips in PILES)
    for name, other, latency, memory in (
        ("1,000", bound, TARGET_LATENCY, TARGET_MEMORY),
        ("100", few, 10 * TARGET_LATENCY, 10 * TARGET_MEMORY),
    ):
        for when, key, rss in (
            ("", "selection_p50_ms", "rss_MB"),
            (" after rounds", "selection_after_rounds_p50_ms", "rss_after_rounds_MB"),
        ):
            # A small pile is nearly used up after the rounds, so latency is held against it as it was.
            speed, size = many[key] / other["selection_p50_ms"], many[rss] / other[rss]
            result.ratios += [
                harness.Ratio(f"selection{when}, 10,000 tips / {name}", speed, latency, "at most", "p50 of select_for"),
                harness.Ratio(f"memory{when}, 10,000 tips / {name}", size, memory, "at most", "VmRSS of the process"),
            ]
    print(result.write())


if __name__ == "__main__":
    main()
