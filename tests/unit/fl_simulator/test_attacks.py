"""Attackers in a run: whose places they take, when they act, what they see, and what is measured of them."""

from itertools import islice

import numpy as np
import pytest

from fl_core.errors import ParameterError
from fl_core.parameters import NoParams
from fl_core.types import JsonScalar, Vector32
from fl_simulator.attacks import ATTACKERS
from fl_simulator.attacks.absent import Absent
from fl_simulator.attacks.attack import Places, seat
from fl_simulator.attacks.label_flip import LabelFlip
from fl_simulator.attacks.patch import Patch, PatchParams
from fl_simulator.attacks.protocol import Attacker, Published, Turn
from fl_simulator.config.scenario import read_scenario
from fl_simulator.engine.asynchronous import AsynchronousRun
from fl_simulator.engine.conditions import Conditions, ConditionsParams
from fl_simulator.engine.evaluation import Schedule
from fl_simulator.engine.rounds import Rounds
from fl_simulator.engine.world import World
from fl_simulator.errors import ScenarioError
from fl_simulator.metrics.attacks import accuracy_of_cluster_means, judge_attack
from fl_simulator.run.measure import selection_figures
from fl_simulator.seeds import Seeds
from fl_simulator.strategies import STRATEGIES
from fl_simulator.strategies.asynchronous import ASYNCHRONOUS_STRATEGIES
from tests.simulations import make_world, shown, two_camps


class Constant(Attacker):
    """Hands in the same value everywhere, and keeps what it was shown."""

    name = "constant"

    def __init__(self, value: float = 9.0) -> None:
        self.value, self.turns = value, list[Turn]()

    def hand_in(self, turn: Turn) -> Vector32:
        self.turns.append(turn)
        return np.full_like(turn.start, self.value)


def rounds_of(world: World, *, rounds: int = 3, name: str = "fedavg", evaluate_every: int = 1) -> Rounds:
    params: dict[str, JsonScalar] = {"selector": "least-squares"} if name == "dag-acfl" else {}
    strategy = STRATEGIES.build(name, params, world)
    return Rounds(world, strategy, rounds=rounds, participation=1.0, evaluate_every=evaluate_every)


def run_of(world: World, *, name: str = "dag-acfl", until: float = 60.0) -> AsynchronousRun:
    params: dict[str, JsonScalar] = {"selector": "least-squares"} if name == "dag-acfl" else {}
    conditions = Conditions(
        ConditionsParams.read({"speed.typical": 30.0}, owner="test"), world.seeds, world.num_clients
    )
    schedule = Schedule(duration_s=until, evaluate_every_s=20.0, concurrency=1)
    return AsynchronousRun(world, ASYNCHRONOUS_STRATEGIES.build(name, params, world), conditions, schedule)


def test_absent_attackers_leave_the_others_as_they_are_without_them() -> None:
    """Of FedAvg the samples of all decide; whoever is absent has no part in it."""
    run = rounds_of(make_world(attacker=Absent(NoParams()), places=Places(clients="4,5")))
    assert [each.participants.tolist() for each in run.play()] == [[0, 1, 2, 3]] * 3
    without = make_world(two_camps(clients=6))
    alone = STRATEGIES.build("fedavg", {}, without)
    for number in range(3):
        alone.round(number, np.arange(4))
    assert np.array_equal(run.strategy.personal([0]).models, alone.personal([0]).models)


def test_what_an_attacker_hands_in_goes_into_the_average_from_its_round_on() -> None:
    world = make_world(attacker=Constant(value=1e6), places=Places(clients="5", from_round=2))
    run = rounds_of(world, rounds=4)
    largest = [float(np.abs(run.strategy.personal([0]).models).max()) for _ in run.play()]
    assert [each > 1e5 for each in largest] == [False, False, True, True]


def test_an_attacker_sees_the_rounds_honest_results_of_its_cluster_first() -> None:
    attacker = Constant()
    world = make_world(attacker=attacker, places=Places(clients="0,2"))  # even clients are one camp
    list(rounds_of(world, rounds=2).play())
    assert [turn.client for turn in attacker.turns] == [0, 2], "each acts once: their first training is honest"
    assert all([each.client for each in turn.victims] == [4] for turn in attacker.turns)
    assert [each.client for each in attacker.turns[1].colluders] == [0]
    assert np.array_equal(attacker.turns[1].colluders[0].model, np.full_like(attacker.turns[0].start, 9.0))
    assert world.attack is not None
    assert np.array_equal(attacker.turns[0].victims[0].model, world.attack.seen[4].model), "of this round"


def test_a_flipped_label_reaches_training_and_no_honest_client() -> None:
    people, train, _ = seat(LabelFlip(NoParams()), Places(clients="1"), two_camps(), Seeds(0))
    assert people.labels[train[1]].tolist() == (1 - two_camps().labels[two_camps().train[1]]).tolist()
    assert np.array_equal(people.labels[: len(two_camps().labels)], two_camps().labels)
    assert [each.tolist() for each in people.train] == [each.tolist() for each in two_camps().train]


