"""DAG-ACFL on a line: clients at 4, 8, -4 and -8 draw a model half the way to where they are; genesis is at 0."""

from dataclasses import replace

import numpy as np
import pytest

from fl_core.dag.genesis import Component, compare_layers
from fl_core.errors import ParameterError
from fl_core.types import JsonScalar
from fl_simulator.engine.population import holding_out
from fl_simulator.strategies import STRATEGIES
from fl_simulator.strategies.ledger.dag_acfl import DagAcfl, DagAcflParams
from tests.simulations import make_point_world, make_world, two_camps

EVERYBODY = np.arange(4)
SELECTORS: list[dict[str, JsonScalar]] = [
    {"selector": "top-k", "selector.k": 1},
    {"selector": "beast"},
    {"selector": "least-squares"},
    {"selector": "largest-gap"},
]


def dag(**params: JsonScalar) -> DagAcfl:
    strategy = STRATEGIES.build("dag-acfl", params, make_point_world([[4], [8], [-4], [-8]]))
    assert isinstance(strategy, DagAcfl)
    return strategy


def published(strategy: DagAcfl) -> list[float]:
    newest = [strategy.servers.newest(client) for client in range(4)]
    return [float("nan") if model is None else float(model[0]) for model in newest]


def given(strategy: DagAcfl) -> list[float]:
    personal = strategy.personal(EVERYBODY)
    return personal.models[personal.rows].ravel().tolist()


def test_joiners_train_from_genesis_find_nobody_and_go_on_with_their_own_model() -> None:
    strategy = dag()
    strategy.round(0, EVERYBODY)  # E' = 1: 2, 4, -2, -4; then E = 1
    assert published(strategy) == [3.0, 6.0, -3.0, -6.0]
    parents = [node.parents for node in strategy.servers.nodes[0].graph if node.parents]
    assert parents == [(strategy.servers.id,)] * 4


@pytest.mark.parametrize("params", SELECTORS, ids=lambda params: str(params["selector"]))
def test_a_client_is_given_the_mean_of_its_own_update_and_its_like(params: dict[str, JsonScalar]) -> None:
    strategy = dag(**params)
    strategy.round(0, EVERYBODY)
    assert given(strategy) == [4.5, 4.5, -4.5, -4.5]
    strategy.round(1, EVERYBODY)
    assert published(strategy) == [4.25, 6.25, -4.25, -6.25]
    assert [choice.taken.tolist() for choice in strategy.choices] == [[1], [0], [3], [2]]
    assert [set(choice.offered.tolist()) for choice in strategy.choices] == [{1, 2, 3}, {0, 2, 3}, {0, 1, 3}, {0, 1, 2}]


def test_everybody_sees_the_ledger_as_of_the_round_s_start() -> None:
    strategy = dag(selector="top-k")
    strategy.round(0, np.array([0]))
    strategy.round(1, np.array([1]))
    # Client 1 joins with 4, is given 3, and trains that to 5.5. Had it seen its own round, there would be more to take.
    assert published(strategy)[:2] == [3.0, 5.5]


def test_bytes_are_those_of_equation_8_and_of_the_models_with_which_joiners_ask() -> None:
    strategy = dag(servers=3)
    model = strategy.servers.genesis.layout.nbytes
    first = strategy.round(0, EVERYBODY)
    again = strategy.round(1, EVERYBODY)
    assert (first.up, first.down) == (4 * (32 + model) + 4 * model, 4 * (model + 32))
    assert (again.up, again.down) == (4 * (32 + model), 4 * (model + 32))
    extra = strategy.servers.record.newest_information_bytes
    assert again.between_servers == 4 * 2 * (model + extra)


def test_with_a_delay_of_a_round_another_server_s_clients_are_seen_a_round_later() -> None:
    strategy = dag(selector="top-k", servers=2, gossip_delay=1.0)
    strategy.round(0, EVERYBODY)  # clients 0 and 2 call on one server, 1 and 3 on the other
    strategy.servers.advance(0)
    assert given(strategy)[0] == 0.0  # of 3 and -3, the only tips here
    strategy.servers.advance(1)
    assert len(strategy.servers.nodes[0].candidate_rule.candidates(None)) == 4


def test_random_joiners_begin_each_with_a_model_of_its_own() -> None:
    strategy = STRATEGIES.build("dag-acfl", {"join": "random"}, make_point_world([[4], [4]], spread=1.0))
    strategy.round(0, np.arange(2))
    personal = strategy.personal([0, 1])
    assert isinstance(strategy, DagAcfl)
    first, second = (strategy.servers.newest(client) for client in (0, 1))
    assert first is not None
    assert second is not None
    assert first[0] != second[0]
    assert personal.models.shape[1] == 1


