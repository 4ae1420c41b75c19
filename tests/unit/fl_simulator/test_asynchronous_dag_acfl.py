"""DAG-ACFL without rounds: joining, gossip in virtual time, roaming, and that nobody meets the wrong camp."""

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from fl_core.types import JsonScalar
from fl_simulator.engine.asynchronous import AsynchronousRun
from fl_simulator.engine.conditions import Conditions, ConditionsParams
from fl_simulator.engine.evaluation import Interval, Schedule
from fl_simulator.engine.world import World
from fl_simulator.strategies import STRATEGIES
from fl_simulator.strategies.asynchronous import ASYNCHRONOUS_STRATEGIES
from fl_simulator.strategies.asynchronous.dag_acfl import AsynchronousDagAcfl
from fl_simulator.strategies.ledger.base import LedgerStrategy
from fl_simulator.strategies.merging import decdiff
from fl_simulator.strategies.protocol import Traffic
from tests.simulations import make_world, two_camps

PLAIN: dict[str, JsonScalar] = {"selector": "least-squares"}
"""A selector without chance, and fast."""


def begun(params: Mapping[str, JsonScalar] | None = None, *, world: World | None = None) -> AsynchronousDagAcfl:
    made = ASYNCHRONOUS_STRATEGIES.build("dag-acfl", {**PLAIN, **(params or {})}, world or make_world())
    assert isinstance(made, AsynchronousDagAcfl)
    return made


def work(strategy: AsynchronousDagAcfl, client: int, *, start: float, finish: float, value: float = 1.0) -> None:
    """A client starts and finishes with a model in a direction of its own."""
    model = strategy.start(client, now=start).model
    direction = np.linspace(-1, 1, len(model), dtype=np.float32)
    strategy.finish(client, np.float32(value) * direction, now=finish)


def join(strategy: AsynchronousDagAcfl, client: int, *, at: float) -> None:
    """A client trains first, asks, and publishes."""
    work(strategy, client, start=at, finish=at)
    work(strategy, client, start=at, finish=at)


def offered(strategy: AsynchronousDagAcfl) -> list[int]:
    return sorted(strategy.choices[-1].offered.tolist())


def test_a_joiner_trains_first_then_asks_with_its_model_and_then_with_a_hash() -> None:
    world = make_world(epochs=3)
    strategy, size = begun(world=world), world.model_bytes
    assert strategy.question_bytes(2) == 0
    first = strategy.start(2, now=0.0)
    assert np.array_equal(first.model, world.initial_model())
    assert (first.epochs, first.down_bytes, first.up_bytes) == (3, size, 0)
    mine = first.model + 1
    strategy.finish(2, mine, now=1.0)
    assert len(strategy.servers.record) == 1
    assert strategy.traffic == Traffic(down=size)
    assert strategy.question_bytes(2) == 32 + size
    second = strategy.start(2, now=1.0)
    assert np.array_equal(second.model, mine)  # nobody else is there
    assert (second.epochs, second.down_bytes, second.up_bytes) == (None, size, size)
    strategy.finish(2, mine + 1, now=2.0)
    assert len(strategy.servers.record) == 2
    assert strategy.question_bytes(2) == 32
    assert strategy.traffic == Traffic(up=32 + size + size, down=size + size + 32)


def test_who_has_trained_first_is_judged_by_what_it_would_be_given() -> None:
    strategy = begun()
    genesis = strategy.start(2, now=0.0).model
    before = strategy.personal([2], now=0.5)
    assert np.array_equal(before.models[before.rows][0], genesis)
    strategy.finish(2, genesis + 1, now=1.0)
    after = strategy.personal([2], now=1.0)
    assert np.array_equal(after.models[after.rows][0], genesis + 1)
    assert np.array_equal(strategy.start(2, now=1.0).model, genesis + 1)


def test_a_joiner_whose_first_work_is_lost_begins_again() -> None:
    strategy = begun({"join": "random"})
    first, again = strategy.start(2, now=0.0), strategy.start(2, now=5.0)
    assert np.array_equal(first.model, again.model)
    assert again.up_bytes == again.down_bytes == 0
    strategy.finish(2, again.model, now=6.0)
    assert strategy.start(2, now=6.0).up_bytes > 0
    assert strategy.start(2, now=9.0).up_bytes > 0  # that was lost, too; what it asks with is not
    assert len(strategy.servers.record) == 1


