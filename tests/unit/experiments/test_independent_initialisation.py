"""What is measured of first averages: by hand and in the simulator."""

import json
from collections.abc import Mapping

import numpy as np

from experiments.independent_initialisation import HERE, NAME, Figures, Observed, table
from fl_core.types import JsonScalar
from fl_simulator.strategies.asynchronous import ASYNCHRONOUS_STRATEGIES
from fl_simulator.strategies.asynchronous.dag_acfl import AsynchronousDagAcfl
from tests.simulations import make_world


def figures(seed: int, *, time: float | None) -> Figures:
    return Figures(
        setting="all at once",
        method="replace",
        seed=seed,
        before=0.8,
        first=0.5 + seed / 10,
        averaged=4,
        time_to_goal=time,
        final=0.9,
    )


def test_the_table_has_means_and_deviations_over_seeds() -> None:
    text = table([figures(0, time=10.0), figures(1, time=None), figures(2, time=20.0)], unit="seconds")
    assert "| all at once | replace | 0.800 ± 0.000 | 0.600 ± 0.100 | 4.0 ± 0.0 | 15.0 ± 7.1 (2 of 3 seeds) |" in text
    assert "| never |" in table([figures(0, time=None)], unit="seconds")


def test_the_committed_table_is_made_of_the_committed_runs() -> None:
    results = HERE / "results" / NAME
    runs = [Figures(**each) for each in json.loads((results / "figures.json").read_text("utf-8"))["runs"]]
    assert (results / "table.md").read_text("utf-8").endswith("\n\n" + table(runs, unit="virtual seconds"))


def test_a_simulated_clients_first_average_is_measured_once() -> None:
    world = make_world()
    params: Mapping[str, JsonScalar] = {"join": "random", "selector": "top-k", "selector.k": 5}
    strategy = ASYNCHRONOUS_STRATEGIES.build("dag-acfl", params, world)
    assert isinstance(strategy, AsynchronousDagAcfl)
    observed = Observed(strategy, world)

    def work(client: int, *, now: float) -> np.ndarray:
        model = observed.start(client, now=now).model
        strategy.finish(client, model + np.float32(client), now=now)
        return model

    for client in (0, 1, 2):
        work(client, now=0.0)  # joins
    both = [observed.start(client, now=1.0).model for client in (0, 1)]  # nobody has published: no average
    for client, model in enumerate(both):
        strategy.finish(client, model + np.float32(client), now=2.0)
    assert observed.first == {}
    mine = strategy.model_of(2)
    assert mine is not None
    given = work(2, now=3.0)
    accuracies = [float(world.evaluate(model[None], [0], [2]).accuracy[0]) for model in (mine, given)]
    assert [observed.before[2], observed.first[2]] == accuracies
    work(2, now=4.0)
    assert [observed.before[2], observed.first[2]] == accuracies
    assert observed.averaged == {2: 2}
