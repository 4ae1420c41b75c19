"""``kill -9`` at single system calls loses nothing: the short version of ``make faults PART=crash_sites``."""

from pathlib import Path

import pytest

from tests.faults import crash_sites


@pytest.mark.faults
@pytest.mark.timeout(300)
def test_a_kill_at_the_first_writes_and_syncs_of_a_publication_leaves_nothing_in_part(tmp_path: Path) -> None:
    report = crash_sites.run(tmp_path, 1, 2026)
    assert report.broken == []
    durable = {"pwrite64", "ftruncate", "fdatasync", "rename", "fsync"}
    assert report.figures["large, in files"]["sites"].keys() == durable
    assert report.figures[crash_sites.FIRST.name]["sites"].keys() == durable
    assert report.figures[crash_sites.COPYING.name]["sites"] == {"fdatasync": 1, "pwrite64": 1}
