"""Kill a real server again and again while clients write, and compare what it acknowledged with what it kept.

A writer notes a transaction as *attempted* before it sends it and as *acknowledged* when it has read 200 or
201. After a restart: acknowledged and missing is lost (never allowed), present and never attempted is
unexpected (never allowed), present and not acknowledged is recovered (allowed: the answer was lost, not the
transaction). The history of every run goes to a JSONL file with its seed, so that it can be checked again.
"""

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fl_core.dag.signature import Role, sign
from fl_core.dag.transaction import Header, Kind, Transaction, transaction_id
from fl_core.types import Digest, TxId, digest_of
from fl_core.wire import v1
from tests.builders import CREATED_AT_MS, author_of, key_from_seed, model

START_S = 30.0


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def server_process(data_dir: Path, port: int, *, database_url: str | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """``dag-acfl serve`` as a process of its own, ready; killed at the end if it still runs."""
    environment = {**os.environ, "DAG_ACFL_DATA_DIR": str(data_dir), "DAG_ACFL_LOG_LEVEL": "warning"}
    if database_url is not None:
        environment["DAG_ACFL_DATABASE_URL"] = database_url
    command = [sys.executable, "-m", "dag_acfl", "serve", "--port", str(port)]
    with (data_dir / "server.log").open("ab") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        wait_ready(process, port, data_dir / "server.log")
        yield process
    finally:
        process.kill()
        process.wait()


def wait_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Return once ``/readyz`` answers 200.

    Raises:
        AssertionError: The server ended, or was not ready in time.
    """
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        assert process.poll() is None, f"the server ended: {log.read_text()[-2000:]}"
        try:
            if get_json(port, "/readyz")[0] == 200:
                return
        except OSError:
            time.sleep(0.02)
    raise AssertionError(f"the server was not ready within {START_S} s: {log.read_text()[-2000:]}")


def get_json(port: int, path: str) -> tuple[int, Any]:
    """Status and JSON body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def get_bytes(port: int, path: str) -> bytes:
    """The body of a 200."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        assert response.status == 200, path
        return response.read()
    finally:
        connection.close()


def listed(port: int) -> dict[TxId, dict[str, Any]]:
    """Every transaction that the server shows, by following the pages."""
    found: dict[TxId, dict[str, Any]] = {}
    path = f"{v1.TRANSACTIONS}?limit=1000"
    while path:
        status, page = get_json(port, path)
        assert status == 200, page
        found |= {TxId(item["id"]): item for item in page["items"]}
        path = f"{v1.TRANSACTIONS}?limit=1000&after={page['next']}" if page["next"] else ""
    return found


@dataclass
class History:
    """What writers attempted and what was acknowledged; safe to share between threads."""

    attempted: set[TxId] = field(default_factory=set)
    acknowledged: set[TxId] = field(default_factory=set)
    events: list[dict[str, Any]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, event: str, **fields: Any) -> None:
        """Keep an event, and the transaction's new state."""
        with self._lock:
            self.events.append({"event": event, "at_s": time.monotonic(), **fields})
            if event == "attempt":
                self.attempted.add(fields["transaction"])
            elif event == "acknowledged":
                self.acknowledged.add(fields["transaction"])

    def write(self, path: Path) -> None:
        """All events as JSONL."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(event) + "\n" for event in self.events))


class Writer(threading.Thread):
    """One signed author that publishes as fast as it can, until told to stop or the server is gone."""

    def __init__(self, seed: int, port: int, ledger: TxId, history: History, sequence: int) -> None:
        super().__init__(daemon=True)
        self.key, self.port, self.ledger, self.history = key_from_seed(seed), port, ledger, history
        self.sequence = sequence
        self.parent: TxId = ledger
        self.stopping = threading.Event()

    def run(self) -> None:
        """Publish a chain of transactions."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            while not self.stopping.is_set():
                self._publish(connection)
        except (OSError, http.client.HTTPException):
            self.history.note("connection lost", sequence=self.sequence)
        finally:
            connection.close()

    def _publish(self, connection: http.client.HTTPConnection) -> None:
        data = model(1.0, self.sequence % 7, self.sequence % 5)
        header = Header(
            ledger=self.ledger,
            kind=Kind.SITE,
            author=author_of(self.key),
            sequence=self.sequence,
            created_at_ms=CREATED_AT_MS,
            num_examples=1,
            model_digest=digest_of(data),
            model_size=len(data),
            attachment_digest=Digest("0" * 64),
            parents=(self.parent,),
        )
        identity = transaction_id(header.encode())
        self.history.note("attempt", transaction=identity)
        fields = {
            "parents": list(header.parents),
            "num_examples": 1,
            "author": header.author,
            "sequence": header.sequence,
            "created_at_ms": header.created_at_ms,
            "signature": sign(self.key, identity, role=Role.AUTHOR).hex(),
            "id": identity,
        }
        body = (
            b'--x\r\nContent-Disposition: form-data; name="transaction"\r\n\r\n'
            + json.dumps(fields).encode()
            + b'\r\n--x\r\nContent-Disposition: form-data; name="model"\r\n\r\n'
            + data
            + b"\r\n--x--\r\n"
        )
        connection.request(
            "POST", v1.TRANSACTIONS, body=body, headers={"Content-Type": "multipart/form-data; boundary=x"}
        )
        response = connection.getresponse()
        answer = response.read()
        if response.status not in (200, 201):
            raise http.client.HTTPException(f"{response.status}: {answer[:200]!r}")
        self.history.note("acknowledged", transaction=identity)
        self.sequence += 1
        self.parent = identity


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run of crash points came to."""

    points: int
    attempted: int
    acknowledged: int
    recovered: int
    lost: tuple[TxId, ...]
    unexpected: tuple[TxId, ...]
    partial: tuple[str, ...]


def crash_points(
    data_dir: Path, ledger: TxId, *, points: int, writers: int, seed: int, database_url: str | None = None
) -> tuple[Outcome, History]:
    """Kill the server at ``points`` random moments, 20 to 400 ms into the writing, and check after each restart."""
    rng = random.Random(seed)
    history = History()
    history.note("run", seed=seed, points=points, writers=writers, ledger=ledger)
    port = free_port()
    lost: set[TxId] = set()
    unexpected: set[TxId] = set()
    partial: list[str] = []
    for point in range(points + 1):
        with server_process(data_dir, port, database_url=database_url) as server:
            shown = listed(port)
            lost |= history.acknowledged - shown.keys()
            unexpected |= shown.keys() - history.attempted - {ledger}
            partial += _partial(port, shown)
            if point == points:
                break
            # Each point has authors of its own: an unanswered publication must not block the next by its sequence.
            threads = [Writer(10_000 + point * writers + i, port, ledger, history, sequence=0) for i in range(writers)]
            for thread in threads:
                thread.start()
            time.sleep(rng.uniform(0.02, 0.4))
            history.note("kill", point=point)
            server.send_signal(signal.SIGKILL)
            server.wait()
            for thread in threads:
                thread.stopping.set()
                thread.join(20)
    recovered = len((shown.keys() - {ledger}) - history.acknowledged)
    outcome = Outcome(
        points,
        len(history.attempted),
        len(history.acknowledged),
        recovered,
        tuple(sorted(lost)),
        tuple(sorted(unexpected)),
        tuple(partial),
    )
    return outcome, history


def _partial(port: int, shown: dict[TxId, dict[str, Any]]) -> list[str]:
    """Faults of what is shown: a parent that is not there, bytes that do not hash, a signature that fails."""
    faults: list[str] = []
    digests: dict[str, str] = {}
    for identity, item in shown.items():
        header = bytes.fromhex(item["header"])
        if transaction_id(header) != identity:
            faults.append(f"{identity}: the header does not hash to the id")
        faults += [f"{identity}: parent {parent} is missing" for parent in item["parents"] if parent not in shown]
        signature = item["author_signature"]
        Transaction(
            header,
            bytes.fromhex(signature) if signature else None,
            item["issuer"],
            bytes.fromhex(item["issuer_signature"]),
        ).verify_signatures()
        digests[item["model"]["digest"]] = item["model"]["href"]
    faults += [
        f"model {digest} is damaged" for digest, href in digests.items() if digest_of(get_bytes(port, href)) != digest
    ]
    return faults
