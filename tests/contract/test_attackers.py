"""What every registered attacker promises, on two camps that contradict each other."""

import numpy as np
import pytest

from fl_simulator.attacks import ATTACKERS
from fl_simulator.attacks.attack import Places
from fl_simulator.attacks.protocol import Attacker, Published, Samples, Turn
from fl_simulator.engine.rounds import Rounds
from fl_simulator.strategies import STRATEGIES
from tests.reference.softmax_trainer import SoftmaxTrainer
from tests.simulations import make_world, shown, two_camps

LAYOUT = SoftmaxTrainer(two_camps()).layout
SIZE = LAYOUT.num_parameters
every_attacker = pytest.mark.parametrize("attacker", [pytest.param(ATTACKERS.build(n, {}), id=n) for n in ATTACKERS])


def make_samples(seed: int = 0) -> Samples:
    rng = np.random.default_rng(seed)
    return Samples(rng.random((12, 4, 4), dtype=np.float32), np.arange(12) % 10, 10)


def make_turn(*, victims: int = 5, colluders: int = 1, seed: int = 0) -> Turn:
    rng = np.random.default_rng(seed)
    start, trained, *models = rng.standard_normal((2 + victims + colluders, SIZE)).astype(np.float32)
    near = [Published(client, start, model) for client, model in enumerate(models)]
    return Turn(
        client=victims + colluders,
        start=start,
        trained=trained,
        victims=near[:victims],
        colluders=near[victims:],
        layout=LAYOUT,
        rng=np.random.default_rng(7),
    )


@every_attacker
@pytest.mark.parametrize(("victims", "colluders"), [(5, 1), (1, 0), (0, 0), (0, 2)])
def test_the_same_turn_gives_the_same_model_of_the_same_shape(attacker: Attacker, victims: int, colluders: int) -> None:
    first, again = (attacker.hand_in(make_turn(victims=victims, colluders=colluders)) for _ in range(2))
    assert first.shape == (SIZE,)
    assert first.dtype == np.float32
    assert np.isfinite(first).all()
    assert first.tobytes() == again.tobytes()


@every_attacker
def test_nothing_that_it_is_given_is_changed(attacker: Attacker) -> None:
    turn, same = make_turn(), make_turn()
    attacker.hand_in(turn)
    assert turn.start.tobytes() == same.start.tobytes()
    assert turn.trained.tobytes() == same.trained.tobytes()
    assert all(a.model.tobytes() == b.model.tobytes() for a, b in zip(turn.victims, same.victims, strict=True))
    samples = make_samples()
    attacker.poison(samples, np.random.default_rng(0))
    attacker.triggered(samples)
    assert samples.images.tobytes() == make_samples().images.tobytes()
    assert samples.labels.tolist() == make_samples().labels.tolist()


@every_attacker
def test_it_trains_on_as_many_samples_with_labels_that_there_are(attacker: Attacker) -> None:
    poisoned = attacker.poison(make_samples(), np.random.default_rng(0))
    assert poisoned.images.shape == make_samples().images.shape
    assert len(poisoned.labels) == 12
    assert set(poisoned.labels.tolist()) <= set(range(10))


@every_attacker
def test_a_backdoor_opens_for_no_sample_that_is_called_so_anyway(attacker: Attacker) -> None:
    triggered = attacker.triggered(make_samples())
    if triggered is None:
        return
    (target,) = set(triggered.labels.tolist())
    assert 0 < len(triggered.labels) <= 12 - make_samples().labels.tolist().count(target)
    assert triggered.images.shape[1:] == (4, 4)


@every_attacker
@pytest.mark.parametrize("name", ["fedavg", "dag-acfl"])
def test_a_run_under_attack_is_the_same_again_and_judges_the_honest_alone(attacker: Attacker, name: str) -> None:
    def played() -> list[object]:
        world = make_world(attacker=attacker, places=Places(clients="4,5"))
        params = {"selector": "least-squares"} if name == "dag-acfl" else {}
        strategy = STRATEGIES.build(name, params, world)
        run = Rounds(world, strategy, rounds=3, participation=1.0, evaluate_every=3)
        intervals = list(run.play())
        assert intervals[-1].evaluated.tolist() == [0, 1, 2, 3]
        return shown(intervals)

    assert played() == played()
