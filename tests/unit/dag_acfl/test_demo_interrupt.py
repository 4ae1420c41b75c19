import signal

import pytest

from dag_acfl.demo.interrupt import Interrupt
from tests.interrupts import ctrl_c_ignored, handler_in_another_thread


class Finalized:
    """Ctrl-C comes while this object is finalized: Python can only report what is raised then."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def test_an_interrupt_is_raised_where_it_comes() -> None:
    with Interrupt() as interrupt:
        interrupt.check()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_was_swallowed_is_raised_at_the_next_check() -> None:
    with Interrupt() as interrupt:
        lost = Finalized()
        del lost
        with pytest.raises(KeyboardInterrupt):
            interrupt.check()


def test_afterwards_ctrl_c_is_what_it_was_before() -> None:
    with Interrupt():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_process_that_ignores_ctrl_c_goes_on_ignoring_it() -> None:
    with ctrl_c_ignored():
        with Interrupt() as interrupt:
            signal.raise_signal(signal.SIGINT)
            interrupt.check()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_in_another_thread_nothing_is_changed() -> None:
    assert handler_in_another_thread(Interrupt) is signal.default_int_handler
