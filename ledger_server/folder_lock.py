"""A data folder has one server at a time: its key, its cursors and what is on its way are that one's."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fl_core.errors import ParameterError

LOCK_FILE = "lock"


@contextmanager
def holding(folder: Path) -> Iterator[None]:
    """Within the block no other process can hold the folder; the system lets it go however this process ends.

    Raises:
        ParameterError: Another process holds it, or it cannot be locked.
    """
    path = folder / LOCK_FILE
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise ParameterError(f"{path} cannot be written: {error.strerror}; choose another --data-dir") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 20).decode("ascii", "replace")
            who = f"process {holder}" if holder.isdigit() else "another process"
            raise ParameterError(
                f"{who} serves {folder} already; stop it first, or give this server a folder of its own: --data-dir"
            ) from None
        except OSError as error:
            raise ParameterError(f"{path} cannot be locked: {error.strerror}; use a local disk") from error
        with suppress(OSError):  # the note is a courtesy, and a full disk no reason to stop here
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
        yield
    finally:
        os.close(descriptor)
