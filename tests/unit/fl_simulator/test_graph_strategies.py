"""Strategies on a graph: each equation by hand on two or three nodes, and against its naive twin on any graph.

A model is a point, and training draws it half the way to its node's own (``tests.simulations.make_point_world``); the
gradient at w is w minus that point, and the learning rate is 1/2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_core.errors import ParameterError
from fl_core.types import JsonScalar
from fl_simulator.engine.world import World
from fl_simulator.errors import ScenarioError
from fl_simulator.graphs.graph import Graph
from fl_simulator.graphs.links import Links
from fl_simulator.strategies import STRATEGIES, decentralised_names
from fl_simulator.strategies.decentralised.base import DecentralisedStrategy, Dynamics
from fl_simulator.strategies.protocol import Strategy
from tests.reference import graph_strategies as naive
from tests.simulations import circle, make_point_world, make_world

PATH = Graph.from_edges(3, [(0, 1), (1, 2)])
PAIR = Graph.from_edges(2, [(0, 1)])
EVERYBODY = np.arange(3)
SHARED: Mapping[str, JsonScalar] = {"init": "shared"}
TRAIN_AND_AGGREGATE = ["cfa", "cfa-ge", "decavg", "decdiff"]


def path(points: Sequence[float] = (8.0, 0.0, 4.0), *, samples: Sequence[int] = (1, 1, 1)) -> World:
    """Three nodes in a row that want to be at these points, and begin at the origin."""
    return make_point_world([(x, 0.0) for x in points], samples=samples, graph=PATH)


def played(name: str, params: Mapping[str, JsonScalar], world: World, rounds: int) -> Strategy:
    strategy = STRATEGIES.build(name, params, world)
    for number in range(rounds):
        strategy.round(number, np.arange(world.num_clients))
    return strategy


def models_of(strategy: Strategy, count: int = 3) -> np.ndarray:
    personal = strategy.personal(np.arange(count))
    return personal.models[personal.rows]


def first_coordinates(strategy: Strategy, count: int = 3) -> list[float]:
    return [round(float(x), 6) for x in models_of(strategy, count)[:, 0]]


MODEL_BYTES = path().model_bytes


# -- by hand ---------------------------------------------------------------------------------------------
# All begin at 0; after a round's training nodes are at 4, 0 and 2, half the way to 8, 0 and 4.


@pytest.mark.parametrize("name", TRAIN_AND_AGGREGATE)
def test_in_the_first_round_nobody_has_heard_anything(name: str) -> None:
    assert first_coordinates(played(name, {}, path(), 1)) == [4, 0, 2]


def aggregating_first(world: World) -> DecentralisedStrategy:
    """DecAvg whose three nodes begin at 0, 6 and 12, and aggregate before they train."""
    strategy = STRATEGIES.build("decavg", {"first_step": "aggregation"}, world)
    assert isinstance(strategy, DecentralisedStrategy)
    strategy.models[:, 0] = [0, 6, 12]
    return strategy


def test_nodes_may_aggregate_first_models_before_anybody_trains() -> None:
    strategy = aggregating_first(path())
    traffic = strategy.round(0, EVERYBODY)
    # Averages (0 + 6) / 2, (0 + 6 + 12) / 3, (6 + 12) / 2, and from there half the way to 8, 0, 4.
    assert first_coordinates(strategy) == [5.5, 3, 6.5]
    assert traffic.up == (4 + 4) * MODEL_BYTES, "first models and trained ones, over two links each way"
    assert strategy.round(1, EVERYBODY).up == 4 * MODEL_BYTES


def test_first_models_travel_only_over_links_that_are_up() -> None:
    strategy = aggregating_first(replace(path(), graph_links=Links(nodes_up=1e-9)))
    assert strategy.round(0, EVERYBODY).up == 0
    assert first_coordinates(strategy) == [4, 3, 8], "half the way to 8, 0, 4 from where each began"


def test_decavg_replaces_a_model_by_its_neighbourhoods_average() -> None:
    # Averages (4 + 0) / 2, (4 + 0 + 2) / 3, (0 + 2) / 2, and from there half the way to 8, 0, 4.
    assert first_coordinates(played("decavg", {"evaluate_on": "aggregated"}, path(), 1)) == [2, 2, 1]
    assert first_coordinates(played("decavg", {}, path(), 2)) == [5, 1, 2.5]


def test_decavg_by_metropolis_hastings_weighs_by_degrees_alone() -> None:
    # Node 1 has degree 2, so both links weigh 1/3: 2/3·4, (4 + 0 + 2) / 3, 2/3·2
    world = path(samples=(3, 1, 2))
    params: Mapping[str, JsonScalar] = {"evaluate_on": "aggregated", "weights": "metropolis"}
    assert first_coordinates(played("decavg", params, world, 1)) == [2.666667, 2, 1.333333]


def test_decdiff_steps_towards_the_neighbours_average_by_distance_over_distance_plus_s() -> None:
    # Averages of neighbours: 0, (4 + 2) / 2 = 3, 0, at distances 4, 3, 2: steps of 4/5, 3/4, 2/3.
    params: Mapping[str, JsonScalar] = {"evaluate_on": "aggregated"}
    assert first_coordinates(played("decdiff", params, path(), 1)) == [3.2, 0.75, 1.333333]
    assert first_coordinates(played("decdiff", {**params, "s": 4.0}, path(), 1)) == [3.5, 0.428571, 1.666667]


def test_decdiff_by_tensor_has_a_distance_for_each_tensor() -> None:
    world = make_world(graph=circle(6))
    whole, layered = (
        models_of(played("decdiff", {"distance": distance, "evaluate_on": "aggregated"}, world, 1), 6)
        for distance in ("model", "tensor")
    )
    own = models_of(played("decdiff", {}, world, 1), 6)
    average = (np.roll(own, 1, axis=0) + np.roll(own, -1, axis=0)) / 2  # all have as many examples
    for tensor in (slice(0, 2), slice(2, 6)):  # biases, then weights
        distance = np.linalg.norm((average - own)[:, tensor], axis=1, keepdims=True)
        assert layered[:, tensor] == pytest.approx(
            own[:, tensor] + (average - own)[:, tensor] / (distance + 1), abs=1e-6
        )
    assert not np.allclose(whole, layered)


def test_cfa_moves_by_one_over_its_degree_towards_its_neighbours_average() -> None:
    # ε is 1, 1/2, 1: node 0 to 0, node 1 from 0 half the way to 3, node 2 to 0.
    assert first_coordinates(played("cfa", {"evaluate_on": "aggregated"}, path(), 1)) == [0, 1.5, 0]


def test_cfa_ge_applies_gradients_of_the_round_before() -> None:
    world = path()
    once, twice = (played("cfa-ge", {"evaluate_on": "aggregated"}, world, rounds) for rounds in (1, 2))
    assert first_coordinates(once) == [0, 1.5, 0], "nobody had heard a model before the first round"
    trained = np.array([4, 0.75, 2])  # from 0, 1.5, 0 half the way to 8, 0, 4
    # CFA again: node 0 to 0.75, node 1 half the way to 3, node 2 to 0.75; then against half the mean gradient,
    # by its neighbours' data, of what each sent in round 0: 4 - 0, 0 - (8 + 4) / 2, 2 - 0.
    aggregated = np.array([trained[1], (trained[1] + 3) / 2, trained[1]])
    assert first_coordinates(twice) == (aggregated - 0.5 * np.array([4, -6, 2])).tolist()


def test_d_sgd_averages_gradients_over_the_clique_alone() -> None:
    cliques = Graph.from_edges(3, [(0, 1), (1, 2)], cliques=((0, 1), (2,)))
    # Averaged -4, -4, -4 (the third is alone in its clique); steps to 2, 2, 2.
    strategy = played("d-sgd", {}, replace(path(), graph=cliques), 1)
    assert first_coordinates(strategy) == [2, 2, 2]
    assert isinstance(strategy, DecentralisedStrategy)
    assert strategy.figures(evaluated=False)["messages"] == (4 + 2) / 3, (
        "a model over each of four arcs, a gradient over two"
    )


def test_d_sgd_averages_gradients_over_those_edges_of_a_clique_that_were_not_removed() -> None:
    # One clique of three whose ends do not hear each other: averages are those of the neighbourhood, -4, -4, -2.
    thinned = Graph.from_edges(3, [(0, 1), (1, 2)], cliques=((0, 1, 2),))
    strategy = played("d-sgd", {}, replace(path(), graph=thinned), 1)
    assert first_coordinates(strategy) == [2, 1.666667, 1.333333]
    assert isinstance(strategy, DecentralisedStrategy)
    assert strategy.figures(evaluated=False)["messages"] == (4 + 4) / 3, "a model and a gradient over each of four arcs"


# -- against the naive twin ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    world: World
    rounds: list[np.ndarray]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    count = draw(st.integers(2, 6))
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True))
    weights = draw(st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=len(edges), max_size=len(edges)))
    middle = draw(st.integers(0, count - 1))
    cliques = draw(st.sampled_from([(), (tuple(range(middle)), tuple(range(middle, count)))]))
    numbers = st.integers(-8, 8)
    points = draw(st.lists(st.tuples(numbers, numbers), min_size=count, max_size=count))
    samples = draw(st.lists(st.integers(1, 4), min_size=count, max_size=count))
    up = st.sampled_from([0.5, 1.0])
    world = make_point_world(
        points,
        samples=samples,
        spread=2.0,
        seed=draw(st.integers(0, 5)),
        graph=Graph.from_edges(count, edges, weights=weights, cliques=cliques),
        links=Links(links_up=draw(up), nodes_up=draw(up)),
    )
    nodes = st.sets(st.integers(0, count - 1), min_size=1)
    return Case(world, [np.array(sorted(draw(nodes))) for _ in range(3)])


def arcs(graph: Graph, participants: Sequence[int]) -> dict[tuple[int, int], float]:
    found = zip(graph.targets.tolist(), graph.sources.tolist(), graph.weights.tolist(), strict=True)
    return {(i, j): weight for i, j, weight in found if i in participants and j in participants}


def by_naive_twin(name: str, first_step: str, world: World, rounds: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Every node's model after these rounds, as it trained it."""
    people, graph = world.population, world.graph
    assert graph is not None
    examples = people.num_examples.tolist()
    goals = [people.images[rows].reshape(len(rows), -1).astype(float).mean(axis=0) for rows in people.train]
    models = [world.initial_model(node).astype(float) for node in range(world.num_clients)]
    heard = arcs(world.links(-1), range(world.num_clients)) if first_step == "aggregation" else {}
    received = [np.zeros(2) for _ in models]
    for number, participants in enumerate(rounds):
        before, heard_before = models, heard
        if not heard:
            models = list(models)
        elif name == "decavg":
            models = naive.decavg(models, heard, examples)
        elif name == "decdiff":
            models = naive.decdiff(models, heard, examples)
        else:
            models = naive.cfa(models, heard, examples, graph.degrees.tolist())
        if name == "cfa-ge":
            models = [model - 0.5 * pulled for model, pulled in zip(models, received, strict=True)]
        for node in participants:
            models[node] = models[node] + 0.5 * (goals[node] - models[node])
        heard = arcs(world.links(number), participants.tolist())
        received = naive.neighbours_gradients(before, heard_before, heard, examples, lambda w, node: w - goals[node])
    return models


