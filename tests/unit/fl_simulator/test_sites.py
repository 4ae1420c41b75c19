"""A client's own trainers behind the simulator's seam: each row goes to its site, and nothing is lost on the way."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fl_client.errors import UserModuleError
from fl_client.training import Arrays, Hints, TrainingResult
from fl_core.errors import ModelLayoutError, ParameterError
from fl_core.models import ModelLayout, TensorSpec
from fl_simulator.engine.world import LocalTraining, World
from fl_simulator.errors import ScenarioError
from fl_simulator.seeds import Seeds
from fl_simulator.strategies import STRATEGIES
from fl_simulator.training.protocol import Task, Trainer
from fl_simulator.training.sites import SiteTrainers, load_sites
from tests.tiny_trainer import TinyTrainer

ONE = np.ones((1, 4), dtype=np.float32)


def world_with(targets: Sequence[float], *, epochs: int = 1) -> World:
    sites = SiteTrainers([TinyTrainer(target) for target in targets])
    return World(sites.population(), sites, Seeds(0), LocalTraining(epochs=epochs))


def test_each_row_is_trained_and_judged_by_its_own_site() -> None:
    world = world_with([0.0, 3.0])
    models = np.repeat(ONE, 2, axis=0)
    world.train(models, [1, 0], round_index=0)  # half of the way from 1 to 3, and to 0
    assert models.tolist() == [[2.0] * 4, [0.5] * 4]
    found = world.evaluate(models, [0, 1], [1, 0])
    assert found.accuracy.tolist() == pytest.approx([1 / 2, 1 / 1.5])
    assert found.loss.tolist() == pytest.approx([1.0, 0.5])


def test_samples_are_counted_and_clusters_are_unknown() -> None:
    people = world_with([0.0, 3.0]).population
    assert people.num_examples.tolist() == [10, 10]
    assert [len(rows) for rows in people.test] == [4, 4]
    assert not people.clusters_known


def test_it_is_a_trainer_of_the_simulator() -> None:
    assert isinstance(SiteTrainers([TinyTrainer(0.0)]), Trainer)


def test_baselines_end_where_arithmetic_says() -> None:
    """From 1, two epochs a round bring a model three quarters of the way to its target; the mean of 0 and 4 is 2."""
    world = world_with([0.0, 4.0], epochs=2)
    everybody = np.arange(2)
    alone, common = (STRATEGIES.build(name, {}, world) for name in ("local-only", "fedavg"))
    for number in range(2):
        alone.round(number, everybody)
        common.round(number, everybody)
    assert alone.personal(everybody).models[:, 0].tolist() == [1 / 16, 4 - 3 / 16]
    assert common.personal(everybody).models[0, 0] == 2 - 1 / 16


class WithHead(TinyTrainer):
    """Keeps a head at its site, which counts the trainings."""

    def initial_arrays(self) -> dict[str, NDArray[np.float32]]:
        return {**super().initial_arrays(), "head": np.zeros(1, np.float32)}

    def train(self, arrays: Arrays, *, epochs: int, hints: Hints | None = None) -> TrainingResult:
        shared = {name: array for name, array in arrays.items() if name != "head"}
        result = super().train(shared, epochs=epochs, hints=hints)
        return TrainingResult({**result.arrays, "head": arrays["head"] + np.float32(1)}, result.num_examples)

    def evaluate(self, arrays: Arrays) -> dict[str, float]:
        return {"accuracy": float(arrays["head"][0]) / 10, "num_examples": 10.0}


def test_what_stays_at_a_site_is_kept_between_trainings_until_it_is_forgotten() -> None:
    sites = SiteTrainers([WithHead(0.0), WithHead(3.0)])
    world = World(sites.population(), sites, Seeds(0))
    assert sites.holds_back
    for _ in range(3):
        world.train(ONE.copy(), [1], round_index=0)
    assert world.evaluate(ONE, [0, 0], [0, 1]).accuracy.tolist() == pytest.approx([0.0, 0.3])
    sites.forget()
    assert world.evaluate(ONE, [0], [1]).accuracy.tolist() == [0.0]


def test_sites_with_different_models_are_refused_by_the_tensors_name() -> None:
    other = ModelLayout.of([TensorSpec("fc.weight", "F32", (2, 3)), TensorSpec("fc.bias", "F32", (1,))])
    with pytest.raises(ModelLayoutError, match=r"fc\.weight"):
        SiteTrainers([TinyTrainer(0.0), TinyTrainer(0.0, layout=other)])


def test_what_a_clients_file_cannot_do_is_said() -> None:
    world = world_with([0.0])
    with pytest.raises(ScenarioError, match="fedprox"):
        world.trainer.train(ONE.copy(), [Task(world.population.train[0], (0, 0), 1)], proximal=0.1)
    with pytest.raises(ScenarioError, match="gradients"):
        world.gradients(ONE, [0], round_index=0)
    with pytest.raises(ScenarioError, match="gain"):
        world.initial_model(gain=2.0)


def test_a_trainer_that_knows_no_site_and_a_site_that_is_said_twice_are_refused_with_the_remedy(tmp_path: Path) -> None:
    file = tmp_path / "my_client.py"
    file.write_text("from tests.tiny_trainer import TinyTrainer\ndef trainer(far=1.0): return TinyTrainer(far)\n")
    with pytest.raises(UserModuleError, match="its parameters: far; give it site: int = 0"):
        load_sites(file, 2)
    with pytest.raises(ParameterError, match="leave site=3 out"):
        load_sites(file, 2, {"site": 3})


def test_a_file_draws_the_same_first_model_each_time(tmp_path: Path) -> None:
    file = tmp_path / "my_client.py"
    file.write_text(
        "import numpy as np\n"
        "from tests.tiny_trainer import TinyTrainer\n"
        "class Drawn(TinyTrainer):\n"
        "    def initial_arrays(self):\n"
        "        return {name: array * np.float32(self.start) for name, array in super().initial_arrays().items()}\n"
        "def trainer(site, shift=0):\n"
        "    made = Drawn(site + shift)\n"
        "    made.start = np.random.rand()\n"
        "    return made\n"
    )
    first, again, other = (load_sites(file, 2, {"shift": 5}, seed=seed) for seed in (1, 1, 2))
    rng = np.random.default_rng(0)
    assert first.initial(rng).tolist() == again.initial(rng).tolist() != other.initial(rng).tolist()
    assert [trainer.target for trainer in first.trainers if isinstance(trainer, TinyTrainer)] == [5, 6]
