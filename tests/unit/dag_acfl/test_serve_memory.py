"""glibc gives each thread an arena of memory; ``serve`` leaves it one for all."""

import subprocess
import sys

PROGRAM = """
import ctypes, threading
from dag_acfl.process import use_one_malloc_arena
{call}
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
together = threading.Barrier(6)
def allocate():
    together.wait()
    libc.malloc(1000)
    together.wait()
threads = [threading.Thread(target=allocate) for _ in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc.fdopen.restype = ctypes.c_void_p
stream = libc.fdopen(1, b"w")
libc.malloc_info(0, ctypes.c_void_p(stream))
libc.fflush(ctypes.c_void_p(stream))
"""


def arenas(call: str) -> int:
    """How many a process has whose six threads have each allocated something after this call."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(call=call)], capture_output=True, text=True, check=True, env={}
    )
    return done.stdout.count("<heap nr=")


def test_all_threads_take_memory_from_one_arena_unless_the_environment_says_otherwise() -> None:
    assert arenas("use_one_malloc_arena()") == 1
    assert arenas("import os; os.environ['MALLOC_ARENA_MAX'] = '8'; use_one_malloc_arena()") > 1
