"""Small files that hold secrets: for this user only, and on disk before anybody relies on them."""

import os
from pathlib import Path


def write_private(path: Path, data: bytes) -> None:
    """Make a new file, on disk when this returns; that it is in its folder is the caller's to sync.

    Raises:
        OSError: It exists already, or cannot be written.
    """
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
