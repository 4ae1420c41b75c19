"""What the demo compares with: local training and FedAvg, through the Trainer protocol."""

import subprocess
import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from dag_acfl.demo.baselines import fedavg, local_only, weighted_mean
from dag_acfl.demo.task import DemoTask
from fl_client.training import Arrays, Hints, TrainingResult
from fl_core.errors import ParameterError
from fl_core.models import ModelLayout

START = {"w": np.zeros(1, np.float32)}


@dataclass
class Walker:
    """Moves its one weight by ``step`` per epoch; its accuracy is the weight."""

    step: float
    num_examples: int = 1

    def layout(self) -> ModelLayout:
        return ModelLayout.of_arrays(START)

    def initial_arrays(self) -> dict[str, Any]:
        return dict(START)

    def train(self, arrays: Arrays, *, epochs: int, hints: Hints | None = None) -> TrainingResult:
        moved = (arrays["w"] + epochs * self.step).astype(np.float32)
        return TrainingResult({"w": moved}, self.num_examples)

    def evaluate(self, arrays: Arrays) -> dict[str, float]:
        return {"accuracy": float(arrays["w"][0])}


def test_alone_every_client_walks_its_own_way() -> None:
    result = local_only([Walker(0.125), Walker(-0.25)], START, epochs=4)
    assert result.accuracies == (0.5, -1.0)
    assert (result.mean, result.spread) == (-0.25, 0.75)


def test_fedavg_weighs_clients_by_their_samples() -> None:
    """Per epoch the weighted mean step is (3 * 0.25 + 1 * -0.25) / 4 = 0.125; four epochs make 0.5 for everybody."""
    result = fedavg([Walker(0.25, 3), Walker(-0.25, 1)], START, epochs=4, epochs_per_round=2)
    assert result.accuracies == (0.5, 0.5)


def test_fedavg_makes_a_last_uneven_round_in_full_and_reports_each() -> None:
    seen: list[tuple[str, int, int]] = []
    result = fedavg([Walker(0.125)], START, epochs=5, epochs_per_round=2, progress=lambda *step: seen.append(step))
    assert result.accuracies == (0.75,)
    assert seen == [("FedAvg", 1, 3), ("FedAvg", 2, 3), ("FedAvg", 3, 3)]


def test_the_weighted_mean_of_one_model_is_that_model() -> None:
    model = {"w": np.array([0.1, -3e38], np.float32)}
    assert np.array_equal(weighted_mean([model], [7])["w"], model["w"])


def test_no_clients_or_no_epochs_are_refused() -> None:
    with pytest.raises(ParameterError):
        local_only([], START, epochs=1)
    with pytest.raises(ParameterError):
        fedavg([Walker(1.0)], START, epochs=3, epochs_per_round=0)


def test_every_client_of_the_demo_starts_from_the_genesis_model() -> None:
    task = replace(DemoTask(), num_clients=4)
    genesis = task.genesis_arrays()
    for trainer in task.trainers():
        assert all(np.array_equal(trainer.initial_arrays()[name], genesis[name]) for name in genesis)
        assert [spec.name for spec in trainer.layout().tensors] == list(task.similarity_tensors)


def test_in_the_demo_learning_alone_beats_one_model_for_everybody() -> None:
    """Seed 0 gives .75 and .66; four rotations do not fit into one small model in this budget."""
    task = DemoTask()
    trainers, genesis = task.trainers(), task.genesis_arrays()
    alone = local_only(trainers, genesis, epochs=task.total_epochs)
    together = fedavg(trainers, genesis, epochs=task.total_epochs, epochs_per_round=task.epochs)
    assert 0.65 < alone.mean < 0.85
    assert 0.4 < together.mean < alone.mean


def test_the_demos_parent_process_plans_without_torch() -> None:
    code = "import sys; from dag_acfl.demo.task import DemoTask; DemoTask().clients();assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
