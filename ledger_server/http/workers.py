"""Several processes that serve from one listening socket, and their parent, which starts another one where one ends."""

import logging
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from types import FrameType
from typing import Final, Protocol

from fl_core.errors import DagAcflError, ParameterError
from ledger_server.http.serve import bind, print_url, url_of
from ledger_server.settings import Settings

logger: logging.Logger = logging.getLogger(__name__)

_LOOK_S: Final = 0.1
_REST_S: Final = 1.0
"""Between two starts in one place: one that cannot start is no reason to keep a processor busy."""
_END_S: Final = 5.0
"""Beyond what a process may take to end; then it is killed."""


class Serve(Protocol):
    """Serves in this process until a signal; a function that another process finds by its name."""

    def __call__(self, settings: Settings, *, listening: socket.socket, on_started: Callable[[], None]) -> None: ...


def serve_together(serve: Serve, settings: Settings) -> None:
    """Serve by ``settings.workers`` processes until a signal; prints the URL once the first of them answers.

    Raises:
        ParameterError: The port cannot be had, or a process cannot start; one line.
    """
    listening = bind(settings)
    with tempfile.TemporaryDirectory(prefix="dag-acfl-metrics-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        workers = [_Worker(serve, settings, listening) for _ in range(settings.workers)]
        signals: list[int] = []

        def note(number: int, _: FrameType | None) -> None:
            signals.append(number)

        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, note)
        try:
            _watch(workers, signals, url_of(listening, tls=settings.tls.certificate is not None))
        finally:
            end_s = time.monotonic() + settings.drain_delay_s + settings.drain_s + _END_S
            told = 0
            while any(each.process.is_alive() for each in workers) and time.monotonic() < end_s:
                for number in signals[told:] or ([] if told else [signal.SIGTERM]):
                    for worker in workers:
                        worker.tell(number)
                told = max(len(signals), 1)
                time.sleep(_LOOK_S)
            for worker in workers:
                worker.process.kill()
                worker.process.join()


def _watch(workers: "list[_Worker]", signals: list[int], url: str) -> None:
    """Start another process where one has ended, until a signal comes."""
    is_up = False
    while not signals:
        for each in workers:
            started = each.news()
            if started and not is_up:
                is_up = True
                print_url(url)
            if not each.process.is_alive():
                if not each.has_started and not is_up:
                    raise ParameterError(
                        each.failure or f"a process of the server ended: exit code {each.process.exitcode}"
                    )
                each.replace()
        time.sleep(_LOOK_S)


class _Worker:
    """A place among the processes, and the one that is in it."""

    def __init__(self, serve: Serve, settings: Settings, listening: socket.socket) -> None:
        self._given = (serve, settings, listening)
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._heard, telling = context.Pipe(duplex=False)
        self.process: SpawnProcess = context.Process(target=_work, args=(*self._given, telling))
        self.process.start()
        telling.close()
        self._began_s = time.monotonic()
        self.has_started, self.failure = False, ""

    def news(self) -> bool:
        """Whether the process has said since that it serves."""
        try:
            while self._heard.poll():
                said = self._heard.recv()
                self.has_started, self.failure = said is None, said or ""
                return self.has_started
        except (EOFError, OSError):  # it has ended
            pass
        return False

    def replace(self) -> None:
        """Start another process for one that has ended, unless that began a moment ago."""
        if time.monotonic() < self._began_s + _REST_S:
            return
        from prometheus_client.multiprocess import mark_process_dead  # noqa: PLC0415 -- reads the environment

        about = {"pid": self.process.pid, "exit_code": self.process.exitcode, "reason": self.failure}
        logger.error("a process of the server has ended; another one starts", extra=about)
        mark_process_dead(self.process.pid)  # type: ignore[no-untyped-call]
        self._start()

    def tell(self, number: int) -> None:
        """Pass a signal on."""
        if self.process.is_alive() and self.process.pid is not None:
            os.kill(self.process.pid, number)


def _work(serve: Serve, settings: Settings, listening: socket.socket, telling: Connection) -> None:
    """One process; it ends with its parent, however that ends."""
    os.setpgid(0, 0)  # Ctrl-C is the parent's to pass on
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    try:
        serve(settings, listening=listening, on_started=lambda: telling.send(None))
    except DagAcflError as error:
        telling.send(str(error))
        sys.exit(1)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "this is a child"
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
