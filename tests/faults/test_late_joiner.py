"""A late joiner's catching up outlives kills: the short version of ``make faults PART=late_joiner``."""

from pathlib import Path

import pytest

from tests.faults import late_joiner


@pytest.mark.faults
@pytest.mark.timeout(240)
def test_a_server_killed_while_it_catches_up_ends_equal_and_fetches_little_again(tmp_path: Path) -> None:
    report = late_joiner.run(tmp_path, 150, 2026)
    assert report.broken == []
    assert report.figures["acknowledged"] == 150
    assert report.figures["kills"] == 3
