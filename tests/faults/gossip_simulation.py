"""Ten thousand lives of five servers, and some of more that know their neighbours only: gossip under delays, loss,
doubles, reordering, partitions, crashes and full disks, with bad peers among them, in virtual time.

A seed decides everything, so that a seed that breaks an invariant breaks it again, to be looked at:

    python -m tests.faults.gossip_simulation 1234 --topology ring

The long version is ``make faults PART=simulation``.

``tests/faults/gossip/`` holds the parts: ``disk`` (what survives), ``network`` (what gets through), ``server``
(an honest one), ``bad_peers``, ``writer``, ``invariants`` (what must hold after every step) and ``world``.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from ledger_server.gossip.overlay import OVERLAYS
from tests.faults.gossip.world import N_SERVERS, World
from tests.faults.report import Report, quantiles

LIVES = (("complete", N_SERVERS, 1), ("ring", N_SERVERS, 20), ("small-world", 9, 20))
"""Topology, servers, and of how many seeds one is run with it."""
SYNC_INTERVAL_S = 5.0


def world_of(seed: int, *, topology: str, n_servers: int) -> World:
    """The world of a seed."""
    return World(seed, topology=topology, n_servers=n_servers)


def run_seed(seed: int, *, topology: str, n_servers: int) -> dict[str, Any]:
    """One seed's outcome; ``broken`` says what does not hold, None when all does."""
    return asdict(world_of(seed, topology=topology, n_servers=n_servers).run())


def summary(outcomes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The figures of many seeds."""
    whole = [outcome for outcome in outcomes if outcome["broken"] is None]
    within_s = [outcome["converged_after_s"] for outcome in whole]
    bad = sorted({outcome["bad_peer"] for outcome in whole if outcome["bad_peer"]})
    return {
        "seeds": len(outcomes),
        "broken": len(outcomes) - len(whole),
        "steps": sum(outcome["steps"] for outcome in whole),
        "checks_of_a_server": sum(outcome["checks"] for outcome in whole),
        "faults": sum(outcome["faults"] for outcome in whole),
        "transactions": sum(outcome["transactions"] for outcome in whole),
        "acknowledged": sum(outcome["acknowledged"] for outcome in whole),
        "seeds_with_a_bad_peer": {kind: sum(outcome["bad_peer"] == kind for outcome in whole) for kind in bad},
        "converged_after_healing_s": {
            **quantiles(within_s, digits=3),
            "share_within_two_sync_intervals": round(float(np.mean(np.array(within_s) <= 2 * SYNC_INTERVAL_S)), 4),
        },
        "model_bytes_fetched_per_byte_needed": round(statistics.mean(o["transfer_ratio"] for o in whole), 4),
    }


def lives(seeds: range, *, topology: str, n_servers: int) -> list[dict[str, Any]]:
    """The outcomes of these seeds, in order."""
    run_one = partial(run_seed, topology=topology, n_servers=n_servers)
    with ProcessPoolExecutor() as pool:
        running = pool.map(run_one, seeds, chunksize=20)
        return list(track(running, total=len(seeds), description=f"{topology}, {n_servers} servers"))


def run(_: Path, size: int, seed: int) -> Report:
    """``size`` seeds from ``seed`` on with five servers that all know one another, and a twentieth with each overlay."""
    report = Report(
        "simulation",
        "servers in virtual time: delays, loss, doubles, reordering, partitions, crashes, full disks, bad peers",
        "every invariant after every step; after healing the same transactions, tips and, to the byte, averages",
        size,
        seed,
    )
    for topology, n_servers, one_of in LIVES:
        outcomes = lives(range(seed, seed + -(-size // one_of)), topology=topology, n_servers=n_servers)
        name = f"{topology}, {n_servers} servers"
        report.figures[name] = summary(outcomes)
        report.broken += [f"{name}, seed {each['seed']}: {each['broken']}" for each in outcomes if each["broken"]]
    return report


def main() -> int:
    """Run one seed, and show its outcome or its traceback."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=int, help="which")
    parser.add_argument("--topology", choices=sorted(OVERLAYS), default="complete", help="who is whose peer")
    parser.add_argument("--servers", type=int, default=N_SERVERS, help="how many, the bad peer included")
    options = parser.parse_args()
    world = world_of(options.seed, topology=options.topology, n_servers=options.servers)
    print(json.dumps(asdict(world.play()), indent=2))  # noqa: T201 -- a command
    return 0


if __name__ == "__main__":
    sys.exit(main())
