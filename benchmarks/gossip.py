"""Three servers of one ledger: how soon a publication is everywhere, what it costs, and how fast an empty server fills.

The servers are the product's own command with its defaults, each with its own SQLite database, on loopback.

* **Visible elsewhere**: from the answer to a publication (100 KB) until both other servers answer for its id.
* **Bytes**: what a receiving server exchanged for a transaction, heads of HTTP and signatures included, against model
  and header; counted by the servers' own metrics over a run of publications that ends when all are equal.
* **Receiving**: CPU of a server's process per update of 0.1 MB that it received from a peer, from the first publication
  until all are equal: one every 50 ms, all at once, and in batches, by servers that were stopped while it was published
  (there the CPU of the one that serves them stands beside it). Updates are a chain of one author's, or those of ten
  devices' rounds: with evidence, upon the averages of others'. What it is held against is one SHA-256 of the model, two
  Ed25519 verifications, and the inserts, in batches, of the very updates in a bare process.
* **Catch-up**: an empty server beside one that holds N transactions of 100 KB, from its start until it holds them all;
  the limit is a plain download of the same models over one kept connection, plus their inserts into an empty journal,
  measured in the same run.

    python benchmarks/gossip.py
    python benchmarks/gossip.py --only receiving
"""

import hashlib
import http.client
import itertools
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness
import numpy as np
from device_client import Device, connected, multipart
from our_server import COMMAND, STOP_TIMEOUT_S, TENTH_MODEL_VALUES, cpu_s, listening_port, write_model

from fl_core.models import Buffer
from fl_core.wire import v1
from ledger_server.store import open_store
from ledger_server.store.appending import Entry
from ledger_server.store.stored import StoredTransaction

VALUES = {"0.1 MB": TENTH_MODEL_VALUES, "0.4 MB": harness.SMALL_MODEL_VALUES, "13 MB": harness.LARGE_MODEL_VALUES}
VISIBLE_REPEATS = 100
VISIBLE_TARGET_MS = 100.0
BYTES_REPEATS = {"0.1 MB": 100, "0.4 MB": 60, "13 MB": 10}
BYTES_TARGET = 1.02
RECEIVING_SERVERS = (3, 5)
RECEIVING_REPEATS = 200
RECEIVING_TARGETS_MS = {"one every 50 ms": 4.0, "at once": 4.0, "in batches": 3.0}
TOGETHER = 40
"""Updates of 0.1 MB that a server admits together."""
DEVICES = 10
PARTS = ("visible", "traffic", "receiving", "catch-up")
CATCH_UP_TARGET = 0.5