@pytest.mark.parametrize("name", TRAIN_AND_AGGREGATE)
@settings(deadline=None, max_examples=60)
@given(case=cases(), first_step=st.sampled_from(["training", "aggregation"]))
def test_it_does_as_its_naive_twin(name: str, case: Case, first_step: str) -> None:
    strategy = STRATEGIES.build(name, {"first_step": first_step}, case.world)
    for number, participants in enumerate(case.rounds):
        strategy.round(number, participants)
    expected = by_naive_twin(name, first_step, case.world, case.rounds)
    assert models_of(strategy, case.world.num_clients) == pytest.approx(np.array(expected), abs=1e-4)


@settings(deadline=None, max_examples=80)
@given(case=cases(), clique_averaging=st.sampled_from([True, False]), momentum=st.sampled_from([0.0, 0.5]))
def test_d_sgd_does_as_its_naive_twin(case: Case, *, clique_averaging: bool, momentum: float) -> None:
    world, count = case.world, case.world.num_clients
    params: Mapping[str, JsonScalar] = {
        "clique_averaging": clique_averaging,
        "momentum": momentum,
        "init": "independent",
    }
    strategy = STRATEGIES.build("d-sgd", params, world)
    people, graph = world.population, world.graph
    assert graph is not None
    goals = [people.images[rows].reshape(len(rows), -1).astype(float).mean(axis=0) for rows in people.train]
    clique_of = [next((k for k, clique in enumerate(graph.cliques) if node in clique), 0) for node in range(count)]
    models = [world.initial_model(node).astype(float) for node in range(count)]
    velocities = [np.zeros(2) for _ in models]
    for number, participants in enumerate(case.rounds):
        strategy.round(number, participants)
        models, velocities = naive.d_sgd_step(
            models,
            velocities,
            arcs(world.links(number), participants.tolist()),
            participants.tolist(),
            lambda w, node: w - goals[node],
            learning_rate=0.5,
            momentum=momentum,
            clique_of=clique_of if clique_averaging else None,
        )
    assert models_of(strategy, count) == pytest.approx(np.array(models), abs=1e-4)


