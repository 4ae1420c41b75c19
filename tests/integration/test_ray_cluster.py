"""Whole runs on two nodes of a real Ray cluster, on this machine and without a network."""

import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fl_simulator.config.experiment import PlannedRun, read_experiment
from fl_simulator.errors import SimulationError
from fl_simulator.run.folder import is_finished, read_rounds
from fl_simulator.run.on_ray import play_on_ray
from fl_simulator.run.parallel import RoundFinished, RunEvent, RunFailed, RunFinished, RunStarted, play_all

pytestmark = pytest.mark.xdist_group("ray")

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_AUTH_MODE": "disabled"}
"""Nothing is reported, nothing is warned of, and no token is written into the home folder."""
EXPERIMENT = """
name = "small"
seeds = [0, 1]
[base]
data.pixels = "unit"
partition = { name = "rotations", clients = "2,2,2,2" }
model = { name = "digits-mlp", similarity_layers = "all" }
run = { rounds = 4, evaluate_every = 2, checkpoint_every = 1 }
[[methods]]
label = "FedAvg"
strategy.name = "fedavg"
"""


@pytest.fixture(scope="module")
def nodes() -> Iterator[object]:
    """Two of one core each; this process is connected."""
    if importlib.util.find_spec("ray") is None:
        if os.environ.get("CI"):
            pytest.fail("CI must test Ray: pip install 'ray[client]'")
        pytest.skip("Ray is not installed")
    import ray
    from ray.cluster_utils import Cluster

    os.environ.update(QUIET)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=1)
        ray.init(cluster.address, log_to_driver=False, configure_logging=False)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[PlannedRun, ...]:
    file = tmp_path_factory.mktemp("experiment") / "small.toml"
    file.write_text(EXPERIMENT)
    return read_experiment(file).runs


@pytest.fixture(scope="module")
def here(runs: tuple[PlannedRun, ...], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The same runs, played by a process of this machine."""
    folders = [tmp_path_factory.mktemp("here") for _ in runs]
    play_all(runs, folders, jobs=1, overwrite=True)
    return folders


def accuracies(path: Path) -> list[float | None]:
    return [record.accuracy for record in read_rounds(path)]


@pytest.mark.parametrize(
    ("installed", "words"),
    [(False, "pip install 'ray[client]'"), (True, "no Ray cluster answers at 'nowhere'")],
    ids=["no Ray", "no cluster"],
)
def test_an_address_without_a_cluster_is_refused(
    *, installed: bool, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first here: a process that is connected would use its connection."""
    if installed:
        assert not pytest.importorskip("ray").is_initialized()
    else:
        monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SimulationError, match=re.escape(words)):
        play_on_ray([], [], address="nowhere")


def test_runs_on_nodes_give_the_figures_of_processes(
    nodes: object, runs: tuple[PlannedRun, ...], here: list[Path], tmp_path: Path
) -> None:
    there = [tmp_path / str(seed) for seed in (0, 1)]
    events: list[RunEvent] = []
    play_on_ray(runs, there, address="auto", on_event=events.append)
    for index in (0, 1):
        kinds = [type(event) for event in events if event.index == index]
        assert kinds == [RunStarted, *[RoundFinished] * 4, RunFinished]
        assert is_finished(there[index])
        assert accuracies(there[index]) == accuracies(here[index])
    events.clear()
    play_on_ray(runs, there, address="auto", on_event=events.append)
    assert events == [RunFinished(index, finished=True, before=True) for index in (0, 1)]


def test_a_stopped_run_goes_on(nodes: object, runs: tuple[PlannedRun, ...], here: list[Path], tmp_path: Path) -> None:
    events: list[RunEvent] = []

    def interrupt(event: RunEvent) -> None:
        events.append(event)
        if isinstance(event, RunStarted) and not event.first_round:
            os.kill(os.getpid(), 2)  # Ctrl-C

    folders = [tmp_path / "stopped"]
    with pytest.raises(KeyboardInterrupt):
        play_on_ray(runs[:1], folders, address="auto", on_event=interrupt)
    done = len(accuracies(folders[0]))
    events.clear()
    play_on_ray(runs[:1], folders, address="auto", on_event=interrupt)
    if done < 4:  # it may have been faster than Ctrl-C
        assert events[0] == RunStarted(0, done)
    assert accuracies(folders[0]) == accuracies(here[0])


def test_a_run_that_cannot_be_played_is_told(nodes: object, tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(
        EXPERIMENT.replace("seeds = [0, 1]", "").replace('"fedavg"', '"dag-acfl"\ntraining.learning_rate = 1e30')
    )
    events: list[RunEvent] = []
    play_on_ray(read_experiment(file).runs, [tmp_path / "bad"], address="auto", on_event=events.append)
    assert isinstance(events[-1], RunFailed)
