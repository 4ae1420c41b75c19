"""Ctrl-C as a test presses it, and what a process may have made of it before."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager


@contextmanager
def ctrl_c_ignored() -> Iterator[None]:
    """The process has chosen that Ctrl-C does nothing, as ``nohup`` does."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def handler_in_another_thread(block: Callable[[], AbstractContextManager[object]]) -> object:
    """What Ctrl-C does while the block runs in a thread that is not the main one."""
    found: list[object] = []

    def work() -> None:
        with block():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return found[0]