# -- messages and links ----------------------------------------------------------------------------------


def test_a_model_over_each_arc_is_counted() -> None:
    for name in ("cfa", "decavg", "decdiff"):
        strategy = STRATEGIES.build(name, {}, path())
        traffic = strategy.round(0, EVERYBODY)
        assert (traffic.up, traffic.down, traffic.between_servers) == (4 * MODEL_BYTES, 0, 0), "there are four arcs"
        assert isinstance(strategy, DecentralisedStrategy)
        assert strategy.figures(evaluated=False)["messages"] == 4 / 3


def test_cfa_ge_counts_its_gradients_from_the_second_round_on() -> None:
    strategy = STRATEGIES.build("cfa-ge", {}, path())
    sent = [strategy.round(number, EVERYBODY).up / MODEL_BYTES for number in range(3)]
    assert sent == [4, 8, 8]


def test_d_sgd_counts_gradients_where_it_averages_them() -> None:
    alone, averaged = (STRATEGIES.build("d-sgd", {"clique_averaging": each}, path()) for each in (False, True))
    assert alone.round(0, EVERYBODY).up == 4 * MODEL_BYTES
    assert averaged.round(0, EVERYBODY).up == 8 * MODEL_BYTES


@pytest.mark.parametrize("name", decentralised_names())
def test_who_is_not_drawn_neither_trains_nor_exchanges(name: str) -> None:
    strategy = STRATEGIES.build(name, SHARED, path())
    assert strategy.round(0, np.array([0, 2])).up == 0, "they are no neighbours"
    assert first_coordinates(strategy) == [4, 0, 2]


