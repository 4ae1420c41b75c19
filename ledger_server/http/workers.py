"""Several processes that serve from one listening socket, and their parent, which starts another one where one ends."""

import logging
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from types import FrameType
from typing import Final, Protocol

from fl_core.errors import DagAcflError, ParameterError
from ledger_server.http.serve import bind, print_url, url_of
from ledger_server.metrics import forget_gauges, share_metrics
from ledger_server.settings import Settings

logger: logging.Logger = logging.getLogger(__name__)

_LOOK_S: Final = 0.1
_SILENT_LOOKS: Final = 600
"""A process that has said nothing for a minute is killed: its clients, and the database's lock, might wait for ever.
Counted in looks: a machine that sleeps, or is paused, is no reason."""
_LONG_S: Final = 60.0
"""Who has served for so long ends for another reason than the one before it in its place."""
_FIRST_REST_S: Final = 1.0
_LONGEST_REST_S: Final = 32.0
"""Before another one is started in a place, doubled from the first whenever that ends soon."""
_END_S: Final = 5.0
"""Beyond what a process may take to end; then it is killed."""


class Serve(Protocol):
    """Serves in this process until a signal; a function that another process finds by its name."""

    def __call__(self, settings: Settings, *, listening: socket.socket, on_alive: Callable[[], None]) -> None: ...


def serve_together(serve: Serve, settings: Settings) -> None:
    """Serve by ``settings.workers`` processes until a signal; prints the URL once the first of them answers.

    Another process takes the place of one that ends. Where one cannot start and no other serves, all end, as a single
    process would: whatever started them sees it, and waits or tells somebody.

    Raises:
        ParameterError: The port cannot be had, or no process can start; one line.
    """
    listening = bind(settings)
    with tempfile.TemporaryDirectory(prefix="dag-acfl-metrics-", ignore_cleanup_errors=True) as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        workers = [_Worker(f"worker-{number}", serve, settings, listening) for number in range(settings.workers)]
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
            is_alive = each.process.is_alive()  # asked first: what it said before it ended has come by then
            each.listen()
            if each.serves and not is_up:
                is_up = True
                print_url(url)
            if is_alive:
                each.kill_if_silent()
            elif not each.serves and not any(other.serves and other.process.is_alive() for other in workers):
                raise ParameterError(each.why_it_ended)
            else:
                each.replace()
        time.sleep(_LOOK_S)


class _Worker:
    """A place among the processes, and the one that is in it.

    Args:
        name: Of the place; metrics are kept under it, whoever is there.
        serve: What a process does.
        settings: The server's.
        listening: The socket that all of them have.
    """

    def __init__(self, name: str, serve: Serve, settings: Settings, listening: socket.socket) -> None:
        self._name, self._given = name, (serve, settings, listening)
        self._rest_s = _FIRST_REST_S
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._heard, telling = context.Pipe(duplex=False)
        self.process: SpawnProcess = context.Process(target=_work, args=(self._name, *self._given, telling))
        self.process.start()
        telling.close()
        self.serves, self._failure, self._silent_looks = False, "", 0
        self._began_s, self._next_s = time.monotonic(), 0.0

    def listen(self) -> None:
        """Take in what the process has said since."""
        self._silent_looks += 1
        with suppress(EOFError, OSError):  # it has ended
            while self._heard.poll():
                said = self._heard.recv()
                self.serves, self._failure, self._silent_looks = said is None, said or "", 0

    def kill_if_silent(self) -> None:
        """End a process that serves and is stuck; one that starts may take as long as it needs."""
        if self.serves and self._silent_looks > _SILENT_LOOKS:
            about = {"worker": self._name, "pid": self.process.pid, "seconds": _SILENT_LOOKS * _LOOK_S}
            logger.error("a process of the server is stuck and is killed", extra=about)
            self.process.kill()
            self._silent_looks = 0

    @property
    def why_it_ended(self) -> str:
        """In one line, of a process that has ended."""
        code = self.process.exitcode or 0
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}; its log lines say why"
        return self._failure or f"a process of the server {how}"

    def replace(self) -> None:
        """Start another process for one that has ended: soon, or later and later where one after the other ends."""
        now_s = time.monotonic()
        if not self._next_s:
            lasted = self.serves and now_s > self._began_s + _LONG_S
            rest_s = _FIRST_REST_S if lasted else self._rest_s
            self._next_s, self._rest_s = now_s + rest_s, min(2 * rest_s, _LONGEST_REST_S)
            about = {"worker": self._name, "pid": self.process.pid, "reason": self.why_it_ended, "in_s": rest_s}
            logger.error("a process of the server has ended; another one starts", extra=about)
            forget_gauges(self._name)
        if now_s >= self._next_s:
            self._start()

    def tell(self, number: int) -> None:
        """Pass a signal on."""
        if self.process.is_alive() and self.process.pid is not None:
            os.kill(self.process.pid, number)


def _work(name: str, serve: Serve, settings: Settings, listening: socket.socket, telling: Connection) -> None:
    """One process; it ends with its parent, however that ends."""
    os.setpgid(0, 0)  # Ctrl-C is the parent's to pass on
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    share_metrics(name)

    def tell(failure: str | None = None) -> None:
        with suppress(OSError):  # the parent has ended, and so will this
            telling.send(failure)

    try:
        serve(settings, listening=listening, on_alive=tell)
    except DagAcflError as error:
        tell(str(error))
        sys.exit(1)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "this is a child"
    parent.join()
    shutil.rmtree(os.environ["PROMETHEUS_MULTIPROC_DIR"], ignore_errors=True)  # if that was killed, it is still there
    os.kill(os.getpid(), signal.SIGTERM)
