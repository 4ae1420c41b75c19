"""Small files of a server's own: for this user only, and on disk before anybody relies on them."""

import os
from pathlib import Path


def write_private(path: Path, data: bytes) -> None:
    """Make a new file, on disk when this returns; that it is in its folder is the caller's to sync.

    What root writes belongs to whom the folder belongs: a server that runs as its own user could not read it otherwise.

    Raises:
        OSError: It exists already, or cannot be written.
    """
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        if os.geteuid() == 0:
            folder = path.parent.stat()
            os.fchown(file.fileno(), folder.st_uid, folder.st_gid)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_private(path: Path, text: str) -> None:
    """Replace a file by one that is for this user only, durably; where a link was, what it led to stays as it is.

    A reader finds the old content or the new, whole, also after a power cut. One process or thread does it at a time.

    Raises:
        OSError: It cannot be written.
    """
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    write_private(draft, text.encode())
    draft.rename(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
