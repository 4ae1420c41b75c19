"""A trial's figures on a ledger of which every number is known, and the panel that shows them."""

import io
import json
import math
import socket
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from dag_acfl.trial import demo_client
from dag_acfl.trial.baselines import baseline, common_figure, judged, world_of
from dag_acfl.trial.figures import (
    cluster_figures,
    gain_figures,
    method_figures,
    network_figures,
    told_gain,
    updates_of,
    visibility_figures,
)
from dag_acfl.trial.panel import _methods
from dag_acfl.trial.progress import Progress, Update
from dag_acfl.trial.run import strict_json
from dag_acfl.trial.servers import free_ports
from dag_acfl.trial.view import sparkline
from fl_client.errors import UserModuleError
from fl_client.training import Arrays
from fl_core.types import AuthorId, Vector32
from fl_simulator.training.sites import SiteTrainers, load_sites
from tests.sources import SoundLedger, sound_ledger
from tests.tiny_trainer import TinyTrainer


def update(client: int, number: int, name: str, *parents: str, server: int = 0) -> Update:
    return Update(name, client, number, parents, server, 0.5)


def progress_of(*updates: Update, clusters: tuple[int, ...] = (0, 1, 0)) -> Progress:
    progress = Progress(clusters, 2)
    for each in updates:
        progress.hear(each, each.server, 0.0)
    return progress


def authors_of(ledger: SoundLedger) -> tuple[AuthorId, AuthorId, AuthorId]:
    ann, bob, cat = (AuthorId(ledger.tiny.author(name)) for name in ("ann", "bob", "cat"))
    return ann, bob, cat


def test_foreign_approvals_are_counted() -> None:
    ledger = sound_ledger()
    ann, bob, cat = authors_of(ledger)
    source = ledger.source()
    figures = cluster_figures(source, updates_of(source), {ann: 0, bob: 1, cat: 0})
    # cat approves ann and bob, ann approves cat, bob approves cat and ann: two of five stay in a cluster.
    assert figures["foreign_approvals"] == pytest.approx(3 / 5)
    assert figures["true"] == 2
    assert sum(figures["found"]) == 3


def test_satisfaction_is_the_share_taken_of_ones_cluster() -> None:
    ledger = sound_ledger()
    ann, bob, cat = authors_of(ledger)
    source = ledger.source()
    # Every candidate in the evidence of this ledger was taken.
    assert cluster_figures(source, updates_of(source), {ann: 0, bob: 0, cat: 0})["satisfaction"] == 1.0
    assert cluster_figures(source, updates_of(source), {ann: 0, bob: 1, cat: 2})["satisfaction"] is None


def test_approvals_are_counted_whatever_comes_first() -> None:
    progress = progress_of(
        update(0, 1, "t0", "genesis"),
        update(2, 1, "t2", "t0", "t1"),  # t1 is approved before it is heard of
        update(1, 1, "t1", "genesis"),
        update(0, 2, "t3", "t0", "t2"),  # its own t0 is no approval of another
    )
    assert [progress.approvals(client) for client in range(3)] == [(1, 0), (0, 0), (1, 1)]
    assert (progress.count, progress.total) == (4, 6)


def test_an_update_counts_once_however_many_servers_show_it() -> None:
    progress = progress_of()
    assert progress.hear(update(0, 1, "a"), 0, 1.0)
    assert not progress.hear(update(0, 1, "a"), 1, 2.0)
    assert progress.shown == {"a": {0: 1.0, 1: 2.0}}


def test_a_move_is_a_publication_on_another_server() -> None:
    progress = progress_of(
        update(0, 2, "t2", server=1), update(0, 1, "t1", server=1), update(0, 3, "t3", server=2), update(1, 1, "u1")
    )
    assert [each.number for each in progress.of_client[0]] == [1, 2, 3]
    assert progress.switches == 1


def test_visibility_counts_from_the_first_server() -> None:
    # Delays are 0.25 and 0.5, then 1 and 0.75.
    assert visibility_figures({"a": {0: 1.0, 1: 1.25, 2: 1.5}, "b": {0: 3.0, 1: 2.0, 2: 2.75}}) == {
        "median_s": 0.625,
        "p95_s": pytest.approx(0.75 + 0.85 * 0.25),
        "pairs": 4,
    }


def test_visibility_leaves_out_a_server_that_was_down() -> None:
    figures = visibility_figures({"a": {0: 1.0, 1: 1.25, 2: 9.0}}, leave_out=2)
    assert figures == {"median_s": 0.25, "p95_s": 0.25, "pairs": 1}
    assert visibility_figures({"a": {0: 1.0}}) is None


def test_a_network_counts_by_issuer_and_receiver() -> None:
    ledger = sound_ledger()
    updates = updates_of(ledger.source())
    figures = network_figures(
        updates,
        progress_of(),
        keys=("0" * 64, str(updates[0].receipt.issuer), "1" * 64),
        digest="d" * 64,
        equal_after_s=0.5,
        peer_bytes=10_000,
    )
    assert figures["updates"] == [0, 5, 0]
    assert figures["peer_bytes"] == 10_000 / (5 * 2)
    sizes = [each.header.model_size + len(each.header_bytes) for each in updates]
    assert figures["equation_8"] == pytest.approx(sum(sizes) / 5)
    assert (figures["visibility"], figures["switches"]) == (None, 0)


