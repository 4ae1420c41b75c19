"""SDAGFL on a line, where a trained model lies half the way to its client, and in two camps that contradict each other."""

import numpy as np
import pytest

from fl_core.errors import ParameterError
from fl_core.types import JsonScalar
from fl_simulator.engine.world import World
from fl_simulator.strategies import STRATEGIES
from fl_simulator.strategies.ledger.base import LedgerStrategy
from fl_simulator.strategies.ledger.sdagfl import Sdagfl
from tests.simulations import make_point_world, make_world, two_camps

EVERYBODY = np.arange(4)
LOW_DAG: dict[str, JsonScalar] = {"depth_start": 1, "depth_end": 2, "particles": 2}
"""Walks begin so near the tips that a few rounds drop models."""
FROM_GENESIS: dict[str, JsonScalar] = {"depth_start": 1000, "depth_end": 1000}
"""No DAG here is so high."""


def line() -> World:
    """Clients at 0, 2, 10 and 12; a model within 1 of a client is right for it, every other one wrong."""
    return make_point_world([[0], [2], [10], [12]], samples=[1, 3, 1, 1])


def sdagfl(world: World, rounds: int = 0, *, participants: np.ndarray = EVERYBODY, **params: JsonScalar) -> Sdagfl:
    strategy = STRATEGIES.build("sdagfl", params, world)
    assert isinstance(strategy, Sdagfl)
    for number in range(rounds):
        strategy.round(number, participants)
    return strategy


def published(strategy: Sdagfl) -> list[tuple[int, tuple[str, ...], float]]:
    """Who published, the parents, and the first value of the model."""
    record = strategy.servers.record
    rows = []
    for identity in list(record)[1:]:
        header = record.transaction(identity).header
        client = strategy.servers.client_of(header.author)
        assert client is not None
        rows.append((client, header.parents, float(record.vector(identity)[0])))
    return rows


def models_of(strategy: Sdagfl, clients: np.ndarray = EVERYBODY) -> np.ndarray:
    personal = strategy.personal(clients)
    return personal.models[personal.rows]


def test_the_first_round_trains_from_genesis_and_has_it_as_only_parent() -> None:
    strategy = sdagfl(line(), 1)
    genesis = strategy.servers.id
    assert published(strategy) == [
        (0, (genesis,), 0.0),
        (1, (genesis,), 1.0),
        (2, (genesis,), 5.0),
        (3, (genesis,), 6.0),
    ]


def test_a_round_sees_the_dag_as_it_was_when_the_round_began() -> None:
    strategy = sdagfl(line(), 2)
    first, second = published(strategy)[:4], published(strategy)[4:]
    order = list(strategy.servers.record)
    assert {parent for _, parents, _ in second for parent in parents} <= set(order[1 : 1 + len(first)])


@pytest.mark.parametrize("params", [{"depth_start": 1, "depth_end": 9}, FROM_GENESIS])
def test_training_starts_from_the_plain_mean_of_both_tips_whatever_their_samples(params: dict[str, JsonScalar]) -> None:
    strategy = sdagfl(line(), 6, **params)
    record, homes = strategy.servers.record, [0.0, 2.0, 10.0, 12.0]
    numbers_of_parents = set()
    for client, parents, value in published(strategy):
        begun = np.mean([float(record.vector(parent)[0]) for parent in parents])  # client 1's 3 samples weigh nothing
        assert value == pytest.approx((begun + homes[client]) / 2)
        numbers_of_parents.add(len(parents))
    assert numbers_of_parents == {1, 2}


def test_both_walks_prefer_the_only_tip_that_is_right() -> None:
    strategy = sdagfl(line(), 1, alpha=1e4)  # tips at 0, 1, 5 and 6; client 0 is right within 1, client 1 within 1 of 2
    assert models_of(strategy)[0] == 0.0  # of 0 and 1, 1 is not nearer than 1
    choices = sdagfl(line(), 2, alpha=1e4).choices
    assert choices[0].offered.tolist() == [1, 2, 3]
    assert choices[0].taken.tolist() == []  # its own tip, twice
    assert choices[0].similarities.shape == (0,)