def test_a_claim_weighs_and_changes_no_training() -> None:
    people, _, _ = seat(LabelFlip(NoParams()), Places(clients="1,2", claimed=10_000), two_camps(), Seeds(0))
    assert people.num_examples.tolist() == [30, 10_000, 10_000, 30, 30, 30]
    assert len(people.train[1]) == 30


def test_a_backdoor_is_judged_by_triggered_test_samples_of_honest_clients_in_attacked_clusters() -> None:
    """Every triggered image is bright twice; a model that always says 0 opens the door each time."""
    world = make_world(attacker=Patch(PatchParams(target=0)), places=Places(clients="5"))
    *_, last = rounds_of(world).play()
    assert world.attack is not None
    assert world.attack.attacked.tolist() == [1, 3]
    figures = judge_attack(last, world.attack)
    assert last.backdoors is not None
    assert last.evaluation is not None
    of_two = last.backdoors.correct[[1, 3]].sum() / last.backdoors.count[[1, 3]].sum()
    assert figures == {"attacked": last.evaluation.accuracy[[1, 3]].mean(), "backdoor": of_two}
    assert last.backdoors.count.tolist() == [
        int((world.population.labels[world.population.test[client]] != 0).sum()) for client in range(5)
    ]


def test_the_mean_of_the_true_clusters_is_right_in_both_camps_where_all_have_published() -> None:
    world = make_world(attacker=Absent(NoParams()), places=Places(clients="4,5"))
    run = rounds_of(world, name="dag-acfl", rounds=4)
    *_, last = run.play()
    alone = accuracy_of_cluster_means(world, run.strategy, last.evaluated)
    assert alone is not None
    assert alone > 0.9
    assert accuracy_of_cluster_means(world, run.strategy, np.arange(6)) is None, "two never publish"


def test_what_the_ledger_refuses_is_counted_for_honest_and_others_and_ends_no_run() -> None:
    world = make_world(attacker=Constant(value=3e38), places=Places(clients="5"))
    run = rounds_of(world, name="dag-acfl")
    list(run.play())
    figures = selection_figures(world, run.strategy)
    assert (figures["updates_refused"], figures["attacks_refused"]) == (0, 3)


def test_one_who_follows_acts_at_once_after_each_honest_result_of_its_cluster() -> None:
    attacker = Constant(value=0.1)
    world = make_world(attacker=attacker, places=Places(clients="5", timing="after-each"))
    run = run_of(world)
    intervals = list(run.play())
    record = list(run.strategy.servers.record)  # type: ignore[attr-defined]
    headers = [run.strategy.servers.record.transaction(each).header for each in record[1:]]  # type: ignore[attr-defined]
    authors = [run.strategy.servers.client_of(each.author) for each in headers]  # type: ignore[attr-defined]
    honest = [author for author in authors if author != 5]
    assert authors == [each for author in honest for each in ([author, 5] if author in (1, 3) else [author])]
    assert len(honest) > 10
    assert intervals[-1].evaluated.tolist() == [0, 1, 2, 3, 4]
    assert len(attacker.turns) == authors.count(5)


@pytest.mark.parametrize("timing", ["own", "after-each"])
def test_a_resumed_run_under_attack_goes_on_as_if_nothing_had_been(timing: str) -> None:
    def begun() -> AsynchronousRun:
        attacker = ATTACKERS.build("free-rider", {})
        return run_of(make_world(attacker=attacker, places=Places("4,5", timing=timing, quarantined_after=10)))

    whole, stopped, resumed = begun(), begun(), begun()
    expected = shown(list(whole.play()))
    list(islice(stopped.play(), 1))
    resumed.restore(stopped.state())
    assert shown(list(resumed.play())) == expected[1:]


def test_a_round_goes_on_with_what_was_seen() -> None:
    def begun() -> Rounds:
        return rounds_of(make_world(attacker=ATTACKERS.build("free-rider", {}), places=Places(clients="4,5")))

    whole, stopped, resumed = begun(), begun(), begun()
    expected = shown(list(whole.play()))
    list(islice(stopped.play(), 1))
    resumed.restore(stopped.state())
    assert shown(list(resumed.play())) == expected[1:]


def test_after_a_quarantine_the_others_have_nearly_what_they_would_have_without_the_attacker() -> None:
    """One whom its camp averages with, long steps and all; and one that resembles nobody, whom nobody ever takes."""

    def largest_values(attacker: Attacker) -> list[float]:
        world = make_world(attacker=attacker, places=Places(clients="5", quarantined_after=3))
        run = rounds_of(world, rounds=6, name="dag-acfl")
        return [float(np.abs(run.strategy.personal([0, 1, 2, 3]).models).max()) for _ in run.play()]

    taken, alone = largest_values(ATTACKERS.build("scaled-step", {"factor": 5.0})), largest_values(Constant())
    assert taken[2] > 1.5 * alone[2]
    assert taken[3:] == pytest.approx(alone[3:], rel=0.05), "a sixth of their second model was the attacker's"


