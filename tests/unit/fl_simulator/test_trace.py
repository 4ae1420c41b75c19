"""Who was averaged into whom, and what of it a run keeps."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fl_simulator.run.folder import EDGES, EVIDENCE
from fl_simulator.run.trace import TraceWriter
from fl_simulator.strategies import STRATEGIES
from fl_simulator.strategies.protocol import Choice, Strategy
from tests.simulations import circle, make_point_world


def edges_of(name: str, params: dict[str, Any], rounds: int, **world: Any) -> list[tuple[Any, Any, float]]:
    strategy: Strategy = STRATEGIES.build(name, params, make_point_world([[4], [8], [-4]], **world))
    for number in range(rounds):
        strategy.take_edges()
        strategy.round(number, np.arange(3))
    return sorted(strategy.take_edges(), key=str)


def test_fedavgs_edges_go_to_one_group_by_samples() -> None:
    assert edges_of("fedavg", {}, 1, samples=[1, 1, 2]) == [
        (0, "group 0", 0.25),
        (1, "group 0", 0.25),
        (2, "group 0", 0.5),
    ]
    assert edges_of("local-only", {}, 1) == []


@pytest.mark.parametrize("name", ["decavg", "d-sgd"])
def test_a_nodes_edges_weigh_1_together(name: str) -> None:
    edges = edges_of(name, {}, 2, graph=circle(3))
    assert {target for _, target, _ in edges} == {0, 1, 2}
    for node in range(3):
        assert sum(weight for _, target, weight in edges if target == node) == pytest.approx(1)


@pytest.mark.parametrize(("name", "params"), [("dag-acfl", {"selector": "top-k", "selector.k": 2}), ("sdagfl", {})])
def test_a_ledgers_edges_are_the_parents_authors(name: str, params: dict[str, Any]) -> None:
    assert edges_of(name, params, 1) == [], "genesis is nobody's"
    edges = edges_of(name, params, 2)
    assert edges
    for node in {target for _, target, _ in edges}:
        assert sum(weight for _, target, weight in edges if target == node) == pytest.approx(1)


def choice(client: int, offered: list[int]) -> Choice:
    scores = np.linspace(1, 0.5, len(offered))
    return Choice(client, np.array(offered), np.array(offered[:1]), scores, scores)


def test_a_resumed_trace_goes_on_where_its_rounds_do(tmp_path: Path) -> None:
    trace = TraceWriter(tmp_path, most=100, rounds=0, has_ledger=True)
    for number in range(3):
        trace.append(number, [(0, 1, 1 / 3)], [choice(1, [0, 2])])
    with (tmp_path / EDGES).open("a") as file:
        file.write("3,0")  # killed in the middle of a line
    trace = TraceWriter(tmp_path, most=100, rounds=2, has_ledger=True)
    trace.append(2, [(2, 1, 0.5)], [])
    assert (tmp_path / EDGES).read_text() == "round,from,to,weight\n0,0,1,0.333333\n1,0,1,0.333333\n2,2,1,0.5\n"
    selections = [json.loads(line) for line in (tmp_path / EVIDENCE).read_text().splitlines()]
    assert [each["round"] for each in selections] == [0, 1]
    assert selections[0] == {"round": 0, "client": 1, "offered": [0, 2], "similarities": [1.0, 0.5], "taken": [0]}


def test_a_resumed_trace_that_had_ended_stays_ended(tmp_path: Path) -> None:
    trace = TraceWriter(tmp_path, most=5, rounds=0, has_ledger=False)
    for number, count in enumerate((4, 2)):  # round 1 does not fit
        trace.append(number, [(0, 1, 0.5)] * count, [])
    before = (tmp_path / EDGES).read_text()
    TraceWriter(tmp_path, most=5, rounds=2, has_ledger=False).append(2, [(0, 1, 1.0)], [])
    assert (tmp_path / EDGES).read_text() == before, "no gap"
    TraceWriter(tmp_path, most=5, rounds=1, has_ledger=False).append(1, [(0, 1, 1.0)], [])
    assert (tmp_path / EDGES).read_text() == before + "1,0,1,1\n", "the round is played again"


def test_a_trace_is_bounded_and_may_be_none(tmp_path: Path) -> None:
    trace = TraceWriter(tmp_path, most=5, rounds=0, has_ledger=False)
    for number in range(3):
        trace.append(number, [(0, 1, 0.5), (1, 0, 0.5)], [])
    assert len((tmp_path / EDGES).read_text().splitlines()) == 1 + 2 * 2
    empty = tmp_path / "none"
    empty.mkdir()
    TraceWriter(empty, most=0, rounds=0, has_ledger=True)
    assert list(empty.iterdir()) == []
