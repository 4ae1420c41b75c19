"""One selection on a ledger of 100,000 transactions against one of 1,000 with the same tips; and the start-up.

Both ledgers have the same 100 authors, whose newest transactions, the tips, carry the same models of 20,000 values;
below them lie 9 and 999 generations. The generations below are written as rows in one database transaction
(``built_ledger.grow``) and the service then starts from the file as a server does, so what is measured is a journal
that was read, not a memory that was arranged. Selections alternate between the ledgers. The selector is top-k: BEAST
costs the same on both, and 15 ms of it would only hide a difference.

With ``--million`` there is no selection: the product's own command is started on ledgers of 100,000 and 1,000,000
updates of 1,000 authors, whose newest carry models of 0.1 MB. The first start reads the whole journal and keeps what it
sums up; the others go on from there. Measured is the time until it answers, and its memory then
(``benchmarks/results/ledger_million.json``; a quarter of an hour, 2 GB of disk).

    python benchmarks/ledger_age.py
    python benchmarks/ledger_age.py --million
"""

import itertools
import os
import statistics
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import harness
from built_ledger import DIMENSIONS, Models, crown, grow, new_ledger, serving
from our_server import COMMAND, STOP_TIMEOUT_S, cpu_s, listening_port, memory_of

AUTHORS = 100
CLUSTERS = 5
SIZES = (1_000, 100_000)
TARGET = 1.2

AGES = (100_000, 1_000_000)
MANY_AUTHORS = 1_000
VALUES = 25_000
STARTS = 5
START_TARGET_S = 2.0
RSS_TARGET_MIB = 200.0
FLAT = 1.1


class Start(NamedTuple):
    """How the product's own command starts on a ledger, and the memory that it takes then."""

    wall_s: float
    cpu_s: float
    rss_mib: float


def started(folder: Path) -> Start:
    """Start the product's own command on a ledger, until it answers."""
    command = [*COMMAND, "serve", "--data-dir", str(folder), "--port", "0", "--log-level", "error"]
    environment = {**os.environ, "PYTHONPATH": str(harness.ROOT)}
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment)
    try:
        listening_port(process)
        wall_s = time.perf_counter() - start
        return Start(wall_s, cpu_s(process.pid), memory_of(process.pid, "VmRSS") / 2**20)
    finally:
        process.terminate()
        process.wait(STOP_TIMEOUT_S)
        if process.stdout is not None:
            process.stdout.close()


def ages(folder: Path, result: harness.Result) -> None:
    """Start on a young and an old ledger of as many authors, by turns."""
    models = Models.of(MANY_AUTHORS, clusters=CLUSTERS, dimensions=VALUES)
    folders = []
    for size in AGES:
        file = new_ledger(folder / str(size), models, selector="least-squares")
        crown(file, models, grow(file, authors=MANY_AUTHORS, generations=size // MANY_AUTHORS - 1))
        folders.append(file.parent)
    whole = [started(each) for each in folders]
    later = [[started(each) for each in folders] for _ in range(STARTS)]
    found = []
    for place, size in enumerate(AGES):
        starts = [each[place] for each in later]
        found.append(Start(*(statistics.median(column) for column in zip(*starts, strict=True))))
        result.facts[f"{size:,} updates"] = {
            "first_start": whole[place]._asdict(),
            "later_starts": [each._asdict() for each in starts],
        }
    young, old = found
    result.ratios += [
        harness.Ratio("start, s", old.wall_s, START_TARGET_S, "at most", "until it answers; median of the later ones"),
        harness.Ratio("start, CPU s", old.cpu_s, START_TARGET_S, "at most", "the same, of processor time"),
        harness.Ratio("memory, MiB", old.rss_mib, RSS_TARGET_MIB, "at most", "VmRSS of the server once it answers"),
        harness.Ratio("start, old / young", old.cpu_s / young.cpu_s, FLAT, "at most", "processor time"),
        harness.Ratio("memory, old / young", old.rss_mib / young.rss_mib, FLAT, "at most", "VmRSS"),
    ]


def main() -> None:
    parser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the databases go")
    parser.add_argument("--repeats", type=int, default=300)
    parser.add_argument("--million", action="store_true", help="starts on 100,000 and 1,000,000 updates instead")
    options = parser.parse_args()
    if options.million:
        about = f"Starts of a server with {MANY_AUTHORS:,} authors' models of {VALUES:,} values, of two ages"
        result = harness.Result("ledger_million", about, options.date)
        with tempfile.TemporaryDirectory(dir=options.folder) as held:
            ages(Path(held), result)
        print(result.write())
        return
    what = f"A selection among {AUTHORS} tips of {DIMENSIONS:,} values, on a young and an old ledger"
    result = harness.Result("ledger_age", what, options.date)
    models = Models.of(AUTHORS, clusters=CLUSTERS)
    with ExitStack() as stack:
        held = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.folder)))
        work = {}
        for size in SIZES:
            file = new_ledger(held / str(size), models, selector="top-k")
            tips = crown(file, models, grow(file, authors=AUTHORS, generations=size // AUTHORS - 1))
            start = time.perf_counter()
            service = stack.enter_context(serving(file))
            started_s = time.perf_counter() - start
            transactions, present = service.tips()
            assert transactions == size + 1, "genesis and all that was written"
            assert set(present) == set(tips), "both ledgers end in the same generation"
            authors = itertools.cycle(tips)
            work[f"{size:,} transactions"] = lambda s=service, a=authors: s.selections.select_for(next(a))
            result.facts[f"{size:,} transactions"] = {
                "start_s": round(started_s, 3),
                "start_s_per_100_000": round(started_s * 100_000 / size, 3),
                "tips": len(present),
                "database_bytes": file.stat().st_size,
            }
        result.timings = harness.interleave(work, repeats=options.repeats, warmup=AUTHORS)
    young, old = (result.timings[f"{size:,} transactions"].median_s for size in SIZES)
    result.ratios.append(
        harness.Ratio(
            "old ledger / young ledger", old / young, TARGET, "at most", "p50 of select_for, top-k, same tips"
        )
    )
    print(result.write())


if __name__ == "__main__":
    main()
