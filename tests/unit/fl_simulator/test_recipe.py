"""What a recipe may say, and what its loss asks of a model."""

from typing import Any

import pytest

from fl_core.errors import ParameterError
from fl_core.parameters import rules_of
from fl_simulator.config.scenario import read_scenario
from fl_simulator.errors import ScenarioError
from fl_simulator.training.recipe import Recipe


def test_a_virtual_teacher_shares_what_it_does_not_trust_among_the_other_classes() -> None:
    """DecDiff, Eq. 7, of 10 classes: 0.91 and nine times 0.01."""
    right, other = Recipe(1, 0.1, loss="virtual-teacher", beta=0.91).teacher(10)
    assert (right, other) == (0.91, pytest.approx(0.01))
    assert Recipe(1, 0.1, loss="cross-entropy", beta=0.91).teacher(10) == (1, 0)
    assert Recipe(1, 0.1, loss="virtual-teacher", beta=0.91).teacher(1) == (1, 0)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1, not 0"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"momentum": 1.0}, "momentum must be below 1"),
        ({"weight_decay": -0.1}, "weight_decay must be at least 0"),
        ({"beta": 0.0}, "beta must be above 0"),
        ({"optimizer": "adamw", "momentum": 0.5}, "momentum 0.5 is of optimizer 'sgd'"),
        ({"loss": "virtual-teacher", "loss_bound": 10.0}, "loss_bound 10.0 is of loss 'cross-entropy'"),
    ],
)
def test_a_value_out_of_range_is_refused(wrong: dict[str, Any], match: str) -> None:
    with pytest.raises(ParameterError, match=match):
        Recipe(**{"batch_size": 1, "learning_rate": 0.1} | wrong)


def test_a_scenario_says_the_recipe() -> None:
    """Uncoordinated initialisation, Table 1, with DecDiff's loss."""
    said = {"batch_size": 16, "learning_rate": 0.001, "momentum": 0.5, "loss": "virtual-teacher", "beta": 0.9}
    scenario = read_scenario({"training": {**said, "steps": 8}, "model": {"name": "mlp-512-256-128", "init": "he"}})
    told = {name: getattr(scenario.training, name) for name in rules_of(Recipe)}
    assert Recipe(**told) == Recipe(16, 0.001, momentum=0.5, loss="virtual-teacher", beta=0.9)
    assert (scenario.training.steps, scenario.model.init) == (8, "he")
    assert read_scenario(scenario.sections()) == scenario
    assert (read_scenario({}).training.batch_size, read_scenario({}).training.learning_rate) == (10, 0.05)


@pytest.mark.parametrize(
    ("training", "match"),
    [
        ({"optimizer": "adamw", "momentum": 0.5}, "momentum 0.5 is of optimizer 'sgd'"),
        ({"optimizer": "lion"}, r"\[training\]: optimizer must be one of sgd, adamw"),
        ({"loss": "hinge"}, r"\[training\]: loss must be one of cross-entropy, virtual-teacher"),
        ({"beta": 1.1}, r"\[training\]: beta must be at most 1"),
        ({"steps": -1}, r"\[training\]: steps must be at least 0"),
    ],
)
def test_a_scenario_that_cannot_be_trained_is_refused(training: dict[str, Any], match: str) -> None:
    with pytest.raises(ScenarioError, match=match):
        read_scenario({"training": training})


def test_steps_in_virtual_time_are_refused_for_there_a_training_has_epochs() -> None:
    with pytest.raises(ScenarioError, match=r"\[training\]: steps is for runs in rounds"):
        read_scenario({"training": {"steps": 8}, "asynchronous": {}})
