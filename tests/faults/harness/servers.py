"""A real server as a process of its own, for a fault to meet: started, killed, started again, asked and checked."""

import http.client
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dag_acfl.__main__ import main
from fl_core.models import ModelLayout
from fl_core.types import TxId, digest_of
from fl_core.wire import v1
from ledger_server.store.opening import BlobPlace
from tests.builders import LAYOUT, transaction_of
from tests.faults.harness import forked
from tests.faults.harness.history import History
from tests.faults.harness.namespaces import NAMESPACES, enter
from tests.faults.harness.planted import BUGS
from tests.faults.harness.writers import MULTIPART, genesis_of, model_of
from tests.faults.report import ROOT
from tests.live import free_ports
from tests.serving import prepare

START_S = 60.0


@dataclass
class ServerProcess:
    """``dag-acfl serve`` over a data folder; a context manager that ends with the server gone.

    with ServerProcess(folder, database_url=url) as server:
        server.kill()
        server.start()

    Args:
        folder: Data folder; a ledger is in it or in the database.
        name: As histories call it.
        host: Address to listen on, as others reach it.
        port: Port.
        database_url: None: SQLite in the folder.
        blobs: Where models lie; None: the product's choice.
        environment: More settings, by their variables.
        namespace: The network namespace that it runs in; None: the test's.
        bug: One of ``tests.faults.harness.planted`` to plant in the server; None for the product as it is.
        log_file: Where its log goes; None: beside the folder.
        before: Called in the server's process before it serves; a function that can be found by its name.
    """

    folder: Path
    name: str = "server"
    host: str = "127.0.0.1"
    port: int = field(default_factory=lambda: free_ports(1)[0])
    database_url: str | None = None
    blobs: BlobPlace | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    namespace: str | None = None
    bug: str | None = None
    log_file: Path | None = None
    before: Callable[[], None] | None = None
    process: BaseProcess | None = None

    @property
    def log(self) -> Path:
        return self.log_file or self.folder.parent / f"{self.folder.name}.log"

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def found(self, layout: ModelLayout = LAYOUT) -> TxId:
        """Make a ledger where the server will look for it; equal layouts make the same ledger everywhere."""
        self.folder.mkdir(parents=True, exist_ok=True)
        url = self.database_url or f"sqlite:///{self.folder / 'ledger.sqlite3'}"
        first = model_of(layout, 0, 0)
        return prepare(url, self.folder, genesis=genesis_of(layout), first=first, blobs=self.blobs)

    @property
    def pid(self) -> int:
        """Of the process that runs."""
        assert self.process is not None
        assert self.process.pid is not None
        return self.process.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self, *, wait: bool = True) -> None:
        """Serve, and return once ready."""
        arguments = ["serve", "--host", self.host, "--port", str(self.port)]
        self.process = self._forked(arguments, self.bug, log=self.log)
        if wait:
            self.wait_ready()

    def command(self, *arguments: object) -> BaseProcess:
        """Start a command of ``dag-acfl`` beside the server, as it is, over the same folder; its output is in ``output``."""
        return self._forked([str(each) for each in arguments], None, log=self.output)

    @property
    def output(self) -> Path:
        """What commands printed."""
        return self.log.with_suffix(".commands.log")

    def _forked(self, arguments: list[str], bug: str | None, *, log: Path) -> BaseProcess:
        settings = {"DAG_ACFL_DATA_DIR": str(self.folder), "DAG_ACFL_LOG_LEVEL": "warning", "PYTHONPATH": str(ROOT)}
        # They are filled up to the last byte, listen beyond loopback in namespaces, and are stopped at once.
        settings |= {"DAG_ACFL_MIN_FREE_BYTES": "0", "DAG_ACFL_PUBLIC": "true", "DAG_ACFL_DRAIN_DELAY_S": "0"}
        settings |= self.environment
        if self.database_url is not None:
            settings["DAG_ACFL_DATABASE_URL"] = self.database_url
        if self.blobs is not None:
            settings["DAG_ACFL_BLOBS__STORE"] = self.blobs
        return forked.start(_command, arguments, bug, self.namespace, self.before, log=log, environment=settings)

    def wait_ready(self, within_s: float = START_S) -> None:
        """Return once it answers, which it does when its store is open; ``/readyz`` would wait for its peers, too.

        Raises:
            AssertionError: The server ended, or was not ready in time.
        """
        until = time.monotonic() + within_s
        while time.monotonic() < until:
            assert self.process is not None
            assert self.process.exitcode is None, f"{self.name} ended: {self.tail()}"
            with suppress(OSError, http.client.HTTPException):
                if self.ask("/healthz")[0] == http.client.OK:
                    return
            time.sleep(0.02)
        raise AssertionError(f"{self.name} was not ready within {within_s} s: {self.tail()}")

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""

    def kill(self) -> None:
        """``kill -9``, with everything that it started."""
        if self.process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.kill()  # one that has only just begun leads no group yet
        self.process.join()
        self.process = None

    def stop(self, within_s: float = 30.0) -> int:
        """SIGTERM, and wait; returns the exit status."""
        assert self.process is not None
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGTERM)
        self.process.join(within_s)
        status = self.process.exitcode
        assert status is not None, f"{self.name} did not stop: {self.tail()}"
        self.process = None
        return status

    def ask(self, path: str, *, timeout_s: float = 20.0, headers: Mapping[str, str] | None = None) -> tuple[int, bytes]:
        """Status and body of a GET."""
        return self._call("GET", path, None, headers or {}, timeout_s)

    def send(self, publication: bytes, *, timeout_s: float = 20.0) -> tuple[int, bytes]:
        """Status and body of a publication as ``Author`` makes it."""
        return self._call("POST", v1.TRANSACTIONS, publication, MULTIPART, timeout_s)

    def _call(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], timeout_s: float
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)
        try:
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def json(self, path: str) -> Any:
        """The document of a 200."""
        status, body = self.ask(path)
        assert status == http.client.OK, f"{path}: {status} {body[:300]!r}"
        return json.loads(body)

    def metrics(self, name: str) -> Iterator[tuple[dict[str, str], int]]:
        """Labels and value of each figure of this name that ``/metrics`` shows."""
        exposition = self.ask("/metrics")[1].decode()
        for labels, count in re.findall(rf"^dag_acfl_{name}{{(.*)}} (.*)$", exposition, re.MULTILINE):
            yield dict(re.findall(r'(\w+)="([^"]*)"', labels)), round(float(count))

    def listed(self) -> dict[TxId, dict[str, Any]]:
        """Every transaction that the server shows, by following the pages."""
        found: dict[TxId, dict[str, Any]] = {}
        path = f"{v1.TRANSACTIONS}?limit=1000"
        while path:
            page = self.json(path)
            found |= {TxId(item["id"]): item for item in page["items"]}
            path = f"{v1.TRANSACTIONS}?limit=1000&after={page['next']}" if page["next"] else ""
        return found

    def show(self, history: History, *, models: bool = True) -> dict[TxId, dict[str, Any]]:
        """Note what the server shows now, with every fault in it; ``models``: hash every model as well."""
        shown = self.listed()
        history.show(self.name, shown.keys(), faults=self._faults(shown, models=models))
        return shown

    def _faults(self, shown: Mapping[TxId, dict[str, Any]], *, models: bool) -> list[str]:
        faults: list[str] = []
        places: dict[str, str] = {}
        for identity, item in shown.items():
            transaction = transaction_of(item)
            if transaction.id != identity:
                faults.append(f"{identity}: the header does not hash to the id")
            faults += [f"{identity}: parent {parent} is missing" for parent in item["parents"] if parent not in shown]
            transaction.verify_signatures()
            places[item["model"]["digest"]] = item["model"]["href"]
        for digest, href in places.items() if models else ():
            status, body = self.ask(href)
            if status != http.client.OK or digest_of(body) != digest:
                faults.append(f"model {digest} is not there whole ({status})")
        return faults


def _command(arguments: list[str], bug: str | None, namespace: str | None, before: Callable[[], None] | None) -> int:
    """``dag-acfl`` with these arguments, in this process."""
    if before is not None:
        before()
    if namespace is not None:
        enter(NAMESPACES / namespace)
    if bug is not None:
        BUGS[bug]()
    return main(arguments)


def approvals_between_authors(shown: Mapping[TxId, dict[str, Any]]) -> int:
    """How often an update names another author's as parent, genesis apart."""
    authors = {identity: item["author"] for identity, item in shown.items() if item["parents"]}
    return sum(
        authors.get(parent, item["author"]) != item["author"] for item in shown.values() for parent in item["parents"]
    )


@contextmanager
def running(servers: Sequence[ServerProcess]) -> Iterator[None]:
    """Start all at once, and kill them at the end."""
    try:
        for server in servers:
            server.start(wait=False)
        for server in servers:
            server.wait_ready()
        yield
    finally:
        for server in servers:
            server.kill()
