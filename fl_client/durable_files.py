"""Files that survive a power cut, and a folder that one process uses at a time; on any system."""

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fl_client.errors import StateError, StateLockedError
from fl_core.models import Buffer

if sys.platform == "win32":
    import msvcrt

    def _try_to_lock(descriptor: int, *, shared: bool = False) -> None:
        del shared  # there is one kind of lock
        os.lseek(descriptor, 1 << 30, os.SEEK_SET)  # beyond the content, which stays readable
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)

else:
    import fcntl

    def _try_to_lock(descriptor: int, *, shared: bool = False) -> None:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


_IS_HELD = (BlockingIOError, PermissionError)
_PAUSES_S = (0.01, 0.05, 0.2)


def replace_file(path: Path, data: Buffer) -> None:
    """Replace a file's content, durably: a reader finds the old content or the new one, whole; for this user only.

    Raises:
        StateError: It cannot be written.
    """
    draft = path.with_name(f"{path.name}.draft")
    try:
        # A draft left by a kill may have other permissions; a key must never pass through them.
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        _patiently(lambda: draft.replace(path))
        if hasattr(os, "O_DIRECTORY"):  # elsewhere a rename is durable by itself, and a folder cannot be opened
            folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except OSError as error:
        raise StateError(f"{path} cannot be written: {error.strerror}", path=path) from error


def lock_file(path: Path) -> int:
    """Lock a file, which notes this process; the system lets it go when the process ends, however it ends.

    Returns:
        A descriptor; closing it gives the lock back.

    Raises:
        StateLockedError: Another process has it.
        StateError: It cannot be written.
    """
    try:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)  # what is written must not be another file
        descriptor = os.open(path, flags, 0o600)  # not inherited by child processes
    except OSError as error:
        raise StateError(f"{path} cannot be written: {error.strerror}", path=path) from error
    try:
        _patiently(lambda: _try_to_lock(descriptor))
    except _IS_HELD as error:
        holder = _noted(descriptor)
        os.close(descriptor)
        raise StateLockedError(
            f"{path.parent} is in use by {holder}; stop that one, or give this client a folder of its own (--state)",
            path=path,
        ) from error
    except OSError as error:
        os.close(descriptor)
        raise StateError(f"{path} cannot be locked: {error.strerror}", path=path) from error
    with suppress(OSError):  # the note is a courtesy, and a full disk no reason to stop here
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
    return descriptor


def holder_of(path: Path) -> str | None:
    """Who holds the lock of a file, such as ``process 7``; None if nobody does. The file stays as it is."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        _try_to_lock(descriptor, shared=True)
    except _IS_HELD:
        return _noted(descriptor)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None


def _noted(descriptor: int) -> str:
    note = os.read(descriptor, 20).decode("ascii", "replace").strip()
    return f"process {note}" if note.isdigit() else "another process"


def _patiently(act: Callable[[], object]) -> None:
    """Do what somebody who only looks can hinder for a moment: ``holder_of``, and on Windows each reader of a file."""
    for pause_s in _PAUSES_S:
        try:
            act()
        except _IS_HELD:
            time.sleep(pause_s)
        else:
            return
    act()