@pytest.mark.parametrize(("worse_than", "refused"), [(0.05, 6), (1.0, 0)])
def test_clients_refuse_averages_that_are_worse_on_samples_that_they_hold_out(worse_than: float, refused: int) -> None:
    people = holding_out(two_camps(samples=80), 1 / 3, rng=np.random.default_rng(0))
    assert [len(rows) for rows in people.held_out] == [20] * 6
    params: dict[str, JsonScalar] = {"selector": "top-k", "selector.k": 5, "refuse_worse_than": worse_than}
    strategy = STRATEGIES.build("dag-acfl", params, make_world(people, epochs=10))
    assert isinstance(strategy, DagAcfl)
    for number in range(2):  # what three have learnt, three others have unlearnt: the mean of all knows nothing
        strategy.round(number, np.arange(6))
    newest = [strategy.servers.nodes[0].graph.newest_of(author) for author in strategy.servers.authors]
    assert [len(node.parents) for node in newest if node] == ([1] if refused else [6]) * 6
    assert int(strategy.refusals.sum()) == refused
    assert strategy.figures(evaluated=False).get("averages_refused") == (refused or None)
    again = STRATEGIES.build("dag-acfl", params, make_world(people, epochs=10))
    again.restore(strategy.state())
    assert again.figures(evaluated=False) == strategy.figures(evaluated=False)
    assert np.array_equal(again.personal(range(6)).models, strategy.personal(range(6)).models)


def test_a_simulated_ledger_compares_as_a_new_one_does_unless_layers_are_named() -> None:
    world = make_point_world([[4]])
    (name,) = (tensor.name for tensor in world.trainer.layout.tensors)
    for layers, expected in (((), Component("all")), ((name,), compare_layers([name]))):
        strategy = STRATEGIES.build("dag-acfl", {}, replace(world, similarity_layers=layers))
        assert isinstance(strategy, DagAcfl)
        assert strategy.servers.nodes[0].genesis.comparison == expected


def test_gain_of_a_random_joiner_is_the_root_of_the_participants_that_its_server_knows() -> None:
    points = [[4.0]] * 4
    plain, gained = (
        STRATEGIES.build(
            "dag-acfl", {"join": "random", "selector": "top-k", "gain": gain}, make_point_world(points, spread=1.0)
        )
        for gain in ("none", "participants")
    )
    assert isinstance(plain, DagAcfl)
    assert isinstance(gained, DagAcfl)
    for number, comer in enumerate([[0], [1, 2], [0, 3]]):  # known before it: nobody, one, three
        ratio = gained._joiner_model(comer[-1]) / plain._joiner_model(comer[-1])
        assert ratio.tolist() == pytest.approx([[1.0], [2**0.5], [2.0]][number])
        for strategy in (plain, gained):
            strategy.round(number, np.array(comer))


def test_more_participants_than_there_are_can_be_expected() -> None:
    params: dict[str, JsonScalar] = {"join": "random", "selector": "top-k", "gain": "participants", "participants": 9}
    strategy = STRATEGIES.build("dag-acfl", params, make_point_world([[4]], spread=1.0))
    assert isinstance(strategy, DagAcfl)
    world = make_point_world([[4]], spread=1.0)
    assert strategy._joiner_model(0).tolist() == pytest.approx((3 * world.initial_model(1)).tolist())


def test_gain_without_models_of_one_s_own_is_refused() -> None:
    with pytest.raises(ParameterError, match='join = "random"'):
        dag(gain="participants")


def test_decdiff_goes_on_from_the_own_model_moved_towards_the_mean() -> None:
    strategy = dag(**{"selector": "top-k", "selector.k": 1, "merge": "decdiff"})
    strategy.round(0, EVERYBODY)
    # 3 and 6 have the mean 4.5, 1.5 away from each: a step of 1.5 / (1.5 + 1).
    assert given(strategy) == pytest.approx([3.6, 5.4, -3.6, -5.4])
    strategy.round(1, EVERYBODY)
    assert published(strategy) == pytest.approx([3.8, 6.7, -3.8, -6.7])
    # What was approved is the same as without: both tips.
    assert all(len(node.parents) == 2 for node in strategy.servers.nodes[0].graph if node.depth > 1)


def test_the_merge_s_parameters_have_its_name_before_them() -> None:
    strategy = dag(
        **{"selector": "top-k", "selector.k": 1, "merge": "decdiff", "merge.s": 2, "merge.distance": "tensor"}
    )
    strategy.round(0, EVERYBODY)
    assert given(strategy)[0] == pytest.approx(3 + 1.5 / 3.5)
    with pytest.raises(ParameterError, match="no parameter 'pace'"):
        dag(**{"merge": "decdiff", "merge.pace": 2})


def test_parameters_are_written_out_as_they_are_read() -> None:
    given_params: dict[str, JsonScalar] = {"join": "random", "gain": "participants", "merge": "decdiff", "merge.s": 2.0}
    written = DagAcflParams.read(given_params, owner="test").write()
    assert written.items() >= {**given_params, "merge.distance": "model", "participants": 0}.items()
    assert DagAcflParams.read(written, owner="test").write() == written
