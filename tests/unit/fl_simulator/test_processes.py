import signal
import threading
import time

import pytest

from fl_simulator.run.processes import interrupts_noted, without_interrupts
from tests.interrupts import ctrl_c_ignored, handler_in_another_thread


def test_ctrl_c_is_noted_where_it_comes_and_raised_at_the_end() -> None:
    noted_at: list[bool] = []

    def pressed_in_the_middle() -> None:
        with interrupts_noted() as noted:
            noted_at.append(noted.is_set())
            signal.raise_signal(signal.SIGINT)
            noted_at.append(noted.is_set())

    with pytest.raises(KeyboardInterrupt):
        pressed_in_the_middle()
    assert noted_at == [False, True]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_where_nobody_presses_ctrl_c_nothing_is_raised() -> None:
    with interrupts_noted() as noted:
        pass
    assert not noted.is_set()


def test_a_process_that_ignores_ctrl_c_goes_on_ignoring_it() -> None:
    with ctrl_c_ignored():
        with interrupts_noted() as noted:
            signal.raise_signal(signal.SIGINT)
        assert not noted.is_set()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_in_another_thread_nothing_is_changed() -> None:
    assert handler_in_another_thread(interrupts_noted) is signal.default_int_handler


def test_without_interrupts_ctrl_c_waits_for_the_end_also_when_another_thread_takes_the_signal() -> None:
    """Threads of numerical libraries block nothing: the kernel hands them what the main thread blocks."""
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    steps: list[str] = []

    def pressed_in_the_middle() -> None:
        with without_interrupts():
            signal.pthread_kill(thread.ident or 0, signal.SIGINT)
            time.sleep(0.05)  # Python's handler runs here
            steps.append("went on")

    try:
        with pytest.raises(KeyboardInterrupt):
            pressed_in_the_middle()
    finally:
        ended.set()
        thread.join()
    assert steps == ["went on"]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
