"""How the C library keeps freed memory; called by the command that serves.

By default glibc returns each freed buffer of a few megabytes to the kernel and takes fresh pages for the next
upload, whose first touch costs more than receiving it (measured: 11-14 ms of CPU against 2-4 for 13 MB). And by
default it gives threads heaps of their own, each of which would keep its own freed buffers: with ten 13 MB uploads in
flight that is a gigabyte, with one heap for all a third of it.
"""

import ctypes
import sys
from collections.abc import Callable
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_LARGEST_KEPT_BYTES: Final = 32 << 20
_KEPT_BYTES: Final = 128 << 20


def keep_freed_buffers() -> bool:
    """Reuse buffers up to 32 MiB, keeping at most 128 MiB; False where the C library cannot be told.

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
