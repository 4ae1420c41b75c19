"""FedPer on two camps that call the same images by opposite labels, with a weight and a bias for a model."""

import numpy as np
import pytest

from fl_simulator.strategies import STRATEGIES
from tests.simulations import make_world

EVERYBODY = np.arange(6)
NUM_BIASES = 2
"""They stand before the weights."""


@pytest.mark.parametrize("own_tensors", [1, 2])
def test_only_the_last_tensors_are_a_clients_own(own_tensors: int) -> None:
    world = make_world()
    strategy = STRATEGIES.build("fedper", {"own_tensors": own_tensors}, world)
    traffic = strategy.round(0, EVERYBODY)
    models = strategy.personal(EVERYBODY).models
    own = NUM_BIASES if own_tensors == 1 else 0
    assert len(np.unique(models[:, :own], axis=0)) == 1
    assert len(np.unique(models[:, own:], axis=0)) == 6
    assert traffic.up == traffic.down == 6 * 4 * own


def test_what_is_shared_is_the_mean_of_what_each_trains_with_its_own_rest() -> None:
    world = make_world()
    strategy = STRATEGIES.build("fedper", {"own_tensors": 1}, world)
    strategy.round(0, EVERYBODY)
    trained = strategy.personal(EVERYBODY).models.copy()
    world.train(trained, EVERYBODY, round_index=1)
    strategy.round(1, EVERYBODY)
    models = strategy.personal(EVERYBODY).models
    assert models[:, NUM_BIASES:].tolist() == trained[:, NUM_BIASES:].tolist()
    assert models[0, :NUM_BIASES].tolist() == pytest.approx(trained[:, :NUM_BIASES].mean(axis=0).tolist())


def test_who_never_took_part_has_the_first_models_rest() -> None:
    world = make_world()
    strategy = STRATEGIES.build("fedper", {"own_tensors": 1}, world)
    strategy.round(0, np.array([0, 1]))
    (model,) = strategy.personal([5]).models
    assert model[NUM_BIASES:].tolist() == world.initial_model()[NUM_BIASES:].tolist()
