"""Eight clients go on when two of three servers are gone: the short version of ``make faults PART=hospital``."""

from pathlib import Path

import pytest

from tests.faults import hospital


@pytest.mark.faults
@pytest.mark.timeout(240)
def test_every_client_goes_on_by_itself_while_one_server_is_away_and_another_is_gone_for_good(tmp_path: Path) -> None:
    report = hospital.run(tmp_path, 4, 2026)
    assert report.broken == []
    assert all(count > 0 for counts in report.figures["publications"].values() for count in counts)
