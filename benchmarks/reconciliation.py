"""Bytes, round trips and CPU seconds of a reconciliation between two servers, 10^3 to 10^6 transactions.

Two cases at each size, each in both directions: one transaction anywhere is on one side only, and the 100 newest by
depth are. Positions are drawn with fixed seeds, ledgers have 1, 10 and 100 transactions at each depth, and what is
reported is the worst of them. Both sides run in this process, so no network is in the seconds; bytes are those of the
frames, without HTTP's. For information: equal sets, and 100 missing anywhere. Beside it stands the simplest way: all
ids at once, 32 bytes each, and a set difference.

    python benchmarks/reconciliation.py
"""

import copy
import random
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass

import harness

from fl_core.sync.items import ID_BYTES, Item, ItemSet
from fl_core.sync.reconcile import Reconciliation, answer
from fl_core.types import TxId

SIZES = (1_000, 10_000, 100_000, 1_000_000)
PER_DEPTH = (1, 10, 100)
RECENT = 100
MOST_BYTES = {"1 differing": 5_000, f"{RECENT} recent differing": 10_000}
MOST_ROUND_TRIPS = 3
MOST_BUILD_S = 5.0


@dataclass(frozen=True, slots=True)
class Cost:
    """What one reconciliation took, both sides together."""

    nbytes: int
    round_trips: int
    cpu_s: float


def ledger(size: int, *, per_depth: int, seed: int) -> list[Item]:
    rng = random.Random(seed)
    return [(place // per_depth, TxId(rng.randbytes(ID_BYTES).hex())) for place in range(size)]


def reconcile(ours: ItemSet, theirs: ItemSet, *, have: int, need: int) -> Cost:
    start, nbytes = time.process_time(), 0
    asking = Reconciliation(ours)
    question: bytes | None = asking.first()
    while question is not None:
        said = answer(theirs, question)
        nbytes += len(question) + len(said)
        question = asking.next(said)
    taken = time.process_time() - start
    assert (len(asking.have), len(asking.need)) == (have, need), "the difference is found, all of it"
    return Cost(nbytes, asking.rounds, taken)


def with_more(held: ItemSet, items: list[Item]) -> ItemSet:
    more = copy.deepcopy(held)
    for item in items:
        more.add(*item)
    return more


def both_ways(fewer: ItemSet, more: ItemSet, count: int) -> Iterator[Cost]:
    yield reconcile(fewer, more, have=0, need=count)
    yield reconcile(more, fewer, have=count, need=0)


def cases(size: int, *, per_depth: int, positions: int) -> Iterator[tuple[str, Cost]]:
    """Each case's cost again and again: over positions and directions."""
    items = ledger(size, per_depth=per_depth, seed=size + per_depth)
    older = ItemSet(items[:-RECENT])
    held = with_more(older, items[-RECENT:])
    for cost in both_ways(older, held, RECENT):
        yield f"{RECENT} recent differing", cost
    yield "equal", reconcile(held, held, have=0, need=0)
    rng = random.Random(size)
    for _ in range(positions):
        extra = (rng.randrange(size // per_depth), TxId(rng.randbytes(ID_BYTES).hex()))
        for cost in both_ways(held, with_more(held, [extra]), 1):
            yield "1 differing", cost
    anywhere = [(rng.randrange(size // per_depth), TxId(rng.randbytes(ID_BYTES).hex())) for _ in range(RECENT)]
    for cost in both_ways(held, with_more(held, anywhere), RECENT):
        yield f"{RECENT} differing anywhere", cost


def worst(size: int, *, positions: int) -> dict[str, Cost]:
    found: dict[str, list[Cost]] = {}
    for per_depth in PER_DEPTH:
        for case, cost in cases(size, per_depth=per_depth, positions=positions):
            found.setdefault(case, []).append(cost)
    return {
        case: Cost(
            max(each.nbytes for each in costs),
            max(each.round_trips for each in costs),
            max(each.cpu_s for each in costs),
        )
        for case, costs in found.items()
    }


def main() -> None:
    parser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--positions", type=int, default=20, help="places of the one differing transaction")
    parser.add_argument("--repeats", type=int, default=5, help="repeats of what is timed")
    options = parser.parse_args()
    result = harness.Result(
        "reconciliation", "Range-based reconciliation of two servers, the worst over positions and shapes", options.date
    )
    for size in SIZES:
        costs = worst(size, positions=options.positions)
        result.facts[f"{size:,} transactions"] = {
            "all_ids_bytes": size * ID_BYTES,
            **{
                case: {"bytes": cost.nbytes, "round_trips": cost.round_trips, "cpu_s": round(cost.cpu_s, 5)}
                for case, cost in costs.items()
            },
        }
    items = ledger(size, per_depth=10, seed=0)
    tracemalloc.start()
    fewer = ItemSet(items[:-RECENT])
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    start = time.process_time()
    one_by_one = ItemSet()
    for item in items:
        one_by_one.add(*item)
    build_s = time.process_time() - start
    start = time.process_time()
    assert len(ItemSet(items)) == len(one_by_one)
    result.facts["set of 1,000,000"] = {
        "build_one_by_one_cpu_s": round(build_s, 2),
        "build_at_once_cpu_s": round(time.process_time() - start, 2),
        "held_mib": round(held_bytes / 2**20, 1),
    }
    ours, theirs = ([identity for _, identity in each] for each in (items[:-RECENT], items))
    ranges, all_ids = f"ranges, {RECENT} recent of {size:,}", f"all ids and a set difference, {size:,}"
    result.timings = harness.interleave(
        {
            ranges: lambda: reconcile(fewer, one_by_one, have=0, need=RECENT),
            all_ids: lambda: set(theirs).difference(ours),
        },
        repeats=options.repeats,
    )
    for case, most in MOST_BYTES.items():
        cost = costs[case]
        basis = f"worst of both directions, {len(PER_DEPTH)} shapes"
        result.ratios += [
            harness.Ratio(f"bytes, {case} of {size:,}", cost.nbytes, most, "at most", basis),
            harness.Ratio(f"round trips, {case} of {size:,}", cost.round_trips, MOST_ROUND_TRIPS, "at most", basis),
        ]
    result.ratios += [
        harness.Ratio(
            "ranges / all ids",
            result.timings[ranges].median_s / result.timings[all_ids].median_s,
            1.0,
            "at most",
            "seconds of both sides, no network",
        ),
        harness.Ratio(
            f"CPU seconds to build a set of {size:,}", build_s, MOST_BUILD_S, "at most", "one by one, in order"
        ),
    ]
    print(result.write())


if __name__ == "__main__":
    main()
