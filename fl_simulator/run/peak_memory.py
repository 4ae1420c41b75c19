"""The most resident memory that a run takes on this machine; never part of what a run decides.

``getrusage`` knows the most that a process ever had, and one process plays several runs after another. Linux lets a
process reset that mark, so that each run has its own; elsewhere nothing is measured.
"""

import gc
import re
from pathlib import Path
from typing import Final

_RESET: Final = Path("/proc/self/clear_refs")
_STATUS: Final = Path("/proc/self/status")
_PEAK_ALONE: Final = "5"
"""To ``clear_refs``: the mark becomes what is held now, and nothing else is cleared (proc(5))."""
_PEAK: Final = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


class PeakMemory:
    """Of this process since this was made, without processes that it starts. One at a time measures."""

    def __init__(self) -> None:
        gc.collect()  # what an earlier run left would count for this one
        try:
            _RESET.write_text(_PEAK_ALONE)
        except OSError:  # not Linux, or a container that denies it
            self._is_measured = False
        else:
            self._is_measured = True

    def read_bytes(self) -> int | None:
        """None where the system cannot tell."""
        found = _PEAK.search(_STATUS.read_text("ascii", "replace")) if self._is_measured else None
        return None if found is None else int(found[1]) * 1024
