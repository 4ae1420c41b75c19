"""Servers over a bad network become equal: the short version of ``make faults PART=lossy``."""

from pathlib import Path

import pytest

from tests.faults import lossy


@pytest.mark.faults
@pytest.mark.timeout(240)
def test_three_servers_over_a_bad_network_become_equal_and_lose_nothing(tmp_path: Path) -> None:
    report = lossy.run(tmp_path, 4, 2026)
    assert report.broken == []
    assert report.figures["round_trip_ms"]["p50"] >= 160
    assert report.figures["link"]["lost"] > 0
    assert report.figures["link"]["doubled"] > 0
