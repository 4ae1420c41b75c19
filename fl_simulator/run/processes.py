"""How many processes there may be, and what those of a pool owe whoever started them.

They leave Ctrl-C to it, and end when it is gone.
A terminal's Ctrl-C reaches every process of the command, also one that is still importing; only the first decides what
it means. And a pool's process whose owner was killed would wait for work for ever, with its folder locked.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import connection, parent_process


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def interrupts_noted() -> Iterator[threading.Event]:
    """Ctrl-C sets what this yields, and is raised as ever when the block is left.

    Raised at once it would come anywhere: half-way through the start of a process, or with a message just taken off a
    queue. Nothing is changed in another thread than the main one, which never hears of Ctrl-C, or where the process
    ignores it (``nohup``).
    """
    noted = threading.Event()
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield noted
        return
    signal.signal(signal.SIGINT, lambda _number, _frame: noted.set())
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)
        if noted.is_set():
            signal.raise_signal(signal.SIGINT)


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Processes that are started in this block never hear of Ctrl-C; one that comes meanwhile is heard after it."""
    # They inherit the mask. This process still gets the signal, by a thread of a library that does not block it.
    with interrupts_noted():
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_owner() -> None:
    """End this process as soon as the one that started it has ended, however that came."""
    owner = parent_process()
    assert owner is not None, "called in a process of a pool"
    threading.Thread(target=_end_after, args=(owner.sentinel,), name="owner", daemon=True).start()


def _end_after(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)  # what a run has on disk survives that, as it survives a kill
