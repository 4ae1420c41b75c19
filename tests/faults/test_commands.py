"""Commands beside a server that is killed lose nothing: the short version of ``make faults PART=commands``."""

from pathlib import Path

import pytest

from tests.faults.commands import command_points
from tests.faults.kill import PLACES


@pytest.mark.faults
@pytest.mark.timeout(120)
def test_a_backup_and_other_commands_beside_a_server_that_is_killed_take_nothing_away(tmp_path: Path) -> None:
    verdict = command_points(PLACES[1], tmp_path, points=1, seed=2026).verdict(everywhere=False)
    assert verdict.faults == ()
    assert verdict.acknowledged > 1
