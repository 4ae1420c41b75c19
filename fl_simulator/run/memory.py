"""The most memory that a run takes on this machine; never part of what a run decides.

``getrusage`` knows the most that a process ever had, and one process plays several runs after another. Linux lets a
process forget that mark, so that each run has its own; elsewhere nothing is measured. What an earlier run left is given
back first, as far as C's library does: after a larger run the same run may still be told to take some more than in a
process of its own, which is how to compare sizes (``dag-acfl simulate --only``).

Between two runs memory goes back; within one it stays (``keep_freed``): every round frees as many models as it makes.
"""

import ctypes
import gc
import re
import threading
from pathlib import Path
from typing import ClassVar, Final

_FORGET: Final = Path("/proc/self/clear_refs")
_STATUS: Final = Path("/proc/self/status")
_PEAK_ALONE: Final = "5"
"""To ``clear_refs``: the mark becomes what is held now, and nothing else is cleared (proc(5))."""
_MARK: Final = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_LARGEST_KEPT_BYTES: Final = 32 << 20
"""glibc takes no more; larger buffers go back to the system, each alone."""
_KEPT_BYTES: Final = 2**31 - 1


def keep_freed() -> bool:
    """Let C's library keep what this process frees, up to 2 GiB, for what it needs next; False where it cannot be told.

    By default glibc gives the top of the heap back as soon as a round's models are freed, and the next round takes
    fresh pages for its own: every other round of 90 MLPs paid 10 to 15 ms for their first touch, as much as for half
    of the SHA-256, and CFA-GE's gradients took twice as long. The most that a run takes is the same: it needs that
    memory again in each round.
    """
    if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is None:
        return False
    # One option alone would stop glibc from raising the other as it learns what is freed.
    wanted = {_M_MMAP_THRESHOLD: _LARGEST_KEPT_BYTES, _M_TRIM_THRESHOLD: _KEPT_BYTES}
    return all(bool(mallopt(option, value)) for option, value in wanted.items())


class PeakMemory:
    """The most resident memory of this process since this was made; processes that it starts are not counted.

    A process has one mark: who begins later takes it over, and whoever had it measures nothing from then on.
    """

    _lock: ClassVar = threading.Lock()
    _owner: "ClassVar[PeakMemory | None]" = None

    def __init__(self) -> None:
        self._read = 0
        _give_back()
        with self._lock:
            PeakMemory._owner = self if _forget() else None

    def read_bytes(self) -> int | None:
        """None where the system cannot tell."""
        with self._lock:
            if PeakMemory._owner is not self:
                return None
            found = _MARK.search(_STATUS.read_text("ascii", "replace"))
            if found is None:
                return None
            self._read = max(self._read, int(found[1]) * 1024)  # the kernel counts roughly, and may fall by a little
            return self._read


def _give_back() -> None:
    """Free what nobody holds any more: it would count for the run that begins, and C's library keeps it for a while."""
    gc.collect()
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:  # glibc's
        trim(0)


def _forget() -> bool:
    try:
        _FORGET.write_text(_PEAK_ALONE)
    except OSError:  # not Linux, or a container that denies it
        return False
    return True