# -- attackers, by numbers that a person can check --------------------------------------------------------


def turn_of(victims: list[list[float]], *, trained: list[float], start: list[float]) -> Turn:
    layout = make_world().trainer.layout
    zero = np.zeros(len(start), np.float32)
    near = [Published(client, zero, np.array(each, np.float32)) for client, each in enumerate(victims)]
    values = np.array(start, np.float32), np.array(trained, np.float32)
    return Turn(9, *values, near, [], layout, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("name", "params", "expected"),
    [
        ("scaled-step", {"factor": 10.0}, [11, 1]),
        ("scaled-step", {"factor": -2.0}, [-1, 1]),
        ("patch", {"boost": 3.0}, [4, 1]),
        ("small-norm", {"boost": 100.0, "factor": 0.5}, [2, 1]),  # the victims' median step is 2 long
        ("adaptive", {"against": "median", "boost": 100.0}, [2, 0]),
        ("adaptive", {"against": "trimmed-mean", "trim_share": 0.3, "boost": 100.0}, [2, 0]),
        ("adaptive", {"against": "trimmed-mean", "trim_share": 0.2, "boost": 100.0}, [3, 0]),
    ],
)
def test_what_it_hands_in(name: str, params: dict[str, JsonScalar], expected: list[float]) -> None:
    turn = turn_of([[1, 0], [2, 0], [3, 0]], trained=[2, 1], start=[1, 1])
    assert ATTACKERS.build(name, params).hand_in(turn).tolist() == expected


def test_a_little_is_one_deviation_against_the_common_step() -> None:
    turn = turn_of([[1, -2], [3, -2]], trained=[0, 0], start=[0, 0])
    assert ATTACKERS.build("little-is-enough", {}).hand_in(turn).tolist() == [1, -2]


def test_noise_is_as_long_as_it_is_told() -> None:
    turn = turn_of([[3, 4], [0, 5]], trained=[0, 0], start=[1, 1])
    noise = ATTACKERS.build("noise", {"factor": 2.0}).hand_in(turn) - turn.start
    assert np.linalg.norm(noise) == pytest.approx(10, rel=1e-5)


# -- what a scenario says ---------------------------------------------------------------------------------


def test_a_scenario_names_an_attack_and_its_places() -> None:
    said = {"attack": {"name": "patch", "clients": "8,17", "from_round": 10, "boost": 2.0}}
    scenario = read_scenario(said)
    assert read_scenario(scenario.sections()) == scenario
    assert scenario.sections()["attack"] == {
        "name": "patch", "target": 0, "side": 2, "share": 0.5, "boost": 2.0,
        "clients": "8,17", "from_round": 10, "timing": "own", "claimed": 0, "quarantined_after": 0.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("attack", "message"),
    [
        ({"clients": "1"}, "needs a name, one of absent"),
        ({"name": "patch", "clients": "a,b"}, "list of numbers"),
        ({"name": "patch", "clients": "1,1"}, "each once"),
        ({"name": "patch", "clients": ""}, "list of numbers"),
        ({"name": "patch", "colour": 1}, "colour"),
        ({"name": "by-moonlight"}, "unknown attacker"),
        ({"name": "patch", "quarantined_after": 3}, "asks for a ledger"),
    ],
)
def test_an_attack_that_cannot_be_is_refused(attack: dict[str, JsonScalar], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        read_scenario({"attack": attack, "strategy": {"name": "fedavg"}})


@pytest.mark.parametrize("clients", ["6", "0,1,2,3,4,5"])
def test_places_are_those_of_clients_and_leave_one_honest(clients: str) -> None:
    with pytest.raises(ScenarioError, match="there are 0 to 5"):
        seat(LabelFlip(NoParams()), Places(clients=clients), two_camps(), Seeds(0))


def test_fedavg_takes_another_aggregator_with_its_parameters() -> None:
    world = make_world(attacker=Constant(value=1e6), places=Places(clients="5"))
    params: dict[str, JsonScalar] = {"aggregator": "trimmed-mean", "aggregator.trim_share": 0.2}
    assert STRATEGIES.read_params("fedavg", params).write() == params
    strategy = STRATEGIES.build("fedavg", params, world)
    for number in range(3):
        strategy.round(number, np.arange(6))
    assert np.abs(strategy.personal([0]).models).max() < 100, "the liar's value is one of those dropped"
    with pytest.raises(ParameterError, match="colour"):
        STRATEGIES.read_params("fedavg", {"colour": 1})
