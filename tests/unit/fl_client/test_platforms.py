"""The client on Windows and macOS, as far as a machine with Linux can tell."""

import importlib.util
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import fl_client.durable_files
from fl_client import StateLockedError

ROOT = Path(__file__).parents[3]
POSIX_ONLY = ("fcntl", "grp", "posix_ipc", "pwd", "resource", "termios", "tty", "pty", "syslog")


@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_every_module_of_the_client_and_its_command_loads_elsewhere(platform: str) -> None:
    missing = POSIX_ONLY if platform == "win32" else ()
    code = f"""
import sys, types, pkgutil, importlib, sysconfig
import cachetools, cryptography.hazmat.primitives.serialization, typer, urllib3, fl_core.dag.genesis, fl_core.wire.v1
sysconfig.get_config_vars()  # what is asked of the true platform is asked before
sys.platform = {platform!r}
for name in {missing}:
    sys.modules[name] = None
sys.modules["msvcrt"] = types.ModuleType("msvcrt")
import fl_client, dag_acfl.cli
for module in pkgutil.walk_packages(fl_client.__path__, "fl_client."):
    if not module.name.startswith(("fl_client.integrations", "fl_client.training.dp_sgd", "fl_client.training.loop", "fl_client.training.module", "fl_client.training.trainer", "fl_client.training.virtual")):
        importlib.import_module(module.name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def is_open(descriptor: int, file: int) -> bool:
    with suppress(OSError):
        return os.fstat(descriptor).st_ino == file
    return False


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """``durable_files`` as Windows runs it, with ``msvcrt`` of a few lines: one lock for a file, whoever asks."""
    held: dict[int, int] = {}

    def locking(descriptor: int, mode: int, nbytes: int) -> None:
        assert (mode, nbytes) == (2, 1)
        assert os.lseek(descriptor, 0, os.SEEK_CUR) > os.fstat(descriptor).st_size, "the note must stay readable"
        file = os.fstat(descriptor).st_ino
        holder = held.get(file, descriptor)
        if holder != descriptor and is_open(holder, file):
            raise PermissionError(13, "Permission denied")
        held[file] = descriptor

    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(LK_NBLCK=2, locking=locking))  # type: ignore[arg-type]
    monkeypatch.delattr(os, "O_DIRECTORY")
    spec = importlib.util.spec_from_file_location("durable_files_of_windows", fl_client.durable_files.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_on_windows_a_folder_is_used_by_one_process_and_can_be_looked_at(windows: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert windows.holder_of(path) is None
    descriptor = windows.lock_file(path)
    assert windows.holder_of(path) == f"process {os.getpid()}"
    with pytest.raises(StateLockedError, match=f"process {os.getpid()}"):
        windows.lock_file(path)
    os.close(descriptor)
    assert windows.holder_of(path) is None
    os.close(windows.lock_file(path))


def test_on_windows_a_file_that_is_being_read_is_replaced_a_moment_later(
    windows: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, refusals = Path.replace, [PermissionError(13, "Access is denied")] * 2

    def refused_at_first(draft: Path, path: Path) -> Path:
        if refusals:
            raise refusals.pop()
        return replace(draft, path)

    monkeypatch.setattr(Path, "replace", refused_at_first)
    windows.replace_file(tmp_path / "participant.json", b"new")
    assert (tmp_path / "participant.json").read_bytes() == b"new"
    assert refusals == []
