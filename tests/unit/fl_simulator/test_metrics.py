"""What a run is judged by: numbers that a person can check."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_core.clusters import Approvals, count_approvals, satisfaction_rate
from fl_core.types import AuthorId
from fl_simulator.errors import SimulationError
from fl_simulator.metrics.accuracy import summarise_accuracy
from fl_simulator.metrics.clustering import judge_approvals, judge_groups, judge_selections
from fl_simulator.metrics.costs import COST_FORMULAS, Sizes, summarise_costs
from fl_simulator.run.record import RoundRecord
from fl_simulator.strategies.protocol import Choice, Traffic
from fl_simulator.training.protocol import Evaluation


def evaluated(*correct: int, count: int = 10, loss: float = 0.5) -> Evaluation:
    """Clients with ``count`` samples each, so many of them right."""
    counts = np.full(len(correct), count)
    return Evaluation(np.array(correct), counts * loss, counts)


def test_mean_counts_each_client_once_however_many_samples_it_has() -> None:
    evaluation = Evaluation(np.array([1, 0]), np.array([0.2, 300.0]), np.array([1, 100]))
    summary = summarise_accuracy(evaluation)
    assert summary["accuracy"] == 0.5
    assert summary["loss"] == pytest.approx((0.2 + 3.0) / 2)
    assert (summary["best_client"], summary["worst_client"]) == (1.0, 0.0)


@pytest.mark.parametrize(("clients", "expected"), [(1, 0.9), (10, 0.0), (11, 0.05), (20, 0.05), (21, 0.1)])
def test_worst_decile_is_a_tenth_of_the_clients_rounded_up(clients: int, expected: float) -> None:
    # The last client has 0 of 10 right, the one before it 1, and so on up to 9.
    correct = [min(9, clients - 1 - client) for client in range(clients)] if clients > 1 else [9]
    assert summarise_accuracy(evaluated(*correct))["worst_decile"] == pytest.approx(expected)


def test_client_without_test_samples_is_left_out() -> None:
    summary = summarise_accuracy(Evaluation(np.array([0, 3]), np.array([0.0, 4.0]), np.array([0, 4])))
    assert (summary["accuracy"], summary["worst_client"], summary["loss"]) == (0.75, 0.75, 1.0)


def test_nobody_with_test_samples_is_refused() -> None:
    with pytest.raises(SimulationError, match="no client has a test sample"):
        summarise_accuracy(evaluated(0, 0, count=0))


def test_loss_of_a_diverged_model_is_not_hidden() -> None:
    assert math.isinf(summarise_accuracy(evaluated(1, 1, loss=math.inf))["loss"])


# |C| = 10, |S| = 3, |w| = 1000, |sigma| = 100, g = 4, |hash| = 32; all take part, as the paper assumes.
SIZES = Sizes(
    clients=10,
    participants=10,
    model_bytes=1000,
    data_bytes=5000,
    servers=3,
    groups=4,
    extra_bytes=100,
    transactions=50,
)


@pytest.mark.parametrize(
    ("strategy", "reported", "expected"),
    [
        ("fedavg", 20_000, Traffic(up=10_000, down=10_000)),
        ("flexcfl", 20_000, Traffic(up=10_000, down=10_000)),
        ("ifca", 50_000, Traffic(up=10_000, down=40_000)),
        ("fesem", 20_000, Traffic(up=10_000, down=10_000)),
        ("sdagfl", 198_000, Traffic(up=99_000)),  # 2 x 10 x 9 x 1100
        # 2 x 10 x (32 + 1000 + 2 x 1100)
        ("dag-acfl", 64_640, Traffic(up=10_320, down=10_320, between_servers=22_000)),
    ],
)
def test_table_iii_of_dag_acfl(strategy: str, reported: int, expected: Traffic) -> None:
    formulas = COST_FORMULAS[strategy]
    assert formulas.reported_round_bytes(SIZES) == reported
    assert formulas.round_traffic(SIZES) == expected


def test_fewer_participants_move_less_but_reach_all_clients() -> None:
    half = replace(SIZES, participants=5, servers=1)
    assert COST_FORMULAS["fedavg"].reported_round_bytes(half) == 10_000
    assert COST_FORMULAS["sdagfl"].round_traffic(half) == Traffic(up=5 * 9 * 1100)
    assert COST_FORMULAS["dag-acfl"].round_traffic(half) == Traffic(up=5160, down=5160)


@pytest.mark.parametrize("strategy", COST_FORMULAS)
def test_table_iv_of_dag_acfl(strategy: str) -> None:
    client, server = {"sdagfl": (61_000, None), "dag-acfl": (6000, 55_000)}.get(strategy, (6000, 10_000))
    formulas = COST_FORMULAS[strategy]
    assert formulas.client_bytes(SIZES) == client
    assert (formulas.server_bytes and formulas.server_bytes(SIZES)) == server


def test_costs_of_a_run_stand_beside_both_tables() -> None:
    rounds = [
        RoundRecord(
            round=number,
            virtual_time_s=0.0,
            participants=10,
            up_bytes=up,
            down_bytes=10_320,
            between_servers_bytes=22_000,
            storage_bytes=kept,
        )
        for number, (up, kept) in enumerate(((10_320, 11_000), (10_720, 22_500)))
    ]
    found = summarise_costs("dag-acfl", rounds, SIZES)
    assert found == {
        "communication": "2·|C|·{|hash| + |ω| + (|S| - 1)·(|ω| + |σ|)}",
        "formula_round_bytes": 64_640,
        "expected_round_bytes": 42_640,
        "measured_round_bytes": 42_840.0,
        "client_storage": "|ω| + |D̄|",
        "server_storage": "L",
        "formula_client_bytes": 6000,
        "formula_server_bytes": 55_000,
        "measured_ledger_bytes": 22_500,
    }
    peers = summarise_costs("sdagfl", rounds, SIZES)
    assert peers is not None
    assert not {"server_storage", "formula_server_bytes"} & peers.keys()
    assert summarise_costs("local-only", rounds, SIZES) is None


TRUTH = {AuthorId("a"): 0, AuthorId("b"): 0, AuthorId("c"): 1, AuthorId("d"): 1}


def approvals_of(*pairs: str) -> Approvals:
    """Each pair "ab": a approves b."""
    return count_approvals((AuthorId(pair[0]), [AuthorId(pair[1])]) for pair in pairs)


def test_two_separate_pairs_are_two_pure_communities() -> None:
    summary = judge_approvals(approvals_of("ab", "cd"), TRUTH)
    assert (summary["communities"], summary["purity"], summary["misclassified"]) == (2, 1.0, 0)
    assert summary["modularity"] == 0.5  # half of the edges inside each, (1/2)^2 of them expected: 2 x (1/2 - 1/4)


def test_pairs_across_the_clusters_are_misclassified() -> None:
    summary = judge_approvals(approvals_of("ac", "bd"), TRUTH)
    assert (summary["communities"], summary["purity"], summary["misclassified"]) == (2, 0.5, 2)


def test_groups_that_a_method_names_are_judged_without_those_who_have_none() -> None:
    truth = np.array([0, 0, 1, 1, 1])
    summary = judge_groups(np.array([5, 5, 5, 2, -1]), truth)
    assert (summary["communities"], summary["misclassified"], summary["purity"]) == (2, 1, 0.75)
    assert "modularity" not in summary
    assert judge_groups(np.full(5, -1), truth) == {}


def choice(client: int, *, taken: list[int], offered: list[int]) -> Choice:
    return Choice(client, np.array(offered, dtype=np.int64), np.array(taken, dtype=np.int64))


def test_selections_are_judged_by_satisfaction_and_foreign_models() -> None:
    clusters = np.array([0, 0, 1, 0])
    found = judge_selections(
        [
            choice(0, taken=[1, 3], offered=[1, 3, 2]),  # mr 1
            choice(1, taken=[0, 2], offered=[0, 2, 3]),  # mr 1/2, and 2 is foreign
            choice(2, taken=[], offered=[0, 1]),  # nobody of its cluster on offer: no mr
        ],
        clusters,
    )
    assert (found["satisfaction"], found["satisfaction_min"]) == (0.75, 0.5)
    assert found["cross_cluster_rate"] == pytest.approx(1 / 3)


@given(st.lists(st.integers(0, 2), min_size=2, max_size=8), st.integers(0, 2**8 - 1), st.integers(0, 2**8 - 1))
def test_satisfaction_is_the_core_s(clusters: list[int], offers: int, takes: int) -> None:
    offered = [other for other in range(1, len(clusters)) if offers >> other & 1]
    taken = [other for other in offered if takes >> other & 1]
    found = judge_selections([choice(0, taken=taken, offered=offered)], np.array(clusters))
    name = {client: AuthorId(str(client)) for client in range(len(clusters))}
    mates = {name[client] for client, cluster in enumerate(clusters) if cluster == clusters[0]}
    expected = satisfaction_rate({name[each] for each in taken}, {name[each] for each in offered}, mates)
    assert found["satisfaction"] == expected


def test_no_selections_have_no_figures() -> None:
    found = judge_selections([], np.zeros(2, dtype=np.int64))
    assert (found["satisfaction"], found["satisfaction_min"], found["cross_cluster_rate"]) == (None, None, None)
