"""The demo's figures on a ledger of which every number is known."""

import pytest

from dag_acfl.demo.board import Board
from dag_acfl.demo.events import BaselineDone, Failed, Finished, Joined, Published
from dag_acfl.demo.figures import cluster_figure, cost_figure, method_figures, sites_of
from dag_acfl.demo.plots import _spread
from dag_acfl.demo.views import sparkline
from fl_core.types import AuthorId
from tests.sources import SoundLedger, sound_ledger


def published(client: int, number: int, transaction: str, *approved: str, accuracy: float = 0.5) -> Published:
    return Published(client, number, transaction, approved, "parents", "top-k", accuracy, 0.6, 100, 1000, 0.1)


def authors_of(ledger: SoundLedger) -> dict[AuthorId, int]:
    return {ledger.tiny.author(name): client for client, name in enumerate(("ann", "bob", "cat"))}


def test_sites_carry_their_clients_and_leave_genesis_out() -> None:
    ledger = sound_ledger()
    sites = sites_of(ledger.source(), authors_of(ledger))
    assert [(site.id, site.client) for site in sites] == [
        (ledger.ann, 0),
        (ledger.bob, 1),
        (ledger.cat, 2),
        (ledger.ann_again, 0),
        (ledger.bob_again, 1),
    ]


def test_foreign_approvals_are_counted_from_the_headers() -> None:
    ledger = sound_ledger()
    ann, bob, cat = authors_of(ledger)
    source = ledger.source()
    figure = cluster_figure(source, sites_of(source, authors_of(ledger)), {ann: 0, bob: 1, cat: 0})
    # cat approves ann and bob, ann approves cat, bob approves cat and ann: two of five stay in a cluster.
    assert figure.foreign_approvals == pytest.approx(3 / 5)
    assert figure.true == 2
    assert sum(figure.found) == 3


def test_satisfaction_is_the_share_of_own_clusters_tips_that_were_taken() -> None:
    ledger = sound_ledger()
    ann, bob, cat = authors_of(ledger)
    source = ledger.source()
    figure = cluster_figure(source, sites_of(source, authors_of(ledger)), {ann: 0, bob: 0, cat: 0})
    # Every candidate in the evidence of this ledger was taken.
    assert figure.satisfaction == 1.0
    alone = cluster_figure(source, sites_of(source, authors_of(ledger)), {ann: 0, bob: 1, cat: 2})
    assert alone.satisfaction is None


def test_bytes_of_a_round_leave_joining_out() -> None:
    rounds = [published(0, 1, "a"), published(0, 2, "b")]
    big = Published(0, 1, "a", (), "own", "", 0.5, 0.6, 10_000, 10_000, 0.1)
    figure = cost_figure([big, rounds[1]], server=1200.0, hash_bytes=32, model_bytes=500)
    assert (figure.measured, figure.server) == (1100, 1200)
    assert figure.equation_8 == 2 * (32 + 500)


def test_methods_come_in_the_panels_order_with_ours_last() -> None:
    finished = [Finished(1, "", 0.8, 0.9), Finished(0, "", 0.6, 0.7)]
    methods, trained = method_figures({"local-only": (0.5, 0.7), "FedAvg": (0.4, 0.4)}, finished)
    assert [method.name for method in methods] == ["local-only", "FedAvg", "DAG-ACFL"]
    assert methods[-1].accuracies == (0.6, 0.8)
    assert (methods[0].mean, methods[0].spread) == (pytest.approx(0.6), pytest.approx(0.1))
    assert trained.mean == pytest.approx(0.8)


def test_the_board_counts_same_and_foreign_whatever_comes_first() -> None:
    board = Board([0, 1, 0], 2)
    for event in (
        Joined(0, "key:a"),
        published(0, 1, "t0", "genesis"),
        published(2, 1, "t2", "t0", "t1"),  # t1 is approved before it is heard of
        published(1, 1, "t1", "genesis"),
        published(0, 2, "t3", "t0", "t2"),  # its own t0 is no approval of another
    ):
        board.hear(event)
    assert [board.approvals(row) for row in board.rows] == [(1, 0), (0, 0), (1, 1)]
    assert not board.has_all_transactions


def test_the_board_is_complete_with_everybodys_last_word_and_both_baselines() -> None:
    board = Board([0, 1], 1)
    for client in (0, 1):
        board.hear(published(client, 1, f"t{client}"))
    assert board.has_all_transactions
    assert not board.is_complete
    for event in (
        Finished(0, "", 0.5, 0.5),
        Finished(1, "", 0.5, 0.5),
        BaselineDone("local-only", (0.1, 0.2)),
        BaselineDone("FedAvg", (0.1, 0.2)),
    ):
        board.hear(event)
    assert board.is_complete


def test_the_board_keeps_failures() -> None:
    board = Board([0], 1)
    board.hear(Failed("client 1", "no torch"))
    assert [failure.who for failure in board.failures] == ["client 1"]


def test_a_sparkline_runs_from_chance_to_perfect() -> None:
    assert sparkline([0.0, 0.1, 0.55, 1.0]) == "▁▁▅█"


def test_labels_stand_apart_and_keep_their_order() -> None:
    placed = _spread([0.90, 0.91, 0.50], gap=0.05)
    assert placed[1] - placed[0] == pytest.approx(0.05)
    assert placed[2] == 0.50
    assert (placed[0] + placed[1]) / 2 == pytest.approx(0.905)
