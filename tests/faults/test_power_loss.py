"""A power cut takes nothing that was acknowledged: the short version of ``make faults PART=power_loss``."""

from pathlib import Path

import pytest

from tests.faults import power_loss


@pytest.mark.faults
@pytest.mark.timeout(300)
def test_power_cuts_under_eight_writers_lose_no_acknowledged_transaction_unless_commits_do_not_wait(
    tmp_path: Path,
) -> None:
    report = power_loss.run(tmp_path, 2, 2026)
    assert report.broken == []
    assert report.figures["canary, synchronous=NORMAL"]["lost"] > 0
