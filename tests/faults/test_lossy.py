"""Servers over a bad network become equal: the short version of ``make faults PART=lossy``, and the network itself."""

from itertools import pairwise
from pathlib import Path

import pytest

from tests.faults import lossy
from tests.faults.harness.lossy_link import Relay, Weather

A, B = b"\x0a\x00\x00\x01", b"\x0a\x00\x00\x02"
HARSH = Weather(delay_s=0.1, jitter_s=0.02, loss=0.3, doubles=0.3, late=0.3, late_s=0.05)


def fates(seed: int, weather: Weather = HARSH) -> list[list[float]]:
    """When each of 2,000 packets arrives that are sent a millisecond apart, measured from its sending."""
    relay = Relay(weather, seed)
    return [[due_s - n / 1000 for due_s in relay.due(A, B, 100, n / 1000)] for n in range(2000)]


def test_a_seed_decides_every_packets_fate() -> None:
    assert fates(1) == fates(1)
    assert fates(1) != fates(2)


def test_packets_of_one_direction_do_not_change_the_fate_of_the_others() -> None:
    relay = Relay(HARSH, 1)
    both = []
    for n in range(2000):
        both.append([due_s - n / 1000 for due_s in relay.due(A, B, 100, n / 1000)])
        if n % 3:
            relay.due(B, A, 100, n / 1000)
    assert both == fates(1)


def test_of_many_packets_the_shares_are_lost_doubled_and_overtaken_that_the_weather_says() -> None:
    relay = Relay(HARSH, 1)
    arrivals = [relay.due(A, B, 100, n / 1000) for n in range(2000)]
    assert sum(not each for each in arrivals) == relay.counts.lost == pytest.approx(600, abs=60)
    assert sum(len(each) == 2 for each in arrivals) == relay.counts.doubled == pytest.approx(420, abs=60)
    ahead_s = [each[0] for each in arrivals if each]
    assert sum(after < before for before, after in pairwise(ahead_s)) > 200


def test_good_weather_keeps_all_packets_in_order_and_in_time() -> None:
    good = Weather(delay_s=0.1, jitter_s=0.02, loss=0, doubles=0, late=0)
    relay = Relay(good, 1)
    arrivals = [relay.due(A, B, 100, n / 1000) for n in range(2000)]
    assert all(len(each) == 1 for each in arrivals)
    assert [each[0] for each in arrivals] == sorted(each[0] for each in arrivals)
    assert all(0.08 <= took_s <= 0.12 for (took_s,) in fates(1, good))


@pytest.mark.faults
@pytest.mark.timeout(240)
def test_three_servers_over_a_bad_network_become_equal_and_lose_nothing(tmp_path: Path) -> None:
    report = lossy.run(tmp_path, 4, 2026)
    assert report.broken == []
    assert report.figures["round_trip_ms"]["p50"] >= 160
    assert report.figures["link"]["lost"] > 0
    assert report.figures["link"]["doubled"] > 0