@pytest.mark.parametrize("name", decentralised_names())
def test_who_hears_nobody_keeps_its_model_and_trains(name: str) -> None:
    world = replace(path(), graph=Graph.from_edges(3, [(0, 1)]))
    assert first_coordinates(played(name, SHARED, world, 2))[2] == 3, "0, 2, 3: half the way to 4, twice"


def test_links_are_up_in_both_directions_or_in_none_and_the_same_whoever_asks() -> None:
    graph = circle(40)
    links = Links(links_up=0.5)
    seen = [links.up(graph, number, make_world(seed=1).seeds) for number in range(50)]
    for each in seen:
        arcs = set(zip(each.targets.tolist(), each.sources.tolist(), strict=True))
        assert arcs == {(b, a) for a, b in arcs}
    share = sum(each.num_arcs for each in seen) / (50 * graph.num_arcs)
    assert abs(share - 0.5) < 5 * np.sqrt(0.25 / (50 * 40)), "five standard deviations"
    again = links.up(graph, 7, make_world(seed=1).seeds)
    assert np.array_equal(again.sources, seen[7].sources)
    assert np.array_equal(again.offsets, seen[7].offsets)


def test_a_node_that_is_down_has_no_link_and_trains_all_the_same() -> None:
    graph = circle(40)
    links = Links(nodes_up=0.5)
    for number in range(5):
        degrees = links.up(graph, number, make_world().seeds).degrees
        down = degrees == 0
        assert down.any()
        assert not down.all()
    world = replace(path(), graph_links=Links(nodes_up=1e-9))
    assert first_coordinates(played("decavg", {}, world, 2)) == [6, 0, 3]


def test_reliable_links_are_the_graph_itself() -> None:
    world = path()
    assert world.links(3) is world.graph


def test_a_world_without_a_graph_names_the_section_that_gives_one() -> None:
    world = make_point_world([(0, 0), (1, 0)])
    for name in decentralised_names():
        with pytest.raises(ScenarioError, match=r"\[topology\]"):
            STRATEGIES.build(name, {}, world)
    with pytest.raises(ScenarioError, match=r"\[topology\]"):
        world.links(0)


# -- first models ----------------------------------------------------------------------------------------


def initial(params: Mapping[str, JsonScalar], *, graph: Graph = PATH, name: str = "decavg", **world: Any) -> np.ndarray:
    count = graph.num_nodes
    made = make_point_world([(0, 0)] * count, spread=1.0, graph=graph, **world)
    return models_of(STRATEGIES.build(name, params, made), count)


@pytest.mark.parametrize("name", decentralised_names())
def test_nodes_begin_with_one_model_or_each_with_its_own(name: str) -> None:
    shared, own = initial(SHARED, name=name), initial({"init": "independent"}, name=name)
    assert (shared == shared[0]).all()
    assert len(np.unique(own, axis=0)) == 3


