"""A server outlives its PostgreSQL and loses nothing: the short version of ``make faults PART=postgresql``."""

from pathlib import Path

import pytest

from tests.faults import postgresql


@pytest.mark.faults
@pytest.mark.timeout(240)
def test_kill_of_postgresql_in_three_ways_under_eight_writers_loses_no_acknowledged_transaction(tmp_path: Path) -> None:
    report = postgresql.run(tmp_path, 3, 2026)
    assert report.broken == []
    assert report.figures["kills"] == {"postmaster": 1, "backend": 1, "everything": 1}