def test_decdiff_merges_into_what_a_joiner_asks_with() -> None:
    world = make_world()
    strategy = begun({"merge": "decdiff", "join": "random", "selector": "top-k"}, world=world)
    join(strategy, 0, at=0.0)
    work(strategy, 1, start=1.0, finish=2.0, value=-3.0)
    mine = strategy._joined[1]
    (tip,) = strategy.servers.nodes[0].candidate_rule.candidates(None)
    mean = strategy.servers.aggregate([tip.transaction])
    assert np.array_equal(strategy.start(1, now=2.0).model, decdiff(mine, mean, s=1.0))
    personal = strategy.personal([1], now=2.0)
    assert np.array_equal(personal.models[personal.rows[0]], decdiff(mine, mean, s=1.0))


def test_a_selection_is_made_of_what_is_there_when_the_question_arrives() -> None:
    strategy = begun()
    join(strategy, 0, at=0.0)
    work(strategy, 1, start=0.0, finish=1.0)
    strategy.start(1, now=2.0)
    assert offered(strategy) == [0]
    join(strategy, 2, at=3.0)
    strategy.finish(1, strategy.servers.record.vector(strategy.servers.id) + 1, now=4.0)
    parents = strategy.servers.record.transaction(list(strategy.servers.record)[-1]).header.parents
    authors = [strategy.servers.client_of(strategy.servers.record.transaction(each).header.author) for each in parents]
    assert 2 not in authors
    strategy.start(1, now=5.0)
    assert 2 in offered(strategy)


def test_another_servers_transactions_are_offered_when_gossip_has_brought_them() -> None:
    """Clients 0 and 2 call on server 0, client 1 on server 1, to which it is 10 s."""
    strategy = begun({"servers": 2, "gossip_delay": 10.0})
    join(strategy, 0, at=0.0)
    work(strategy, 1, start=1.0, finish=2.0)
    work(strategy, 2, start=1.0, finish=2.0)
    strategy.start(1, now=9.0)
    assert offered(strategy) == []
    strategy.start(2, now=9.0)
    assert offered(strategy) == [0]
    strategy.start(1, now=10.0)
    assert offered(strategy) == [0]


def test_asking_for_models_brings_what_has_arrived() -> None:
    strategy = begun({"servers": 2, "gossip_delay": 10.0})
    join(strategy, 0, at=0.0)
    join(strategy, 1, at=1.0)
    strategy.personal([1], now=9.0)
    assert len(strategy.servers.nodes[1].ledger) == 2  # genesis and its own
    strategy.personal([1], now=10.0)
    assert len(strategy.servers.nodes[1].ledger) == 3


def test_who_roams_asks_and_publishes_elsewhere() -> None:
    strategy = begun({"servers": 3, "gossip_delay": 1000.0, "roaming": 1.0})
    visited = []
    for number in range(12):
        work(strategy, 4, start=number, finish=number + 0.5, value=number + 1)
        visited.append(strategy.servers.server_of(4))
    assert set(visited) == {0, 1, 2}
    assert all(one != other for one, other in pairwise(visited[1:]))  # the first only joined
    counts = [len(replica.ledger) for replica in strategy.servers.nodes]
    assert sum(counts) == 3 + 11
    assert counts == [1 + visited[1:].count(server) for server in range(3)]


def test_who_does_not_roam_stays() -> None:
    strategy = begun({"servers": 3})
    for number in range(5):
        work(strategy, 4, start=number, finish=number)
    assert strategy.servers.server_of(4) == 1


def test_two_that_keep_their_own_models_on_a_server_that_does_not_know_them_keep_each_its_own() -> None:
    """Both published on server 0 and turned to server 1, which has heard of neither: both would approve genesis."""
    strategy = begun({"servers": 2, "gossip_delay": 1000.0})
    for client in (0, 2):
        work(strategy, client, start=0.0, finish=0.0)
        work(strategy, client, start=0.0, finish=1.0, value=client + 1.0)
        strategy.servers.move(client, 1)
    personal = strategy.personal([0, 2], now=2.0)
    assert not np.array_equal(*personal.models[personal.rows])


