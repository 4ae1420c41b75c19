"""What runs here: the release, the commit of its source, and the revision of its database."""

import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

from fl_core.version import installed_version
from ledger_server.store.schema import head

UNKNOWN: Final = "unknown"
_PACKAGE: Final = Path(__file__).resolve().parent


@cache
def commit() -> str:
    """Of the source: as ``hatch_build.py`` wrote it into the wheel, or of the checkout (``-dirty``: and changed)."""
    written = _PACKAGE / "_commit.txt"
    if written.is_file():
        return written.read_text("ascii").strip()
    program = shutil.which("git")
    if program is None or not (_PACKAGE.parent / ".git").exists():  # another project's checkout may be around it
        return UNKNOWN
    command = [program, "-C", str(_PACKAGE.parent), "--no-optional-locks", "describe"]
    done = subprocess.run(  # noqa: S603 -- words of our own
        [*command, "--always", "--dirty", "--exclude=*", "--abbrev=12"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or UNKNOWN


def build() -> dict[str, str]:
    """``version``, ``commit`` and ``schema``, in which builds differ."""
    return {"version": installed_version(), "commit": commit(), "schema": head()}
