"""Ten thousand lives of five servers, or of more that know their neighbours only: gossip under delays, loss, doubles, reordering, partitions, crashes and
full disks, with bad peers among them, in virtual time.

A seed decides everything, so that a seed that breaks an invariant breaks it again:

    python -m tests.faults.gossip_simulation --replay 1234

The long version goes on where it was stopped, and leaves its figures in benchmarks/results/gossip_simulation.json:

    python -m tests.faults.gossip_simulation --seeds 10000

An overlay has figures of its own:

    python -m tests.faults.gossip_simulation --seeds 500 --topology small-world --servers 9

``tests/faults/gossip/`` holds the parts: ``disk`` (what survives), ``network`` (what gets through), ``server``
(an honest one), ``bad_peers``, ``writer``, ``invariants`` (what must hold after every step) and ``world``.
"""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from rich.progress import track

from fl_core.topology import TOPOLOGIES, build_topology, complete
from tests.faults.gossip.invariants import BrokenInvariantError
from tests.faults.gossip.world import N_SERVERS, World

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
BUILD = ROOT / "build"
SYNC_INTERVAL_S = 5.0


def world_of(seed: int, *, topology: str, n_servers: int) -> World:
    """The world of a seed."""
    return World(seed, topology=build_topology(topology, {}), n_servers=n_servers)


def run_seed(seed: int, *, topology: str = complete.NAME, n_servers: int = N_SERVERS) -> dict[str, Any]:
    """One seed's outcome; ``broken`` says what does not hold, None when all does."""
    try:
        return {"broken": None, **asdict(world_of(seed, topology=topology, n_servers=n_servers).run())}
    except BrokenInvariantError as error:
        return {"broken": str(error), "seed": seed}


def run_seeds(
    seeds: Sequence[int], *, jobs: int, topology: str = complete.NAME, n_servers: int = N_SERVERS
) -> Iterator[dict[str, Any]]:
    """All of them, in order."""
    run_one = partial(run_seed, topology=topology, n_servers=n_servers)
    if jobs == 1:
        yield from map(run_one, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run_one, seeds, chunksize=20)


def summary(
    outcomes: Iterable[dict[str, Any]], *, topology: str = complete.NAME, n_servers: int = N_SERVERS
) -> dict[str, Any]:
    """The figures of many seeds."""
    outcomes = list(outcomes)
    whole = [outcome for outcome in outcomes if outcome["broken"] is None]
    within_s = sorted(outcome["converged_after_s"] for outcome in whole)
    bad = sorted({outcome["bad_peer"] for outcome in whole if outcome["bad_peer"]})
    return {
        "fault": "seeded simulation of five servers"
        if (topology, n_servers) == (complete.NAME, N_SERVERS)
        else f"seeded simulation of {n_servers} servers, overlay {topology}",
        "seeds": len(outcomes),
        "broken": [outcome for outcome in outcomes if outcome["broken"] is not None],
        "steps": sum(outcome["steps"] for outcome in whole),
        "checks_of_a_server": sum(outcome["checks"] for outcome in whole),
        "faults": sum(outcome["faults"] for outcome in whole),
        "transactions": sum(outcome["transactions"] for outcome in whole),
        "acknowledged": sum(outcome["acknowledged"] for outcome in whole),
        "seeds_with_a_bad_peer": {kind: sum(outcome["bad_peer"] == kind for outcome in whole) for kind in bad},
        "converged_after_healing_s": {
            "p50": quantile(within_s, 0.5),
            "p95": quantile(within_s, 0.95),
            "p99": quantile(within_s, 0.99),
            "max": quantile(within_s, 1.0),
            "share_within_two_sync_intervals": share_below(within_s, 2 * SYNC_INTERVAL_S),
        },
        "model_bytes_fetched_per_byte_needed": round(statistics.mean(o["transfer_ratio"] for o in whole), 4),
    }


def quantile(ascending: Sequence[float], q: float) -> float:
    """The value below which a share ``q`` lies."""
    return ascending[round(q * (len(ascending) - 1))]


def share_below(values: Sequence[float], bound: float) -> float:
    """Which share is at most ``bound``."""
    return round(sum(value <= bound for value in values) / len(values), 4)


def main() -> int:
    """Run, show, write. Returns 1 when an invariant was broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10_000, help="how many, from 0 on")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--replay", type=int, help="run one seed, show its outcome or its traceback, write nothing")
    parser.add_argument("--afresh", action="store_true", help="forget what an earlier run has done")
    parser.add_argument("--topology", choices=sorted(TOPOLOGIES), default=complete.NAME, help="who is whose peer")
    parser.add_argument("--servers", type=int, default=N_SERVERS, help="how many, the bad peer included")
    options = parser.parse_args()
    overlay = {"topology": options.topology, "n_servers": options.servers}
    if options.replay is not None:
        print(json.dumps(asdict(world_of(options.replay, **overlay).run()), indent=2))  # noqa: T201
        return 0
    is_usual = (options.topology, options.servers) == (complete.NAME, N_SERVERS)
    stem = "gossip_simulation" if is_usual else f"gossip_simulation_{options.topology}_{options.servers}"
    file = BUILD / f"{stem}.jsonl"
    if options.afresh:
        file.unlink(missing_ok=True)
    outcomes = {outcome["seed"]: outcome for outcome in earlier(file) if outcome["seed"] < options.seeds}
    left = [seed for seed in range(options.seeds) if seed not in outcomes]
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as so_far:
        for outcome in track(run_seeds(left, jobs=options.jobs, **overlay), total=len(left), description="seeds"):
            outcomes[outcome["seed"]] = outcome
            so_far.write(json.dumps(outcome) + "\n")
            so_far.flush()
    figures = summary((outcomes[seed] for seed in sorted(outcomes)), **overlay)
    (RESULTS / f"{stem}.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(figures, indent=2))  # noqa: T201
    return 1 if figures["broken"] else 0


def earlier(file: Path) -> list[dict[str, Any]]:
    """What an interrupted run has done; its last line may be torn."""
    if not file.exists():
        return []
    lines = file.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines[:-1]]


if __name__ == "__main__":
    sys.exit(main())