def test_named_ports_follow_one_another() -> None:
    assert free_ports(3, first=9100) == [9100, 9101, 9102]
    assert len(set(free_ports(3, first=0))) == 3
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert taken.getsockname()[1] not in free_ports(3, first=None)


def test_a_sparkline_runs_from_chance_to_perfect() -> None:
    assert sparkline([0.0, 0.1, 0.55, 1.0]) == "▁▁▅█"


def test_a_sparkline_of_losses_reaches_up_to_the_greatest() -> None:
    assert sparkline([4.0, 2.2, math.nan, 0.0], most=4.0) == "█▅ ▁", "and what is not finite is a gap"


def test_sharing_buys_what_a_site_gains_over_being_alone() -> None:
    alone, ours = method_figures("alone", [0.5, 0.75, 0.5]), method_figures("ours", [0.75, 0.5, 1.0])
    assert gain_figures(ours, alone, figure="accuracy") == {
        "mean": pytest.approx(0.5 / 3),
        "gaining": 2,
        "least": -0.25,
        "least_site": 1,
        "left_out": [],
    }
    assert gain_figures(ours, alone, figure="loss")["gaining"] == 1, "of a loss less is better"


def test_a_gain_is_of_the_sites_that_have_both_figures() -> None:
    alone, ours = method_figures("alone", [0.5, math.nan, 0.5, 0.5]), method_figures("ours", [0.75, 1, math.inf, 1])
    gain = gain_figures(ours, alone, figure="accuracy")
    assert (gain["mean"], gain["least"], gain["least_site"], gain["left_out"]) == (0.375, 0.25, 0, [1, 2])
    assert told_gain(gain, 4) == (
        "+0.375 over training alone; 2 of 2 sites gain, the least is +0.250 (site 0); "
        "without sites 1, 2, where a figure is not finite"
    )


def test_where_no_site_has_both_figures_nothing_is_said_to_be_gained() -> None:
    nothing = method_figures("alone", [math.nan, math.nan])
    told = told_gain(gain_figures(nothing, nothing, figure="loss"), 2)
    assert told == "nothing that can be said: no site has a finite figure both alone and with others"


def test_where_nobody_knows_clusters_groups_are_found_and_sharing_is_counted() -> None:
    ledger = sound_ledger()
    source = ledger.source()
    figures = cluster_figures(source, updates_of(source), None)
    assert "true" not in figures
    # Of five updates, cat's, ann's second and bob's second began with models of others.
    assert (figures["updates"], figures["shared"]) == (5, 3)
    assert sum(figures["found"]) == 3


@pytest.fixture(scope="module")
def sites() -> SiteTrainers:
    return load_sites(Path(demo_client.__file__), 16, {"count": 16, "seed": 0})


def test_the_demo_is_compared_by_accuracy(sites: SiteTrainers) -> None:
    assert common_figure(sites, file=Path("demo_client.py")) == "accuracy"


def test_learning_alone_beats_one_model_for_everybody_in_the_demo(sites: SiteTrainers) -> None:
    """About 0.75 and 0.62; four rotations do not fit into one small model in this budget."""
    world = world_of(sites, epochs=3)
    found = (baseline(world, name, rounds=15) for name in ("local-only", "fedavg"))
    alone, together = (np.mean(judged(sites, each.models, each.rows, figure="accuracy")) for each in found)
    assert 0.65 < alone < 0.85
    assert 0.4 < together < alone


def test_a_site_whose_loss_is_not_finite_is_named_and_is_null_in_the_summary() -> None:
    class Diverged(SiteTrainers):
        def metrics(self, model: Vector32, site: int) -> Mapping[str, float]:
            return {} if site == 1 else {"loss": 0.25}

    sites = Diverged([TinyTrainer(1), TinyTrainer(2)])
    found = judged(sites, np.zeros((1, 4), np.float32), [0, 0], figure="loss")
    methods = [method_figures("FedAvg", found), method_figures("Alone", [0.5, 0.5])]
    assert json.loads(strict_json(methods[0])) == {"name": "FedAvg", "values": [0.25, None], "mean": None, "sd": None}
    console = Console(file=io.StringIO(), width=100)
    console.print(_methods({"figure": "loss", "methods": methods, "trained": methods[0]}))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert [line.count("█") for line in shown.splitlines()] == [0, 0, 32, 0]
    assert "nan" not in shown
    assert [line.endswith("–  not finite at site 1") for line in map(str.rstrip, shown.splitlines())] == [
        False,
        True,
        False,
        True,
    ]


def test_a_file_that_measures_nothing_is_refused_with_the_remedy() -> None:
    class Blind(TinyTrainer):
        def evaluate(self, arrays: Arrays) -> dict[str, float]:
            return {"f1": super().evaluate(arrays)["accuracy"]}

    with pytest.raises(UserModuleError, match=r"my_client\.py: evaluate\(\) gives f1; .* give the trainer test data"):
        common_figure(SiteTrainers([Blind(0.0)]), file=Path("my_client.py"))
