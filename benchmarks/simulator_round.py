"""What a simulated DAG-ACFL round costs beside the training in it.

90 clients with 540 MNIST images each in three superclasses (DAG-ACFL, Sec. IV), the MLP, everybody in every round. The
limit is the training of the same round: selections, signatures and averages are what a simulator adds to it. Each
selector plays the same rounds; the first, in which everybody joins and there is nothing to choose, does not count.

    dag-acfl data fetch mnist
    python benchmarks/simulator_round.py
"""

import os
import sys

import harness

from fl_core.types import JsonScalar
from fl_simulator.config.scenario import Scenario, read_scenario
from fl_simulator.data.fetch import is_available
from fl_simulator.engine.rounds import Rounds
from fl_simulator.run.prepare import build_world
from fl_simulator.strategies import STRATEGIES

BOOKKEEPING = ("aggregation", "similarity", "ledger")
LONG: dict[str, JsonScalar] = {"selector.samples": 3000, "selector.chains": 3, "selector.thin": 5}
QUICK: dict[str, JsonScalar] = {"selector.samples": 800, "selector.chains": 2, "selector.thin": 1}
SELECTORS: dict[str, dict[str, JsonScalar]] = {
    "BEAST, long chains": {"selector": "beast", **LONG},
    "BEAST, short chains": {"selector": "beast", **QUICK},
    "least squares": {"selector": "least-squares"},
}
TARGETS = {"BEAST, long chains": 1.0, "BEAST, short chains": 1.0, "least squares": 1.0}


def scenario(selector: dict[str, JsonScalar], rounds: int) -> Scenario:
    """The paper's setting with this selector."""
    return read_scenario(
        {
            "data": {"name": "mnist"},
            "partition": {"name": "superclass", "clients": "30,30,30", "kind": "II"},
            "model": {"name": "mlp"},
            "training": {"device": "cpu"},
            "run": {"rounds": rounds, "evaluate_every": rounds},
            "strategy": {"name": "dag-acfl", **selector},
        }
    )


def play_rounds(selector: dict[str, JsonScalar], rounds: int) -> dict[str, list[float]]:
    """Seconds of each kind of work in each round but the first."""
    cores = os.cpu_count() or 1
    world = build_world(scenario(selector, rounds), workers=cores)
    strategy = STRATEGIES.build("dag-acfl", selector, world)
    spent: dict[str, list[float]] = {}
    try:
        for moment in Rounds(world, strategy, rounds=rounds, participation=1.0, evaluate_every=rounds + 1).play():
            seconds = world.stopwatch.take()
            if moment.number > 0:
                for work in ("training", "selection", *BOOKKEEPING):
                    spent.setdefault(work, []).append(seconds.get(work, 0.0))
    finally:
        world.close()
    return spent


def main() -> None:
    parser = harness.arguments(__doc__ or "")
    parser.add_argument("--rounds", type=int, default=12, help="of each selector, the first one uncounted")
    options = parser.parse_args()
    if not is_available("mnist"):
        sys.exit("error: MNIST is not here; get it with: dag-acfl data fetch mnist")
    result = harness.Result("simulator_round", "A simulated DAG-ACFL round: 90 clients, MNIST MLP", options.date)
    for label, selector in SELECTORS.items():
        spent = play_rounds(selector, options.rounds)
        kept = [sum(each) for each in zip(*(spent[work] for work in BOOKKEEPING), strict=True)]
        timings = {"training": spent["training"], "selection": spent["selection"], "bookkeeping": kept}
        result.timings |= {f"{work}, {label}": harness.Timing(tuple(all_s)) for work, all_s in timings.items()}
        training = harness.Timing(tuple(spent["training"])).median_s
        result.facts[label] = {work: round(harness.Timing(tuple(each)).median_s, 4) for work, each in spent.items()}
        if label == "least squares":
            result.ratios.append(
                harness.Ratio(
                    "aggregation, similarity and bookkeeping / training",
                    harness.Timing(tuple(kept)).median_s / training,
                    0.15,
                    "at most",
                    "medians of a round; SHA-256, signatures, admission, averages, cosines",
                )
            )
        result.ratios.append(
            harness.Ratio(
                f"change points by {label} / training",
                harness.Timing(tuple(spent["selection"])).median_s / training,
                TARGETS[label],
                "at most",
                "medians of a round; a process for each core",
            )
        )
    result.write()


if __name__ == "__main__":
    main()
