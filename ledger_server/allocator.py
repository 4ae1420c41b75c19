"""How the C library keeps freed memory; called by the command that serves.

By default glibc returns each freed buffer of a hundred kilobytes or more to the kernel and takes fresh pages for the
next one; a server receives in such buffers, and the first touch of their pages costs more than receiving (measured:
11-14 ms of CPU against 2-4 for 13 MB). So buffers of up to 4 MiB are kept. Whole models are larger and go back: kept,
they leave gaps between one another that no other model fits, a hundred megabytes with ten uploads in flight, and
saving their pages' first touch is a tenth of the CPU of a round. And all threads share one heap: by default each would
keep freed buffers of its own, a gigabyte with ten uploads in flight.
"""

import ctypes
import sys
from collections.abc import Callable
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_LARGEST_KEPT_BYTES: Final = 4 << 20
_KEPT_BYTES: Final = 128 << 20


def keep_freed_buffers() -> bool:
    """Reuse buffers up to 4 MiB, keeping at most 128 MiB; False where the C library cannot be told.

    To be called before other threads run: a heap that a thread has is not taken from it.
    """
    mallopt = _from_glibc("mallopt")
    if mallopt is None:
        return False
    wanted = {_M_ARENA_MAX: 1, _M_MMAP_THRESHOLD: _LARGEST_KEPT_BYTES, _M_TRIM_THRESHOLD: _KEPT_BYTES}
    return all(bool(mallopt(option, value)) for option, value in wanted.items())


def give_back_freed_memory() -> bool:
    """Return what is free now to the kernel, once, after a start that needed more than serving does."""
    trim = _from_glibc("malloc_trim")
    return trim is not None and bool(trim(0))


def _from_glibc(name: str) -> Callable[..., int] | None:
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None), name, None)
