"""A real server as a process of its own, for a fault to meet: started, killed, started again, asked and checked."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fl_core.dag.transaction import Transaction, transaction_id
from fl_core.types import TxId, digest_of
from fl_core.wire import v1
from tests.builders import receipt_of
from tests.faults.harness.history import History
from tests.faults.harness.writers import MULTIPART

START_S = 60.0
ROOT = Path(__file__).resolve().parents[3]


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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
        environment: More settings, by their variables.
        prefix: What runs the command: ``("ip", "netns", "exec", "n1")``, ``("strace", …)``.
        bug: One of ``tests.faults.harness.planted`` to plant in the server; None for the product as it is.
        log_file: Where its log goes; None: beside the folder.
    """

    folder: Path
    name: str = "server"
    host: str = "127.0.0.1"
    port: int = field(default_factory=free_port)
    database_url: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    prefix: Sequence[str] = ()
    bug: str | None = None
    log_file: Path | None = None
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def log(self) -> Path:
        return self.log_file or self.folder.parent / f"{self.folder.name}.log"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self, *, wait: bool = True) -> None:
        """Serve, and return once ready."""
        settings = {"DAG_ACFL_DATA_DIR": str(self.folder), "DAG_ACFL_LOG_LEVEL": "warning", "PYTHONPATH": str(ROOT)}
        settings |= self.environment
        if self.database_url is not None:
            settings["DAG_ACFL_DATABASE_URL"] = self.database_url
        program = ["dag_acfl"] if self.bug is None else ["tests.faults.harness.planted", self.bug]
        serve = ["serve", "--host", self.host, "--port", str(self.port)]
        command = [*self.prefix, sys.executable, "-m", *program, *serve]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, env={**os.environ, **settings}, stdout=log, stderr=log, start_new_session=True
            )
        if wait:
            self.wait_ready()

    def wait_ready(self, within_s: float = START_S) -> None:
        """Return once ``/readyz`` answers 200.

        Raises:
            AssertionError: The server ended, or was not ready in time.
        """
        until = time.monotonic() + within_s
        while time.monotonic() < until:
            assert self.process is not None
            assert self.process.poll() is None, f"{self.name} ended: {self.tail()}"
            with suppress(OSError, http.client.HTTPException):
                if self.ask("/readyz")[0] == http.client.OK:
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
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process = None

    def stop(self, within_s: float = 30.0) -> int:
        """SIGTERM, and wait; returns the exit status."""
        assert self.process is not None
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        status = self.process.wait(within_s)
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
            header = bytes.fromhex(item["header"])
            if transaction_id(header) != identity:
                faults.append(f"{identity}: the header does not hash to the id")
            faults += [f"{identity}: parent {parent} is missing" for parent in item["parents"] if parent not in shown]
            signature = item["author_signature"]
            Transaction(
                header,
                bytes.fromhex(signature) if signature else None,
                receipt_of(item["receipt"]),
            ).verify_signatures()
            places[item["model"]["digest"]] = item["model"]["href"]
        for digest, href in places.items() if models else ():
            status, body = self.ask(href)
            if status != http.client.OK or digest_of(body) != digest:
                faults.append(f"model {digest} is not there whole ({status})")
        return faults
