"""What a server's process asks of the libraries below it; to be called before they are loaded."""

import ctypes
import os
from contextlib import suppress
from typing import Final

_M_ARENA_MAX: Final = -8
"""Of glibc's malloc.h."""


def use_one_blas_thread() -> None:
    """Let BLAS use one thread, unless the environment says otherwise; to be called before NumPy is imported.

    By default even a product of 0.4 MB is split between all cores, whose threads then spin at a barrier. While requests
    keep the cores busy, a selection takes 20 ms instead of 2 (measured): a server's parallelism is its requests.
    """
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
        os.environ.setdefault(name, "1")


def use_one_malloc_arena() -> None:
    """Let all threads take memory from one arena of glibc, unless the environment says otherwise.

    By default glibc gives each thread one of up to eight arenas a core. Models come and go on many threads, and what
    one of them frees another cannot use: twice the memory in use, and growing for hours (measured, docs/faults.md).
    Other C libraries have no such call.
    """
    if "MALLOC_ARENA_MAX" not in os.environ:
        os.environ["MALLOC_ARENA_MAX"] = "1"  # of the processes that this one starts
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
