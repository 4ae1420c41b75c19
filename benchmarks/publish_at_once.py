"""Eight clients publish 0.4 MB durably at once, against hashing and inserting the same bytes with group commit.

The server is the product's own command with its defaults. Client processes publish models of distinct bytes as fast as
they are acknowledged, each over one kept connection. The limit is eight threads that hash the same bytes and insert
them into SQLite with synchronous=FULL, those that wait in one commit; it has no clients beside it. The two take turns.

    python benchmarks/publish_at_once.py
"""

import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import harness
from limits import grouped_inserts
from our_server import cpu_s
from publish_throughput import Contender

CLIENTS = 8
TURNS = 8
EACH = 25
TARGET = 0.7


def main() -> None:
    parser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the databases go")
    options = parser.parse_args()
    values = harness.SMALL_MODEL_VALUES
    result = harness.Result("publish_at_once", "Durable publications of 0.4 MB, eight clients at once", options.date)
    with ExitStack() as stack:
        ours = Contender(values, CLIENTS, store="database", folder=options.folder, stack=stack)
        insert = stack.enter_context(grouped_inserts(options.folder, 4 * values, threads=CLIENTS))
        ours.turn(EACH)
        before_s = cpu_s(ours.running.process.pid)
        result.timings = harness.interleave(
            {"publish": partial(ours.turn, EACH), "SHA-256 + INSERT": partial(insert, EACH)}, repeats=TURNS, warmup=0
        )
        used_s = cpu_s(ours.running.process.pid) - before_s
    each_turn = CLIENTS * EACH
    rates = {name: each_turn / taken.median_s for name, taken in result.timings.items()}
    result.facts = {
        "a second": {name: round(rate, 1) for name, rate in rates.items()},
        "server's CPU ms per publication": round(used_s / (TURNS * each_turn) * 1e3, 2),
    }
    basis = f"medians of {TURNS} turns of {each_turn}, clients and server on the same cores, the limit without clients"
    share = rates["publish"] / rates["SHA-256 + INSERT"]
    result.ratios.append(harness.Ratio("0.4 MB, 8 at once: share of the limit", share, TARGET, "at least", basis))
    print(result.write())


if __name__ == "__main__":
    main()
