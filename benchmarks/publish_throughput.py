"""Durable publications of 13 MB a second: models in files against models in the database's rows.

The server is the product's own command, once with ``blobs.store`` as ``directory`` and once as ``database`` (the
default). Client processes publish models of distinct bytes as fast as they are acknowledged, each over one kept
connection; every acknowledgement is durable. The two servers take turns, so that a disturbance meets both.

    python benchmarks/publish_throughput.py
"""

import itertools
import json
import multiprocessing
import secrets
import tempfile
import time
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path

import harness
import numpy as np
from device_client import connected, multipart
from our_server import running_server

from fl_core.wire import v1

CLIENTS = 2
TURNS = 5
EACH = 20
TARGET_PER_S = 50.0
TARGET_RATIO = 2.0


def client(port: int, number: int, orders: Connection) -> None:
    """Publish as many as ordered, and say how long it took; ends at 0."""
    connection = connected(port)
    connection.request("GET", v1.GENESIS)
    genesis = json.loads(connection.getresponse().read())
    connection.request("GET", genesis["model"]["href"])
    model = bytearray(connection.getresponse().read())
    numbers = itertools.count(number * 1_000_000 + 1)
    about = {"parents": [genesis["ledger"]], "num_examples": 1, "secret": secrets.token_hex(32)}
    orders.send("ready")
    while count := orders.recv():
        start = time.perf_counter()
        for _ in range(count):
            model[-4:] = np.float32(next(numbers) * 1e-6).tobytes()
            body, headers = multipart(about, model)
            connection.request("POST", v1.TRANSACTIONS, body, headers)
            response = connection.getresponse()
            text = response.read()
            if response.status not in (200, 201):
                raise RuntimeError(f"publish: {response.status} {text[:300]!r}")
        orders.send(time.perf_counter() - start)
    connection.close()


class Contender:
    """One server for models of ``values`` float32 values, and its clients."""

    def __init__(self, values: int, clients: int, *, store: str, folder: Path, stack: ExitStack) -> None:
        self.running = stack.enter_context(
            running_server(values, folder=folder, environment={"DAG_ACFL_BLOBS__STORE": store})
        )
        self.orders: list[Connection] = []
        for number in range(clients):
            ours, theirs = multiprocessing.Pipe()
            process = multiprocessing.Process(target=client, args=(self.running.port, number, theirs), daemon=True)
            process.start()
            stack.callback(process.join, 30)
            stack.callback(ours.send, 0)
            self.orders.append(ours)
        for each in self.orders:
            each.recv()

    def turn(self, count: int) -> float:
        """Seconds of publishing ``count`` models by every client at once."""
        start = time.perf_counter()
        for each in self.orders:
            each.send(count)
        for each in self.orders:
            each.recv()
        return time.perf_counter() - start


def main() -> None:
    parser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the databases go")
    options = parser.parse_args()
    result = harness.Result("publish_throughput", "Durable publications of 13 MB a second", options.date)
    with ExitStack() as stack:
        contenders = {
            store: Contender(harness.LARGE_MODEL_VALUES, CLIENTS, store=store, folder=options.folder, stack=stack)
            for store in ("directory", "database")
        }
        for contender in contenders.values():
            contender.turn(EACH)
        times: dict[str, list[float]] = {store: [] for store in contenders}
        for _ in range(TURNS):
            for store, contender in contenders.items():
                times[store].append(contender.turn(EACH))
    for store, taken in times.items():
        result.timings[f"{CLIENTS * EACH} publications, {store}"] = harness.Timing(tuple(taken))
    rates = {store: CLIENTS * EACH * TURNS / sum(taken) for store, taken in times.items()}
    result.facts["publications_per_s"] = {store: round(rate, 1) for store, rate in rates.items()}
    basis = f"{CLIENTS} clients, mean over {TURNS} turns, clients and server on the same cores"
    result.ratios += [
        harness.Ratio("13 MB a second, directory", rates["directory"], TARGET_PER_S, "at least", basis),
        harness.Ratio("directory / database", rates["directory"] / rates["database"], TARGET_RATIO, "at least", basis),
    ]
    print(result.write())


if __name__ == "__main__":
    main()
