"""One selection on a ledger of 100,000 transactions against one of 1,000 with the same tips; and the start-up.

Both ledgers have the same 100 authors, whose newest transactions, the tips, carry the same models of 20,000 values;
below them lie 9 and 999 generations. The generations below are written as rows in one database transaction
(``built_ledger.grow``) and the service then starts from the file as a server does, so what is measured is a journal
that was read, not a memory that was arranged. Selections alternate between the ledgers. The selector is top-k: BEAST
costs the same on both, and 15 ms of it would only hide a difference.

With ``--million`` the old ledger has 1,000,000 transactions, and the product's own command is started on it: until it
answers, and what memory it then takes (``benchmarks/results/ledger_million.json``; three minutes, 6 GB of memory).

    python benchmarks/ledger_age.py
    python benchmarks/ledger_age.py --million
"""

import itertools
import os
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import harness
from built_ledger import DIMENSIONS, Models, crown, grow, new_ledger, serving
from our_server import COMMAND, STOP_TIMEOUT_S, listening_port, memory_of

AUTHORS = 100
CLUSTERS = 5
SIZES = (1_000, 100_000)
MILLION = (1_000, 1_000_000)
START_TARGET_S = 20.0
RSS_TARGET_MIB = 1024.0
TARGET = 1.2


def served(folder: Path) -> list[harness.Ratio]:
    """How the product's own command starts on a ledger, and the memory that it takes then."""
    command = [*COMMAND, "serve", "--data-dir", str(folder), "--port", "0", "--log-level", "error"]
    environment = {**os.environ, "PYTHONPATH": str(harness.ROOT)}
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment)
    try:
        listening_port(process)
        started_s = time.perf_counter() - start
        rss_mib = memory_of(process.pid, "VmRSS") / 2**20
    finally:
        process.terminate()
        process.wait(STOP_TIMEOUT_S)
        if process.stdout is not None:
            process.stdout.close()
    return [
        harness.Ratio("start, s", started_s, START_TARGET_S, "at most", "from the command until it answers"),
        harness.Ratio("memory, MiB", rss_mib, RSS_TARGET_MIB, "at most", "VmRSS of the server once it answers"),
    ]


def main() -> None:
    parser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the databases go")
    parser.add_argument("--repeats", type=int, default=300)
    parser.add_argument("--million", action="store_true", help="1,000,000 transactions, and a server started on them")
    options = parser.parse_args()
    sizes = MILLION if options.million else SIZES
    result = harness.Result(
        "ledger_million" if options.million else "ledger_age",
        f"A selection among {AUTHORS} tips of {DIMENSIONS:,} values, on a young and an old ledger",
        options.date,
    )
    models = Models.of(AUTHORS, clusters=CLUSTERS)
    with ExitStack() as stack:
        held = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.folder)))
        work = {}
        for size in sizes:
            file = new_ledger(held / str(size), models, selector="top-k")
            tips = crown(file, models, grow(file, authors=AUTHORS, generations=size // AUTHORS - 1))
            if size == MILLION[1]:
                result.ratios += served(file.parent)
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
    young, old = (result.timings[f"{size:,} transactions"].median_s for size in sizes)
    result.ratios.append(
        harness.Ratio(
            "old ledger / young ledger", old / young, TARGET, "at most", "p50 of select_for, top-k, same tips"
        )
    )
    print(result.write())


if __name__ == "__main__":
    main()
