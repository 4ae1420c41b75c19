import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fl_core.errors import ParameterError
from ledger_server.folder_lock import LOCK_FILE, holding

HOLDER = """
import sys, time
from pathlib import Path
from ledger_server.folder_lock import holding
with holding(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_folder_is_held_once_and_the_holder_is_named(tmp_path: Path) -> None:
    with holding(tmp_path / "site"):
        expected = rf"process {os.getpid()} serves .*site already; .*--data-dir"
        with pytest.raises(ParameterError, match=expected), holding(tmp_path / "site"):
            pass
        with holding(tmp_path / "other"):
            pass
    with holding(tmp_path / "site"):
        assert (tmp_path / "site" / LOCK_FILE).stat().st_mode & 0o777 == 0o600
        assert (tmp_path / "site").stat().st_mode & 0o777 == 0o700


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(ParameterError, match=f"process {holder.pid} "), holding(tmp_path):
            pass
        holder.kill()
        holder.wait()
        with holding(tmp_path):
            pass


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ParameterError, match=r"cannot be written: .*--data-dir"), holding(tmp_path / "file"):
        pass


def test_a_lock_that_is_a_link_is_refused_and_what_it_points_to_stays(tmp_path: Path) -> None:
    (tmp_path / "diary").write_text("mine")
    (tmp_path / LOCK_FILE).symlink_to("diary")
    with pytest.raises(ParameterError, match=r"lock cannot be written"), holding(tmp_path):
        pass
    assert (tmp_path / "diary").read_text() == "mine"


def test_a_full_disk_does_not_keep_a_server_from_holding_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with holding(tmp_path), pytest.raises(ParameterError, match="another process serves"), holding(tmp_path):
        pass
