import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from fl_core.errors import DagAcflError
from fl_core.selection.change_points import BeastPriors, change_point_probabilities
from fl_core.types import Vector64
from ledger_server.change_point_process import ChangePointProcess, ChangePointProcessError

PRIORS = BeastPriors()
STEP = np.array([0.99, 0.98, 0.985, 0.3, 0.31, 0.29])
WAIT_S = 30.0


@pytest.fixture
def process() -> Iterator[ChangePointProcess]:
    detect = ChangePointProcess()
    yield detect
    detect.close()


def worker_of(detect: ChangePointProcess) -> psutil.Process:
    return psutil.Process(detect._running().submit(os.getpid).result(WAIT_S))


def ask_until_refused(detect: ChangePointProcess) -> None:
    for _ in range(1000):  # the pool notices from a thread of its own
        detect(np.array([1.0, 1.0]), PRIORS)


def questions_under_way(detect: ChangePointProcess, count: int) -> tuple[list[threading.Thread], list[object]]:
    """Threads that wait for an answer by now, and where each puts its answer or error."""
    outcomes: list[object] = []

    def ask() -> None:
        try:
            outcomes.append(detect(STEP, PRIORS))
        except ChangePointProcessError as error:
            outcomes.append(error)

    pool = detect._running()
    threads = [threading.Thread(target=ask) for _ in range(count)]
    for thread in threads:
        thread.start()
    assert eventually(lambda: len(pool._pending_work_items) == count)
    assert detect.waiting == count - 1, "one is at work"
    return threads, outcomes


def eventually(true: Callable[[], bool]) -> bool:
    """Whether it becomes true within a generous time."""
    until_s = time.monotonic() + WAIT_S
    while not true() and time.monotonic() < until_s:
        time.sleep(0.01)
    return true()


def gone(pid: int) -> bool:
    """Whether the process has ended within a generous time; a zombie has."""

    def ended() -> bool:
        return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE

    return eventually(ended)


def test_the_answer_is_that_of_the_same_process_byte_for_byte(process: ChangePointProcess) -> None:
    there = process(STEP, PRIORS)
    assert there.tobytes() == change_point_probabilities(STEP, PRIORS).tobytes()
    assert int(there.argmax()) == 3
    assert worker_of(process).pid != os.getpid()


def test_starting_it_loads_beast_and_no_plots_before_the_first_question(process: ChangePointProcess) -> None:
    process.start()
    loaded = "[name in __import__('sys').modules for name in ('Rbeast', 'matplotlib')]"
    assert process._running().submit(eval, loaded).result(WAIT_S) == [True, False]


def test_a_fault_of_the_question_is_the_askers_and_the_process_lives(process: ChangePointProcess) -> None:
    with pytest.raises(ValueError, match="finite"):
        process(np.array([1.0, np.nan, 2.0]), PRIORS)
    worker = worker_of(process)
    assert process(STEP, PRIORS)[3] > 0.5
    assert worker_of(process).pid == worker.pid


def test_a_killed_process_is_one_clear_error_and_the_next_question_is_answered(process: ChangePointProcess) -> None:
    before = process(STEP, PRIORS)
    killed = worker_of(process)
    killed.kill()
    assert gone(killed.pid)
    with pytest.raises(ChangePointProcessError, match="ask again") as refused:
        ask_until_refused(process)
    assert (isinstance(refused.value, DagAcflError), refused.value.code) == (True, "selector-unavailable")
    assert process(STEP, PRIORS).tobytes() == before.tobytes()
    assert worker_of(process).pid != killed.pid


def test_a_process_that_dies_at_work_fails_all_who_wait_and_only_them(process: ChangePointProcess) -> None:
    stopped = worker_of(process)
    stopped.suspend()  # questions stay open until it is killed
    threads, outcomes = questions_under_way(process, 4)
    stopped.kill()
    for thread in threads:
        thread.join(WAIT_S)
    assert [type(each) for each in outcomes] == [ChangePointProcessError] * 4
    assert process(STEP, PRIORS)[3] > 0.5


def test_interrupting_the_terminal_leaves_the_process_to_the_server(process: ChangePointProcess) -> None:
    worker = worker_of(process)
    worker.send_signal(signal.SIGINT)
    assert process(STEP, PRIORS)[3] > 0.5
    assert worker_of(process).pid == worker.pid


def test_closing_ends_the_process_and_refuses_questions() -> None:
    process = ChangePointProcess()
    worker = worker_of(process)
    process.close()
    process.close()
    assert gone(worker.pid)
    with pytest.raises(ChangePointProcessError, match="stopping"):
        process(STEP, PRIORS)


def test_one_that_was_never_asked_has_nothing_to_close() -> None:
    ChangePointProcess().close()


def test_closing_answers_who_still_waits() -> None:
    process = ChangePointProcess()
    worker = worker_of(process)
    worker.suspend()
    threads, outcomes = questions_under_way(process, 6)
    closing = threading.Thread(target=process.close)
    closing.start()
    assert eventually(lambda: process._pool is None)
    worker.resume()
    for thread in (closing, *threads):
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert len(outcomes) == 6
    for each in outcomes:
        if isinstance(each, ChangePointProcessError):
            assert "stopping" in str(each)
        else:
            answer: Vector64 = each  # type: ignore[assignment]
            assert answer[3] > 0.5
    assert any(isinstance(each, ChangePointProcessError) for each in outcomes), "what had not begun is not computed"


SERVER = """
import os, sys, time
from ledger_server.change_point_process import ChangePointProcess
if __name__ == "__main__":
    print(ChangePointProcess()._running().submit(os.getpid).result(), flush=True)
    time.sleep(600)
"""


def test_a_killed_server_leaves_no_process_behind(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, str(tmp_path / "server.py")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, text=True
    ) as server:
        assert server.stdout is not None
        pid = int(server.stdout.readline())
        assert psutil.pid_exists(pid)
        server.kill()
    assert gone(pid)