def test_local_only_may_begin_with_the_same_models_as_nodes_of_a_graph() -> None:
    assert np.array_equal(initial({"init": "independent"}, name="local-only"), initial({"init": "independent"}))


def test_the_exact_gain_of_three_in_a_row() -> None:
    # v is (2, 3, 2) / 7, so the gain is 7 / √17.
    assert initial({"gain": "exact"}) == pytest.approx(initial({}) * 7 / np.sqrt(17), rel=1e-6)


def test_the_exact_gain_is_that_of_the_average_that_is_computed() -> None:
    # Metropolis-Hastings weights are doubly stochastic: all count the same, √3.
    metropolis: Mapping[str, JsonScalar] = {"gain": "exact", "weights": "metropolis"}
    assert initial(metropolis) == pytest.approx(initial({}) * np.sqrt(3), rel=1e-6)
    own: Mapping[str, JsonScalar] = {"init": "independent"}
    assert initial({**own, "gain": "exact"}, name="d-sgd") == pytest.approx(initial({}) * np.sqrt(3), rel=1e-6)
    # With 1, 2 and 1 examples v_i is in proportion to |D_i| times what i's neighbourhood has: 3, 8, 3.
    weighed = initial({"gain": "exact"}, samples=[1, 2, 1])
    assert weighed == pytest.approx(initial({}) * 14 / np.sqrt(9 + 64 + 9), rel=1e-6)


def test_a_gain_may_be_given_as_a_number() -> None:
    assert initial({"gain_factor": 8.0}) == pytest.approx(8 * initial({}), rel=1e-6)
    assert initial({"gain": "exact", "gain_factor": 0.5}) == pytest.approx(0.5 * initial({"gain": "exact"}), rel=1e-6)


def test_an_exact_gain_needs_a_graph_in_which_all_reach_all() -> None:
    with pytest.raises(ParameterError, match="connect"):
        initial({"gain": "exact"}, graph=Graph.from_edges(3, [(0, 1)]))


# -- how a round moves models ----------------------------------------------------------------------------


def figures(strategy: Strategy) -> dict[str, float | None]:
    assert isinstance(strategy, DecentralisedStrategy)
    return {key: value for key, value in strategy.figures(evaluated=True).items() if key != "messages"}


def test_changes_by_aggregation_and_by_training() -> None:
    strategy = played("decavg", {}, path(), 2)
    # Aggregation: 4 to 2, 0 to 2, 2 to 1; training: 2 to 5, 2 to 1, 1 to 2.5.
    assert figures(strategy) == pytest.approx(
        {
            # Over nodes the first coordinate is 5, 1, 2.5 and the second 0; a node's own deviation is half its first.
            "sigma_an": np.std([5, 1, 2.5]) / 2,
            "sigma_ap": (2.5 + 0.5 + 1.25) / 3,
            "change_by_training": (3 + 1 + 1.5) / 3,
            "change_by_aggregation": (2 + 2 + 1) / 3,
            "change_in_total": (1 + 1 + 0.5) / 3,
            "change_cosine": -1,
        }
    )


def test_d_sgd_trains_before_it_aggregates() -> None:
    # Steps to 4, 0, 2, then mixed to 8/3, 2, 4/3; node 1 did not step, so it has no cosine.
    found = figures(played("d-sgd", {"clique_averaging": False}, path(), 1))
    assert found["change_by_training"] == pytest.approx((4 + 0 + 2) / 3)
    assert found["change_by_aggregation"] == pytest.approx((4 / 3 + 2 + 2 / 3) / 3)
    assert found["change_in_total"] == pytest.approx((8 / 3 + 2 + 4 / 3) / 3)
    assert found["change_cosine"] == pytest.approx(-1)


@pytest.mark.parametrize("name", TRAIN_AND_AGGREGATE)
def test_before_anybody_heard_anything_aggregation_changes_nothing(name: str) -> None:
    found = figures(played(name, {}, path(), 1))
    assert (found["change_by_aggregation"], found["change_cosine"]) == (0, None)
    assert found["change_by_training"] == pytest.approx(2)


def test_changes_of_models_that_diverge_are_infinite_and_warn_nobody() -> None:
    start, far = np.zeros((2, 3), np.float32), np.full((2, 3), 1e30, np.float32)  # its square is beyond float32
    figures = Dynamics(start, far, far, np.arange(2), aggregates_first=False).figures()
    assert (figures["change_by_training"], figures["change_by_aggregation"]) == (np.inf, 0.0)
