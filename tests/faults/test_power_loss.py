"""A power cut takes nothing that was acknowledged: the short version of ``make faults PART=power_loss``."""

import subprocess
from pathlib import Path

import pytest

from tests.faults import power_loss
from tests.faults.harness.volumes import FileSystem, volume


@pytest.mark.faults
@pytest.mark.parametrize("file_system", power_loss.FILE_SYSTEMS)
def test_a_power_cut_takes_what_was_not_synced_also_while_another_namespace_holds_the_mount(
    file_system: FileSystem, tmp_path: Path
) -> None:
    with volume(tmp_path / "volume", file_system, size_mib=power_loss.VOLUME_MIB) as disk:
        subprocess.run(["sync", "-f", str(disk.place)], check=True)
        (disk.place / "unsynced").write_bytes(b"x")
        # The namespace is there once its command has said so.
        held = subprocess.Popen(["unshare", "--mount", "sh", "-c", "echo; exec sleep 1"], stdout=subprocess.PIPE)
        with held:
            assert held.stdout is not None
            held.stdout.readline()
            disk.cut_power()
            with pytest.raises(OSError, match="Input/output error"):
                (disk.place / "without power").write_bytes(b"x")
            disk.restore_power()
        assert not (disk.place / "unsynced").exists()
        (disk.place / "with power").write_bytes(b"x")


@pytest.mark.faults
@pytest.mark.timeout(300)
def test_power_cuts_under_eight_writers_lose_no_acknowledged_transaction_unless_commits_do_not_wait(
    tmp_path: Path,
) -> None:
    report = power_loss.run(tmp_path, 2, 2026)
    assert report.broken == []
    assert report.figures["canary, synchronous=NORMAL"]["lost"] > 0
