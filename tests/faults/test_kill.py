"""``kill -9`` of the server loses nothing that was acknowledged: the short version of ``make faults PART=kill``."""

from pathlib import Path

import pytest

from tests.faults import kill
from tests.postgres import Databases


@pytest.mark.faults
@pytest.mark.timeout(240)
def test_kill_at_random_moments_under_eight_writers_loses_no_acknowledged_transaction(
    tmp_path: Path, postgresql: Databases
) -> None:
    report = kill.run(tmp_path, 12, 2026)
    assert report.broken == []
    assert all(each["acknowledged"] > 3 for each in report.figures.values())
