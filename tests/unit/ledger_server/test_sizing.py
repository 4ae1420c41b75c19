"""What servers a number of clients needs: arithmetic on costs that a person can add up, and on those that were measured."""

from dataclasses import replace
from importlib import resources
from typing import Any

import pytest

from fl_core.errors import ParameterError
from ledger_server.admin.sizing import CodedCosts, Costs, Demand, Needs, line, needs

MB = 1_000_000
COST_OF_A_ROUND = {
    "cpu_ms": 10.0,
    "lock_ms": 1.0,
    "serving_cpu_ms": 2.0,
    "receiving_singly_cpu_ms": 4.0,
    "client_sent_beyond_model": 1_000.0,
    "client_received_beyond_model": 3_000.0,
    "peer_bytes_beyond_model": 2_000.0,
    "record_bytes": 5_000.0,
}
MEASURED = Costs.parse(resources.files("ledger_server.admin").joinpath("measured_costs.json").read_text("utf-8"))


def costs(*, follow_ms: float = 1.0, lock_ms: float = 1.0, **of_a_round: float) -> Costs:
    """The same whatever a model's size and however many are averaged."""
    return Costs(
        rounds=tuple(
            {**COST_OF_A_ROUND, **of_a_round, "model_bytes": size, "averaged": averaged, "named": averaged}
            for size in (MB, 10.0 * MB)
            for averaged in (1.0, 64.0)
        ),
        postgresql=({"model_bytes": MB, "averaged": 64, "cpu_ms": 12.0, "database_cpu_ms": 3.0},),
        candidates=((64, 0.0), (1_000, 0.0)),
        follow_ms=follow_ms,
        lock_ms=lock_ms,
        idle_bytes=100.0 * MB,
        author_bytes=2_000,
        models_in_memory=4,
        start_s=2,
        coded={"exact": CodedCosts(0.6, 0.6, 0.65, 5, 8, 5), "rounded": CodedCosts(0.2, 0.2, 0.25, 3, 5, 3)},
    )


def found(measured: Costs | None = None, **of_demand: Any) -> Needs:
    """Of a hundred clients that publish 1 MB every hundred seconds: one update a second."""
    given = {"devices": 100, "every_s": 100, "model_bytes": MB, "servers": 2, **of_demand}
    return needs(Demand(**given), measured or costs())


def test_each_server_has_its_clients_rounds_and_takes_in_everybody_elses_updates() -> None:
    assert found().updates_per_s == 1
    assert found(servers=2).cores == pytest.approx(
        {
            "rounds of clients": 0.005,
            "sending to peers": 0.001,
            "receiving from peers": 0.002,
            "coding": 0,
            "database": 0,
        }
    )
    four = found(servers=4).cores
    assert four["rounds of clients"] == pytest.approx(0.0025)
    assert four["receiving from peers"] == pytest.approx(0.003)  # three quarters of a second's update, 4 ms each
    alone = found(servers=1).cores
    assert (alone["sending to peers"], alone["receiving from peers"]) == (0, 0)


def test_a_model_goes_up_and_an_average_comes_down_and_a_model_goes_to_each_other_server() -> None:
    two = found(servers=2)
    assert (two.client_up_bytes, two.client_down_bytes) == (1_001_000, 1_003_000)
    assert (two.from_clients_bytes_s, two.to_clients_bytes_s) == (500_500, 501_500)
    assert (two.from_peers_bytes_s, two.to_peers_bytes_s) == (501_000, 501_000)
    assert found(servers=1).from_peers_bytes_s == 0


def test_pruning_leaves_each_authors_newest_and_the_days_that_are_kept() -> None:
    week = found(keep_days=7)
    kept = MB + 4 * 8192  # a model of so many values, and its sketch
    assert week.disk_bytes_day == 86_400 * (kept + 5_000)
    assert week.models_stay_bytes == (100 + 7 * 86_400) * kept
    assert week.records_bytes_day == 86_400 * 5_000
    assert found(keep_days=0).models_stay_bytes == 100 * kept
    assert found(model_bytes=100_000, keep_days=0).models_stay_bytes == 100 * 100_000
    assert found(keep_days=None).models_stay_bytes is None


def test_coded_models_are_smaller_up_between_servers_and_at_rest_and_averages_come_whole() -> None:
    whole, rounded = found(), found(coding="rounded")
    assert (rounded.client_up_bytes, rounded.client_down_bytes) == (201_000, whole.client_down_bytes)
    assert rounded.from_peers_bytes_s == 0.5 * 202_000
    assert rounded.models_stay_bytes == 100 * MB + 7 * 86_400 * 250_000 + (100 + 7 * 86_400) * 4 * 8192
    # Each second half an update is decoded as it comes (3 ms), half is coded for the peer and half decoded (8), all packed (8).
    assert rounded.cores["coding"] == pytest.approx((0.5 * 3 + 0.5 * 5 + 0.5 * 3 + 5 + 3) / 1e3)


def test_small_models_are_coded_on_their_way_up_only() -> None:
    small = found(coding="rounded", model_bytes=100_000)
    assert small.client_up_bytes == 21_000
    assert small.from_peers_bytes_s == 0.5 * 102_000
    assert small.models_stay_bytes == 100 * 100_000 + 7 * 86_400 * 100_000


def test_an_average_takes_models_of_one_cluster_and_no_more_than_the_bound() -> None:
    assert found(clusters=10).averaged == 10
    assert found(clusters=1).averaged == 64
    assert found(clusters=100).averaged == 1