def test_it_can_be_looked_at_like_all_that_meet_on_a_ledger() -> None:
    strategy = sdagfl(line())
    assert isinstance(strategy, LedgerStrategy)
    assert strategy.choices == ()
    strategy.round(0, np.array([1, 3]))
    assert [(each.client, each.offered.tolist(), each.taken.tolist()) for each in strategy.choices] == [
        (1, [], []),
        (3, [], []),
    ]


def test_a_new_transaction_is_sent_to_all_other_clients_once() -> None:
    world = line()
    strategy = sdagfl(world)
    traffic = strategy.round(0, np.array([0, 2]))
    extra = strategy.servers.record.newest_information_bytes
    assert (traffic.up, traffic.down, traffic.between_servers) == (2 * 3 * (world.model_bytes + extra), 0, 0)


def test_in_two_camps_walks_come_to_the_own_one() -> None:
    world, everybody = make_world(), np.arange(6)
    biased, blind = (sdagfl(world, 12, participants=everybody, alpha=alpha) for alpha in (10.0, 0.0))
    foreign = [
        np.mean([taken % 2 != choice.client % 2 for choice in strategy.choices for taken in choice.taken])
        for strategy in (biased, blind)
    ]
    assert foreign[0] < 0.2 < foreign[1]
    right = [
        world.evaluate(models_of(strategy, everybody), everybody, everybody).accuracy.mean()
        for strategy in (biased, blind)
    ]
    assert right[0] > 0.85 > right[1]


def test_models_that_no_walk_can_ask_for_are_dropped_and_no_others() -> None:
    low, whole = (sdagfl(line(), 12, **params) for params in (LOW_DAG, FROM_GENESIS))
    assert whole.servers.record.pruned == 0
    assert low.servers.record.pruned > 12  # of 48
    for number in range(12, 24):  # every model that is asked for is there
        models_of(low)
        low.round(number, EVERYBODY)


@pytest.mark.parametrize("params", [LOW_DAG, FROM_GENESIS])
def test_a_run_that_was_restored_after_models_were_dropped_goes_on_as_the_other(params: dict[str, JsonScalar]) -> None:
    everybody = np.arange(6)
    whole = sdagfl(make_world(), 8, participants=everybody, **params)
    resumed = sdagfl(make_world(), **params)
    resumed.restore(whole.state())
    assert same_state(whole, resumed)
    for number in range(8, 12):
        traffic = [strategy.round(number, everybody) for strategy in (whole, resumed)]
        assert traffic[0] == traffic[1]
    assert list(whole.servers.record) == list(resumed.servers.record)
    assert np.array_equal(models_of(whole, everybody), models_of(resumed, everybody))
    assert same_state(whole, resumed)


def same_state(one: Sdagfl, other: Sdagfl) -> bool:
    first, second = one.state(), other.state()
    return first.keys() == second.keys() and all(np.array_equal(first[key], second[key]) for key in first)


def test_nobody_rates_by_more_samples_than_asked() -> None:
    population = two_camps()  # 30 training samples each
    spoilt = two_camps()
    for rows in spoilt.train:
        spoilt.labels[rows[5:]] ^= 1
    for rating_samples, alike in ((5, True), (30, False)):
        ends = []
        for people in (population, spoilt):
            strategy = sdagfl(make_world(population), 3, participants=np.arange(6), rating_samples=rating_samples)
            other = sdagfl(make_world(people), rating_samples=rating_samples)
            state = strategy.state()
            other.restore({**state, "rated": state["rated"][:0], "ratings": state["ratings"][:0]})
            ends.append(models_of(other, np.arange(6)))
        assert np.array_equal(*ends) is alike


def test_asking_for_models_is_repeatable_until_the_next_round() -> None:
    strategy, silent = (sdagfl(make_world(), 6, participants=np.arange(6), alpha=0.0) for _ in range(2))
    asked = [models_of(strategy, np.arange(6)) for _ in range(2)]
    assert np.array_equal(*asked)
    assert same_state(strategy, silent)
    assert len({model.tobytes() for model in asked[0]}) > 1  # each client walks by draws of its own


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"depth_start": 5, "depth_end": 4}, "depth_end \\(4\\) must be at least depth_start \\(5\\)"),
        ({"alpha": -1.0}, "at least 0"),
    ],
)
def test_parameters_that_make_no_walk_are_refused(params: dict[str, JsonScalar], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        STRATEGIES.build("sdagfl", params, line())
