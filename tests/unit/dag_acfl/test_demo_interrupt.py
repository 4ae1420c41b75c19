import signal
import threading

import pytest

from dag_acfl.demo.interrupt import Interrupt


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
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupt() as interrupt:
            signal.raise_signal(signal.SIGINT)
            interrupt.check()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_in_another_thread_nothing_is_changed() -> None:
    handlers: list[object] = []

    def work() -> None:
        with Interrupt():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [signal.default_int_handler]