def test_what_one_process_cannot_do_is_shared_on_postgresql() -> None:
    assert (found().processes, found().database) == (1, "SQLite")
    # 100 updates a second at one server: 1.0 cores on SQLite; on PostgreSQL 1.2, and 0.1 for each that follows: (1.2 - 0.1) / (0.7 - 0.1).
    many = found(devices=10_000, servers=1)
    assert (many.processes, many.database) == (2, "PostgreSQL")
    assert many.cores["following other processes"] == pytest.approx(0.1)
    assert many.cores["database"] == pytest.approx(0.3)


def test_no_number_of_processes_is_enough_where_following_takes_them_whole() -> None:
    hopeless = found(costs(follow_ms=7.0), devices=10_000, servers=1, keep_days=0)
    assert hopeless.processes is None
    assert not hopeless.is_within_reach
    assert hopeless.limits[0].name == "CPU: 16 processes for a server"


def test_the_tightest_bound_is_named_first_with_its_share() -> None:
    held = found(costs(lock_ms=70.0), devices=10_000, servers=1)
    assert held.limits[0].name == "the database's write lock"
    assert held.limits[0].share == pytest.approx(10)  # 100 x 70 ms in the 0.7 s of each second
    assert [limit.share for limit in held.limits] == sorted((limit.share for limit in held.limits), reverse=True)


def test_models_lie_in_rows_in_files_or_in_a_bucket() -> None:
    assert found(model_bytes=100_000).models == "database"
    assert found(model_bytes=13 * MB).models == "directory"
    assert found(devices=40_000, model_bytes=13 * MB).models == "bucket"


def test_vectors_are_held_of_a_thousand_authors_and_sketches_of_large_models() -> None:
    on_its_way = 4 * MB
    cache = 96 * 2**20
    assert found().memory_bytes == 100 * MB + cache + 100 * 4 * 8192 + 100 * 2_000 + on_its_way
    more = found(devices=2_000, every_s=20_000, model_bytes=100_000)
    assert more.memory_bytes == 100 * MB + cache + 1_000 * 100_000 + 2_000 * 2_000 + 4 * 100_000


@pytest.mark.parametrize(
    ("of_demand", "words"),
    [
        ({"every_s": 0.5}, "--every must be from 1 to"),
        ({"devices": 0}, "--devices must be from 1"),
        ({"model_bytes": 0}, "--model-mb must be from"),
        ({"model_bytes": float("nan")}, "--model-mb must be from"),
        ({"servers": 257}, "--servers must be from 1 to 256, not 257"),
        ({"clusters": 101}, "--clusters must be from 1 to 100 (as many as there are devices)"),
        ({"keep_days": -1}, "--keep must be from 0"),
        ({"coding": "zip"}, "whole, exact, rounded, not 'zip'"),
        ({"client_mbit": 0}, "--client-mbit must be"),
    ],
)
def test_what_cannot_be_is_refused_with_its_range(of_demand: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=r".*") as refused:
        found(**of_demand)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("of_demand", "words"),
    [
        ({"servers": 1}, "one point of failure"),
        ({"client_mbit": 0.1}, "0.1 Mbit/s is too slow: an update takes 160 s"),
        ({"devices": 200_000, "every_s": 1e6}, "offered to nobody"),
        ({"every_s": 40 * 86_400}, "offered for 30 days"),
        ({"devices": 10_000}, "one token may publish 36,000"),
        ({"devices": 10_000, "client_mbit": 0.5}, "DAG_ACFL_HTTP__MAX_CONNECTIONS"),
        ({"devices": 10_000, "model_bytes": 13 * MB}, "DAG_ACFL_HTTP__MAX_BYTES_IN_FLIGHT"),
    ],
)
def test_what_an_operator_would_trip_over_is_said(of_demand: dict[str, Any], words: str) -> None:
    assert words in "\n".join(found(**of_demand).warnings)


def test_costs_go_straight_from_point_to_point_and_on_beyond_the_last() -> None:
    points = [(1.0, 10.0), (3.0, 30.0), (5.0, 70.0)]
    assert [line(points, at) for at in (0, 1, 2, 4, 6)] == [0, 10, 20, 50, 90]
    assert line([(2.0, 7.0)], 100) == 7


@pytest.mark.parametrize("name", ["devices", "model_bytes"])
def test_by_what_was_measured_more_never_costs_less(name: str) -> None:
    base = Demand(devices=100, every_s=600, model_bytes=MB)
    before = None
    for times in (1, 3, 10, 30):
        now = needs(replace(base, **{name: getattr(base, name) * times}), MEASURED)
        if before is not None:
            assert now.disk_bytes_day > before.disk_bytes_day
            assert now.from_clients_bytes_s > before.from_clients_bytes_s
            assert now.limits[0].share > before.limits[0].share
        before = now


def test_by_what_was_measured_fifty_hospitals_are_easy_and_ten_thousand_devices_each_minute_are_not() -> None:
    hospitals = needs(Demand(devices=50, every_s=3600, model_bytes=13 * MB, servers=3), MEASURED)
    assert hospitals.is_within_reach
    assert hospitals.processes == 1
    devices = needs(Demand(devices=10_000, every_s=60, model_bytes=13 * MB), MEASURED)
    assert not devices.is_within_reach
    assert devices.updates_per_s == pytest.approx(166.7, abs=0.1)
    assert devices.disk_bytes_day > 180e12
