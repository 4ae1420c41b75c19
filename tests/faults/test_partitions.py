"""Servers that lose sight of each other become equal again: the short version of ``make faults PART=partitions``."""

from pathlib import Path

import pytest

from tests.faults import partitions


@pytest.mark.faults
@pytest.mark.timeout(240)
def test_servers_that_were_cut_off_in_eight_ways_become_equal_and_never_show_a_child_before_its_parents(
    tmp_path: Path,
) -> None:
    report = partitions.run(tmp_path, len(partitions.KINDS), 2026, lasts_s=(1.0, 3.0))
    assert report.broken == []
    happened = {
        kind for cluster in partitions.CLUSTERS for kind in report.figures[cluster.name]["equal_after_s_by_kind"]
    }
    assert happened == set(partitions.KINDS)