@dataclass(slots=True)
class Server:
    """One process, its folder and its port."""

    folder: Path
    port: int
    process: subprocess.Popen[str] | None = None

    def start(self, peers: str, environment: dict[str, str]) -> None:
        command = [*COMMAND, "serve", "--data-dir", str(self.folder), "--port", str(self.port), "--log-level", "error"]
        given = {**environment, "DAG_ACFL_PEERS": peers}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=self.folder, env=given)
        listening_port(self.process)

    def stop(self) -> None:
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.process = None

    def count(self) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{v1.TIPS}", timeout=30) as answer:
            return int(json.load(answer)["transactions"])

    def cpu_s(self) -> float:
        """CPU seconds of the process, its threads included."""
        assert self.process is not None, "it runs"
        return cpu_s(self.process.pid)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None, "it runs"
        self.process.send_signal(number)

    def gossip_bytes(self) -> int:
        """Bytes that this server exchanged with the peers that it asked."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return sum(
            int(float(line.rsplit(" ", 1)[1])) for line in lines if line.startswith("dag_acfl_gossip_bytes_total")
        )


def free_ports(count: int) -> list[int]:
    """Ports that nobody listened on a moment ago."""
    with ExitStack() as stack:
        return [stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(count)]


@contextmanager
def servers(values: int, *, count: int, folder: Path) -> Iterator[tuple[list[Server], str, dict[str, str]]]:
    """``count`` running servers of one new ledger, their list of peers, and their environment."""
    # One author publishes more than a site would in an hour.
    environment = {**os.environ, "PYTHONPATH": str(harness.ROOT), "DAG_ACFL_QUOTA__AUTHOR_UPDATES": "0"}
    with tempfile.TemporaryDirectory(dir=folder) as held, ExitStack() as stack:
        model = Path(held) / "model.safetensors"
        write_model(values, model)
        first = Path(held) / "server-0"
        init = [*COMMAND, "ledger", "init", "--name", "benchmark", "--model", str(model), "--data-dir", str(first)]
        subprocess.run(init, check=True, capture_output=True, cwd=held, env=environment)
        running = [Server(Path(held) / f"server-{number}", port) for number, port in enumerate(free_ports(count))]
        entries = []
        for server in running:
            peer = [*COMMAND, "keys", "peer", f"http://127.0.0.1:{server.port}", "--data-dir", str(server.folder)]
            entries.append(
                subprocess.run(peer, check=True, capture_output=True, text=True, env=environment).stdout.strip()
            )
        peers = " ".join(entries)
        add = [*COMMAND, "members", "add", *entries, "--data-dir", str(first)]
        subprocess.run(add, check=True, capture_output=True, env=environment)
        for server in running[1:]:
            ignore = shutil.ignore_patterns("server-key.pem")
            shutil.copytree(first, server.folder, ignore=ignore, dirs_exist_ok=True)
        for server in running:
            stack.callback(server.stop)
            server.start(peers, environment)
        yield running, peers, environment


class Publisher:
    """Publishes models of distinct bytes on one server, each on the one before."""

    def __init__(self, port: int) -> None:
        self.connection = connected(port)
        self.connection.request("GET", v1.GENESIS)
        genesis = json.loads(self.connection.getresponse().read())
        self.newest: str = genesis["ledger"]
        self.connection.request("GET", genesis["model"]["href"])
        self.model = bytearray(self.connection.getresponse().read())
        self.numbers = itertools.count(1)

    def publish(self) -> str:
        self.model[-4:] = np.float32(next(self.numbers) * 1e-6).tobytes()
        body, headers = multipart({"parents": [self.newest], "num_examples": 1, "secret": "5e" * 32}, self.model)
        self.connection.request("POST", v1.TRANSACTIONS, body, headers)
        response = self.connection.getresponse()
        text = response.read()
        if response.status != http.client.CREATED:
            raise RuntimeError(f"publish: {response.status} {text[:300]!r}")
        self.newest = json.loads(text)["id"]
        return self.newest


class Rounds:
    """Rounds of devices in two clusters, one after another."""

    def __init__(self, port: int) -> None:
        self.turns = itertools.cycle([Device(port, number, number % 2) for number in range(DEVICES)])

    def publish(self) -> None:
        next(self.turns).round()


def wait_until_visible(connections: Sequence[http.client.HTTPConnection], identity: str) -> None:
    path = v1.path(v1.TRANSACTION, transaction=identity)
    for connection in connections:
        while True:
            connection.request("GET", path)
            response = connection.getresponse()
            response.read()
            if response.status == http.client.OK:
                break
            time.sleep(0.001)


def wait_until_equal(running: Sequence[Server], *, within_s: float = 600.0, every_s: float = 0.02) -> None:
    end_s = time.monotonic() + within_s
    while len({server.count() for server in running}) > 1:
        if time.monotonic() > end_s:
            raise RuntimeError(f"servers hold {[server.count() for server in running]}")
        time.sleep(every_s)


def visible(result: harness.Result, folder: Path) -> None:
    with servers(VALUES["0.1 MB"], count=3, folder=folder) as (running, _, _), ExitStack() as stack:
        publisher = Publisher(running[0].port)
        others = [stack.enter_context(closing(connected(server.port))) for server in running[1:]]
        taken = []
        for repeat in range(-10, VISIBLE_REPEATS):
            identity = publisher.publish()
            start = time.perf_counter()
            wait_until_visible(others, identity)
            if repeat >= 0:
                taken.append(time.perf_counter() - start)
            time.sleep(0.02)
        result.timings["visible on both others, 0.1 MB"] = harness.Timing(tuple(taken))
        p95 = statistics.quantiles(taken, n=20)[-1] * 1e3
        basis = "p95, from the acknowledgement on, three servers on loopback"
        result.ratios.append(harness.Ratio("visible elsewhere, ms", p95, VISIBLE_TARGET_MS, "at most", basis))


def traffic(result: harness.Result, folder: Path) -> None:
    for name, values in VALUES.items():
        with servers(values, count=3, folder=folder) as (running, _, _):
            publisher = Publisher(running[0].port)
            publisher.publish()
            wait_until_equal(running)
            before = sum(server.gossip_bytes() for server in running)
            for _ in range(BYTES_REPEATS[name]):
                publisher.publish()
            wait_until_equal(running)
            moved = sum(server.gossip_bytes() for server in running) - before
            with urllib.request.urlopen(f"http://127.0.0.1:{running[0].port}{v1.COSTS}", timeout=30) as answer:
                costs: dict[str, Any] = json.load(answer)
            per_transaction = costs["ledger_payload_bytes"] / costs["transactions"]
            value = moved / (BYTES_REPEATS[name] * (len(running) - 1) * per_transaction)
            basis = "bytes between servers per receiving server / (model + header), heads and signatures included"
            result.ratios.append(harness.Ratio(f"{name}: bytes per transaction", value, BYTES_TARGET, "at most", basis))


def receiving(result: harness.Result, folder: Path) -> None:
    """CPU of the servers that are published to by nobody, per update that they receive; and what it is held against."""
    for count in RECEIVING_SERVERS:
        with servers(TENTH_MODEL_VALUES, count=count, folder=folder) as (running, _, _):
            publishers: dict[str, Publisher | Rounds] = {
                "a chain": Publisher(running[0].port),
                "rounds": Rounds(running[0].port),
            }
            spent = {
                f"{kind}, {pace}": _receive(running, publisher, pace)
                for kind, publisher in publishers.items()
                for pace in RECEIVING_TARGETS_MS
            }
            limits = _physical_limit(running[1], folder)
        for name, (received_ms, served_ms) in spent.items():
            facts = {"cpu_ms": received_ms, "limit_ms": limits, "sender_cpu_ms": served_ms}
            result.facts[f"receiving, {count} servers, {name}"] = facts
            limit_ms = sum(limits.values())
            basis = f"CPU per update of 0.1 MB received, the mean of {count - 1} servers; limit {limit_ms:.2f}"
            target = RECEIVING_TARGETS_MS[name.partition(", ")[2]]
            ratio = harness.Ratio(
                f"receiving, {count} servers, {name}, ms", statistics.mean(received_ms), target, "at most", basis
            )
            result.ratios.append(ratio)


def _receive(running: Sequence[Server], publisher: Publisher | Rounds, pace: str) -> tuple[list[float], float]:
    """CPU ms of each server per update that it received, and of their peer per update and server once all is published.

    In batches: they are stopped while it is published, as by a link that was cut.
    """
    for _ in range(10):
        publisher.publish()
    wait_until_equal(running)
    before = [server.cpu_s() for server in running]
    for server in running[1:]:
        server.signal(signal.SIGSTOP if pace == "in batches" else signal.SIGCONT)
    try:
        for _ in range(RECEIVING_REPEATS):
            publisher.publish()
            time.sleep(0.05 if pace == "one every 50 ms" else 0.0)
    finally:
        for server in running[1:]:
            server.signal(signal.SIGCONT)
    published_s = running[0].cpu_s()
    wait_until_equal(running, every_s=0.25)
    sender_s, *receivers_s = (server.cpu_s() - earlier for server, earlier in zip(running, before, strict=True))
    served_s = (sender_s - (published_s - before[0])) / len(receivers_s)
    return [round(each / RECEIVING_REPEATS * 1e3, 2) for each in receivers_s], round(
        served_s / RECEIVING_REPEATS * 1e3, 2
    )


def _physical_limit(server: Server, folder: Path) -> dict[str, float]:
    """CPU ms per update of what nobody can leave out, for the updates that a server holds."""
    entries, document, first, model = _held_by(server)
    spent = dict.fromkeys(("sha256", "verify", "insert"), 0.0)
    with (
        tempfile.TemporaryDirectory(dir=folder) as held,
        open_store(f"sqlite:///{held}/ledger.sqlite3", data_dir=Path(held)) as target,
    ):
        target.create(first, document=document, model=model)
        for batch in (entries[at : at + TOGETHER] for at in range(0, len(entries), TOGETHER)):
            begin = time.process_time()
            for entry in batch:
                assert entry.model is not None, "nothing is pruned"
                hashlib.sha256(entry.model).hexdigest()
            hashed = time.process_time()
            for entry in batch:
                transaction = entry.stored.transaction
                transaction.receipt.verify(transaction.id)
                transaction.receipt.verify(transaction.id)  # as long as an author's
            verified = time.process_time()
            target.append_all(batch)
            end = time.process_time()
            for what, seconds in (
                ("sha256", hashed - begin),
                ("verify", verified - hashed),
                ("insert", end - verified),
            ):
                spent[what] += seconds
    return {what: round(seconds / len(entries) * 1e3, 3) for what, seconds in spent.items()}


def catch_up(result: harness.Result, folder: Path, count: int) -> None:
    with servers(VALUES["0.1 MB"], count=2, folder=folder) as (running, peers, environment):
        full, empty = running
        empty.stop()
        publisher = Publisher(full.port)
        identities = [publisher.publish() for _ in range(count)]
        start = time.perf_counter()
        empty.start(peers, environment)
        wait_until_equal(running)
        taken_s = time.perf_counter() - start
        with closing(connected(full.port)) as connection:
            start = time.perf_counter()
            models = []
            for identity in identities:
                connection.request("GET", v1.path(v1.TRANSACTION_MODEL, transaction=identity))
                models.append(connection.getresponse().read())
            download_s = time.perf_counter() - start
        insert_s = _insert_all(full, folder)
        limit_s = download_s + insert_s
        result.facts["catch-up"] = {
            "transactions": count,
            "taken_s": round(taken_s, 3),
            "download_s": round(download_s, 3),
            "insert_s": round(insert_s, 3),
            "transactions_per_s": round(count / taken_s, 1),
        }
        basis = f"(download + inserts) / catch-up, {count:,} transactions of 0.1 MB, the server's start included"
        result.ratios.append(harness.Ratio("catch-up", limit_s / taken_s, CATCH_UP_TARGET, "at least", basis))


def _insert_all(server: Server, folder: Path) -> float:
    """Seconds of appending all that a server holds to an empty journal, one by one."""
    entries, document, first, model = _held_by(server)
    with (
        tempfile.TemporaryDirectory(dir=folder) as held,
        open_store(f"sqlite:///{held}/ledger.sqlite3", data_dir=Path(held)) as target,
    ):
        target.create(first, document=document, model=model)
        start = time.perf_counter()
        for entry in entries:
            target.append_all([entry])
        return time.perf_counter() - start


def _held_by(server: Server) -> tuple[list[Entry], bytes, StoredTransaction, Buffer]:
    """What a server's journal holds after genesis, with genesis's document, transaction and model."""
    with open_store(f"sqlite:///{server.folder / 'ledger.sqlite3'}", data_dir=server.folder) as source:
        found = source.genesis()
        assert found is not None, "a ledger has a genesis"
        model = source.model(found[0].header.model_digest)
        assert model is not None, "genesis has a model"
        first, *rest = source.replay()
        entries = []
        for stored in rest:
            header = stored.transaction.header
            entries.append(
                Entry(stored, source.model(header.model_digest), source.attachment(header.attachment_digest))
            )
        return entries, found[1], first, model


def main() -> None:
    parser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the databases go")
    parser.add_argument("--transactions", type=int, default=10_000, help="that the empty server catches up with")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="print these parts and keep no result")
    options = parser.parse_args()
    result = harness.Result("gossip", "Three servers of one ledger", options.date)
    parts: dict[str, Callable[[], None]] = {
        "visible": lambda: visible(result, options.folder),
        "traffic": lambda: traffic(result, options.folder),
        "receiving": lambda: receiving(result, options.folder),
        "catch-up": lambda: catch_up(result, options.folder, options.transactions),
    }
    for name in options.only or parts:
        parts[name]()
    if options.only:  # a part does not stand for the whole
        result.show()
        print(json.dumps(result.facts, indent=2))
        return
    print(result.write())


if __name__ == "__main__":
    main()
