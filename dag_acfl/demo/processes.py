"""The demo's processes: the ledger servers, one process for each client, one for the baselines.

Clients are forked from a fork server that has imported torch once: one operating-system process each, without
sixteen times its start-up. Every process ends when the one that started it ends, however that ends: a client
watches a pipe whose other side its parent holds, the server is told by the kernel (Linux) and by ``stop``.
"""

import ctypes
import multiprocessing
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final, Self

from dag_acfl.demo.events import Event
from fl_core.errors import DagAcflError

PRELOADED: Final = "dag_acfl.demo.preload"
START_TIMEOUT_S: Final = 30.0
_STOP_TIMEOUT_S: Final = 12.0
_PR_SET_PDEATHSIG: Final = 1


class DemoError(DagAcflError):
    """The demo cannot go on; the message names the process and where its output is."""

    code = "demo"


@dataclass(frozen=True, slots=True)
class Worker:
    """A started process: ``inbox`` gives its events, ``orders`` takes orders and keeps it alive."""

    name: str
    process: BaseProcess
    inbox: Connection
    orders: Connection


class Workers:
    """Processes that run one function each and talk by events; leaving the ``with`` block ends them all."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([PRELOADED])
        self._workers: list[Worker] = []
        _start_fork_server()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, name: str, function: Callable[..., None], *arguments: Any) -> Worker:
        """Run ``function(events, orders, *arguments)`` in a process of its own."""
        inbox, events = self._context.Pipe(duplex=False)
        orders_in, orders = self._context.Pipe(duplex=False)
        process = self._context.Process(target=function, args=(events, orders_in, *arguments), name=name, daemon=True)
        process.start()
        events.close()
        orders_in.close()
        worker = Worker(name, process, inbox, orders)
        self._workers.append(worker)
        return worker

    def events(self, *, idle: Callable[[], None] = lambda: None) -> Iterator[Event]:
        """Events of all processes as they come, until every process has ended.

        Args:
            idle: Called at least ten times a second while nothing comes; may raise.

        Raises:
            DemoError: A process died without saying why.
        """
        open_: dict[Connection, Worker] = {worker.inbox: worker for worker in self._workers}
        while open_:
            ready = wait(list(open_), timeout=0.1)
            if not ready:
                idle()
            for inbox in ready:
                assert isinstance(inbox, Connection)
                try:
                    yield inbox.recv()
                except EOFError:
                    worker = open_.pop(inbox)
                    worker.process.join(_STOP_TIMEOUT_S)
                    if worker.process.exitcode != 0:
                        raise DemoError(f"{worker.name} died (exit code {worker.process.exitcode})") from None

    def tell_all(self, order: str) -> None:
        """Send an order to every process that still lives."""
        for worker in self._workers:
            try:
                worker.orders.send(order)
            except OSError:
                continue  # it has ended; its pipe says so to whoever reads events

    def stop(self) -> None:
        """End all processes: politely, then not."""
        for worker in self._workers:
            worker.orders.close()
            if worker.process.is_alive():
                worker.process.terminate()
        until = time.monotonic() + _STOP_TIMEOUT_S
        for worker in self._workers:
            worker.process.join(max(0.1, until - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.inbox.close()
        self._workers.clear()


def _start_fork_server() -> None:
    """Start it deaf to Ctrl-C, which the parent alone acts on: it loads torch for seconds before it ignores the signal
    itself, and its children are born with what it has.
    """
    resource_tracker.ensure_running()  # it would let signals through again if the fork server had to start it
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def end_with_parent(orders: Connection) -> "queue.SimpleQueue[str]":
    """In a worker: receive orders in the background, and end at once when the parent has gone.

    A worker is the fork server's child, so that its death is no signal; but only the parent holds the other
    end of ``orders``. Ctrl-C in a terminal reaches every process of the group: the parent alone acts on it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    received: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen() -> None:
        while True:
            try:
                received.put(orders.recv())
            except (EOFError, OSError):
                os._exit(1)

    threading.Thread(target=listen, daemon=True, name="orders").start()
    return received


class ServerProcess:
    """``dag-acfl serve`` in a process of its own, its log in a file.

    Args:
        folder: Data folder of the ledger.
        name: For people.
        log: File for its output; a server that is started again goes on writing there.
        port: Port.
        database_url: Its database.
        peers: Entries of all servers of the ledger, its own included.
    """

    def __init__(
        self, folder: Path, *, name: str, log: Path, port: int, database_url: str, peers: Sequence[str] = ()
    ) -> None:
        self._name, self._log = name, log
        command = [sys.executable, "-m", "dag_acfl", "serve", "--data-dir", str(folder), "--port", str(port)]
        # Its database and log level are the demo's, whatever the person's environment says about servers.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DAG_ACFL_")}
        command += ["--log-format", "json", "--database-url", database_url]
        for entry in peers:
            command += ["--peer", entry]
        with log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 (our own command)
                command,
                stdout=subprocess.PIPE,
                stderr=output,
                stdin=subprocess.DEVNULL,
                env=environment,
                preexec_fn=_follow_parent,  # noqa: PLW1509 (two system calls, no lock)
            )

    def wait_until_ready(self) -> None:
        """Return once it answers.

        Raises:
            DemoError: It ended, or did not say that it serves within half a minute.
        """
        said: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        assert self._process.stdout is not None, "made with a pipe"
        output = self._process.stdout
        threading.Thread(target=lambda: said.put(output.readline()), daemon=True).start()
        try:
            line = said.get(timeout=START_TIMEOUT_S).decode()
        except queue.Empty:
            raise DemoError(f"{self._name} did not start within {START_TIMEOUT_S:.0f} s; see {self._log}") from None
        if not line.startswith("serving on "):
            self._process.wait(_STOP_TIMEOUT_S)
            raise DemoError(f"{self._name} ended while starting: {self._last_words()}")

    def check(self) -> None:
        """Raises DemoError: The server has died."""
        if self._process.poll() is not None:
            raise DemoError(f"{self._name} died (exit code {self._process.returncode}): {self._last_words()}")

    def kill(self) -> None:
        """End at once, without a word."""
        self._process.kill()
        self._process.wait()

    def terminate(self) -> None:
        """Ask it to drain and end; ``stop`` waits for that."""
        if self._process.poll() is None:
            self._process.terminate()

    def stop(self) -> None:
        """Drain and end."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _last_words(self) -> str:
        lines: Sequence[str] = self._log.read_text(errors="replace").strip().splitlines()
        return f"{lines[-1][:300] if lines else 'no output'} (see {self._log})"


def _follow_parent() -> None:
    """In the child, before exec: leave the terminal's process group, and ask the kernel for SIGTERM when the
    parent dies.

    A group, not a session: Linux shares the processor among sessions first, and then a client that steps back
    (``os.nice``) would not step back behind the servers.
    """
    os.setpgid(0, 0)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
