"""The demo's figures on a ledger of which every number is known."""

import socket
from collections import Counter
from pathlib import Path

import pytest

from dag_acfl.demo.board import Board
from dag_acfl.demo.events import Arrival, BaselineDone, Equal, Failed, Finished, Joined, Observed, Published
from dag_acfl.demo.figures import (
    cluster_figure,
    cost_figure,
    method_figures,
    network_figure,
    sites_of,
    visibility_figure,
)
from dag_acfl.demo.plots import _spread
from dag_acfl.demo.servers import free_ports
from dag_acfl.demo.site import place_of
from dag_acfl.demo.task import DemoTask
from dag_acfl.demo.views import sparkline
from fl_core.types import AuthorId
from tests.sources import SoundLedger, sound_ledger


def published(client: int, number: int, transaction: str, *approved: str, server: int = 0) -> Published:
    return Published(client, number, transaction, approved, "parents", "top-k", 0.5, 0.6, 100, 1000, 0.1, server)


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
    big = Published(0, 1, "a", (), "own", "", 0.5, 0.6, 10_000, 10_000, 0.1, 0)
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


def test_the_board_counts_a_move_where_a_client_publishes_on_another_server() -> None:
    board = Board([0, 1], 3, servers=3)
    moves = []
    for number, server in enumerate((1, 1, 2), start=1):
        board.hear(published(0, number, f"t{number}", server=server))
        moves.append(board.rows[0].has_just_moved)
    board.hear(published(1, 1, "u1", server=0))
    assert moves == [False, False, True]
    assert (board.rows[0].servers, board.rows[1].servers, board.switches) == ([1, 2], [0], 1)


def test_with_several_servers_the_board_awaits_what_was_observed_of_them() -> None:
    board = Board([0], 1, servers=2)
    for event in (
        published(0, 1, "t"),
        Finished(0, "", 0.5, 0.5),
        BaselineDone("local-only", (0.1,)),
        BaselineDone("FedAvg", (0.1,)),
    ):
        board.hear(event)
    assert not board.is_complete
    board.hear(Observed(()))
    assert board.is_complete


def arrivals(**moments: tuple[float, ...]) -> list[Arrival]:
    return [Arrival(name, server, at_s) for name, times in moments.items() for server, at_s in enumerate(times)]


def test_visibility_is_the_time_from_the_first_server_to_each_other_one() -> None:
    figure = visibility_figure(arrivals(a=(1.0, 1.25, 1.5), b=(3.0, 2.0, 2.75)))
    assert figure is not None
    # Delays are .25 and .5, then 1 and .75.
    assert (figure.median_s, figure.pairs) == (0.625, 4)
    assert figure.p95_s == pytest.approx(0.75 + 0.85 * 0.25)


def test_visibility_leaves_out_a_server_that_was_down() -> None:
    figure = visibility_figure(arrivals(a=(1.0, 1.25, 9.0)), leave_out=2)
    assert figure is not None
    assert (figure.median_s, figure.p95_s, figure.pairs) == (0.25, 0.25, 1)
    assert visibility_figure(arrivals(a=(1.0,))) is None


def test_a_networks_figures_count_by_issuer_and_by_receiver() -> None:
    ledger = sound_ledger()
    sites = sites_of(ledger.source(), authors_of(ledger))
    issuer = sites[0].issuer
    figure = network_figure(
        sites,
        keys=("0" * 64, issuer, "1" * 64),
        equal=Equal("d" * 64, 6, 0.5),
        arrivals=[],
        peer_bytes=10_000,
        switches=2,
    )
    assert figure.transactions == (0, 5, 0)
    assert figure.peer_bytes == 10_000 / (5 * 2)
    sizes = [site.header.model_size + len(site.header.encode()) for site in sites]
    assert figure.equation_8 == pytest.approx(sum(sizes) / 5)
    assert (figure.visibility, figure.switches, figure.equal_after_s) == (None, 2, 0.5)


def test_clients_are_spread_and_a_fifth_of_them_moves(tmp_path: Path) -> None:
    places = [place_of(client, task=DemoTask(), urls=("a", "b", "c"), folder=tmp_path) for client in range(16)]
    assert sorted(Counter(place.order[0] for place in places).values()) == [5, 5, 6]
    assert all(sorted(place.order) == [0, 1, 2] for place in places)
    moving = [place for place in places if place.moves_to is not None]
    assert [place.client for place in moving] == [0, 5, 10, 15]
    for place in moving:
        assert place.moves_to is not None
        assert sorted(place.moves_to) == [0, 1, 2]
        assert place.moves_to[0] != place.order[0]
    alone = place_of(0, task=DemoTask(), urls=("a",), folder=tmp_path)
    assert (alone.order, alone.moves_to) == ((0,), None)


def test_ports_that_a_person_names_follow_one_another_and_others_are_free_ones() -> None:
    assert free_ports(3, first=9100) == [9100, 9101, 9102]
    chosen = free_ports(3, first=0)
    assert len(set(chosen)) == 3
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert taken.getsockname()[1] not in free_ports(3, first=None)


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