def run(
    world: World, params: Mapping[str, JsonScalar], conditions: Mapping[str, JsonScalar], duration_s: float
) -> AsynchronousRun:
    made = Conditions(ConditionsParams.read(conditions, owner="test"), world.seeds, world.num_clients)
    schedule = Schedule(duration_s=duration_s, evaluate_every_s=duration_s / 4)
    return AsynchronousRun(world, begun(params, world=world), made, schedule)


def test_in_step_it_is_dag_acfl_in_rounds() -> None:
    """All as fast, no latency: everybody publishes at the same time, and asks then. Sums differ in their order."""
    world, rounds = make_world(), 5
    size = world.model_bytes
    rates: dict[str, JsonScalar] = {
        "latency.typical": 0.0,
        "up.typical": float(size),
        "down.typical": float(size),
        "speed.typical": 30.0,
    }
    # 30 samples: a second; fetch, train, ask with hash and model; then model, train, model, hash.
    hash_s = 32 / size
    joined = 1 + 1 + 1 + hash_s
    whole = run(world, {}, rates, joined + rounds * 3 + (rounds - 1) * hash_s + hash_s / 2)
    intervals = list(whole.play())
    assert sum(interval.results for interval in intervals) == 6 * rounds
    strategy = whole.strategy
    assert isinstance(strategy, AsynchronousDagAcfl)
    synchronous = STRATEGIES.build("dag-acfl", PLAIN, make_world())
    for number in range(rounds):
        synchronous.round(number, np.arange(6))
    mine, theirs = strategy.personal(range(6), now=100.0), synchronous.personal(range(6))
    np.testing.assert_allclose(mine.models[mine.rows], theirs.models[theirs.rows], atol=1e-5)
    assert isinstance(synchronous, LedgerStrategy)
    assert len(strategy.servers.record) == len(synchronous.servers.record)


CHURN: dict[str, JsonScalar] = {
    "speed": "uniform", "speed.typical": 60.0, "availability": "alternating", "availability.on_s": 30.0,
    "availability.off_s": 10.0, "membership.joining": 0.3, "membership.join_until_s": 60.0, "work.failures": 0.05,
}  # fmt: skip


def test_under_churn_nobody_is_given_the_other_camps_model() -> None:
    world = make_world(two_camps(clients=10))
    playing = run(world, {"servers": 2, "gossip_delay": 2.0, "roaming": 0.3}, CHURN, 100.0)
    camps = world.population.clusters
    choices = []
    last: Interval | None = None
    for last in playing.play():
        assert isinstance(playing.strategy, LedgerStrategy)
        if last.number:  # in the first quarter they find each other
            choices += list(playing.strategy.choices)
    assert len(choices) > 400
    foreign = [choice for choice in choices if (camps[choice.taken] != camps[choice.client]).any()]
    assert not foreign
    assert last is not None
    assert last.evaluation is not None
    assert last.evaluation.accuracy.min() > 0.8
    assert last.lost > 0


def test_a_resumed_run_goes_on_as_if_nothing_had_been() -> None:
    params: dict[str, JsonScalar] = {"servers": 3, "gossip_delay": 3.0, "roaming": 0.5}
    people = two_camps(clients=8)
    whole, stopped, resumed = (run(make_world(people), params, CHURN, 60.0) for _ in range(3))
    all_moments = list(whole.play())
    going = stopped.play()
    before = [next(going) for _ in range(2)]
    resumed.restore({key: value.copy() for key, value in stopped.state().items()})
    intervals = before + list(resumed.play())
    for one, other in zip(all_moments, intervals, strict=True):
        assert (one.results, one.lost, one.traffic) == (other.results, other.lost, other.traffic)
        assert one.evaluation is not None
        assert other.evaluation is not None
        assert np.array_equal(one.evaluation.loss_sum, other.evaluation.loss_sum)
    assert isinstance(whole.strategy, LedgerStrategy)
    assert isinstance(resumed.strategy, LedgerStrategy)
    assert list(whole.strategy.servers.record) == list(resumed.strategy.servers.record)  # ids hold every byte
