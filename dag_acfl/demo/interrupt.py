"""Ctrl-C that cannot get lost.

Python raises KeyboardInterrupt wherever the main thread happens to be. Where nobody can catch it, in a finalizer or in
a callback of a library, it is reported or dropped and the program goes on as if nobody had pressed anything; the more
so the longer such places take, so on a busy machine. Hence it is also remembered, and asked for between two steps.

    with Interrupt() as interrupt:
        while work():
            interrupt.check()
"""

import signal
import threading
from types import FrameType
from typing import Self


class Interrupt:
    """Remembers Ctrl-C while its ``with`` block runs, and lets it be raised as ever.

    Changes nothing in another thread than the main one, or where the process has chosen what Ctrl-C does (``nohup``).
    """

    def __init__(self) -> None:
        self._is_pressed = self._is_ours = False

    def __enter__(self) -> Self:
        is_main = threading.current_thread() is threading.main_thread()
        self._is_ours = is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._is_ours:
            signal.signal(signal.SIGINT, self._pressed)
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _pressed(self, _number: int, _frame: FrameType | None) -> None:
        self._is_pressed = True
        raise KeyboardInterrupt

    def check(self) -> None:
        """Raises KeyboardInterrupt: Ctrl-C was pressed, even if nobody heard of it then."""
        if self._is_pressed:
            raise KeyboardInterrupt
