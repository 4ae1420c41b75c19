"""Rounds a second of one server for 10 to 3,000 clients at once, each from an address of its own; CPU beside them.

The server is the product's own command with its defaults: limits, shares and quotas are on. Clients do not train: each
asks for a selection (with its model the first time, by its newest update from then on), fetches the average and
publishes 0.1 MB, over one connection that it keeps, and tries again as the SDK does: what ``fl_client.retry`` would try
elsewhere, after Retry-After or growing pauses. Every number of clients has a ledger that so many authors have published
on, and is held against few clients on that very ledger, measured just before: what is lost is then lost to the crowd
alone. The same few clients meet ``bare_ledger.py``, which hashes and inserts as many bytes and does nothing else.
Clients are one process by asyncio, whose CPU stands apart.

    python benchmarks/load.py
    python benchmarks/load.py --clients 1000 --kinds beast --seconds 10
"""

import asyncio
import json
import random
import secrets
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import harness
import uvloop
from bare_ledger import running_bare_ledger
from device_client import BOUNDARY, HEAD, MODEL, NUM_EXAMPLES, PERTURBED_BYTES, TAIL, perturbation
from our_server import TENTH_MODEL_VALUES, Running, cpu_s, memory_of, running_server

from fl_client import retry
from fl_client.reader import DEFAULT_TIMEOUT_S
from fl_client.transport import CONNECT_S, SILENCE_S
from fl_core.wire import v1

KINDS = {
    "one cluster": (1, "", 5.0),
    "three clusters": (3, "", 8.0),
    "beast": (3, 'selector.name = "beast"\n', 8.0),
}
"""Clusters of the devices, rules of the ledger, and the target in ms of CPU for a round.

Devices that are all alike need no change point; of three clusters, every question has some.
"""
FEW = 30
"""Clients that keep a server busy and never meet a limit."""
JOINING_AT_ONCE = 16
GOODPUT = {1_000: 0.9, 3_000: 0.8}
SUCCESS = (200, 201)


@dataclass(slots=True)
class Answer:
    status: int
    fields: dict[bytes, bytes]
    body: bytearray
    sent: int = 0
    """Bytes of the request."""
    received: int = 0
    """Bytes of the answer, its head included."""

    @property
    def code(self) -> str:
        """Of a problem; of what is none, nothing."""
        with suppress(ValueError):
            return str(json.loads(self.body)["type"]).rpartition("/")[2]
        return ""


class Connection(asyncio.Protocol):
    """One kept connection: a request at a time, and answers of a stated length."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.waiting: asyncio.Future[Answer] | None = None
        self.is_open = False
        self.answer: Answer | None = None
        self.missing = 0
        self.head = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport, self.is_open = transport, True

    def data_received(self, data: bytes) -> None:
        if self.answer is None:
            self.head += data
            end = self.head.find(b"\r\n\r\n")
            if end < 0:
                return
            lines = bytes(self.head[:end]).split(b"\r\n")
            fields = dict(line.lower().split(b": ", 1) for line in lines[1:])
            self.missing = int(fields[b"content-length"])
            self.answer, data = Answer(int(lines[0][9:12]), fields, bytearray()), bytes(self.head[end + 4 :])
            self.answer.received = end + 4
            self.head.clear()
        self.answer.body += data
        if len(self.answer.body) >= self.missing:
            answer, self.answer = self.answer, None
            answer.received += len(answer.body)
            if answer.fields.get(b"connection") == b"close":
                self.close()
            if self.waiting is not None and not self.waiting.done():
                self.waiting.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_exception(ConnectionResetError(str(exc or "closed")))

    def close(self) -> None:
        self.is_open = False
        self.transport.abort()

    async def ask(self, *pieces: bytes) -> Answer:
        self.waiting = asyncio.get_running_loop().create_future()
        self.transport.writelines(pieces)
        async with asyncio.timeout(SILENCE_S):
            answer = await self.waiting
        answer.sent = sum(map(len, pieces))
        return answer


@dataclass(slots=True)
class Tally:
    """What came of some seconds."""

    rounds: int = 0
    took_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Of each call from its first attempt on, waiting included."""
    moved: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    """Of each call that was answered: bytes of the request and of the answer."""
    tried_again: Counter[str] = field(default_factory=Counter)
    given_up: Counter[str] = field(default_factory=Counter)
    """What the SDK would not try again, or not for longer."""


@dataclass(slots=True)
class Crowd:
    """What all clients share."""

    port: int
    model: bytes
    model_path: str
    clusters: int
    tally: Tally = field(default_factory=Tally)
    models: int = 0

    def new_model(self, number: int) -> bytes:
        """Other last values than any model before it."""
        self.models += 1
        return self.model[:-PERTURBED_BYTES] + perturbation(0, self.models, cluster=number % self.clusters)


class GivenUpError(Exception):
    """A call failed for good."""


@dataclass(slots=True)
class Client:
    """A device at an address of its own."""

    crowd: Crowd
    number: int
    newest: str | None = None
    secret: str = field(default_factory=lambda: secrets.token_hex(32))
    connection: Connection | None = None
    is_introduced: bool = True
    """Whether it knows that the server is the ledger's: when there was no answer, the SDK asks anew."""
    calling_since: float | None = None

    @property
    def address(self) -> str:
        return f"127.1.{self.number // 250}.{self.number % 250 + 1}"

    async def round(self) -> None:
        """Select, fetch, change, publish."""
        if self.newest is None:
            pieces, kind = [self.crowd.new_model(self.number)], MODEL
        else:
            pieces, kind = [json.dumps({"transaction": self.newest}).encode()], "application/json"
        selection = json.loads((await self.call("select", "POST", v1.SELECTIONS, pieces, kind)).body)
        if selection["source"] != "own":
            await self.call("fetch", "GET", selection["aggregate"]["href"])
        await self.publish({"selection": selection["id"]})
        self.crowd.tally.rounds += 1

    async def publish(self, on: dict[str, Any]) -> None:
        about = {**on, "num_examples": NUM_EXAMPLES, "secret": self.secret}
        pieces = [HEAD.replace("{}", json.dumps(about)).encode(), self.crowd.new_model(self.number), TAIL]
        kind = f"multipart/form-data; boundary={BOUNDARY}"
        answer = await self.call("publish", "POST", v1.TRANSACTIONS, pieces, kind)
        self.newest = json.loads(answer.body)["id"]

    async def call(self, name: str, method: str, path: str, body: Sequence[bytes] = (), kind: str = "") -> Answer:
        """As ``fl_client.retry.ServerPool.call`` of one server.

        Raises:
            GivenUpError: as the SDK would.
        """
        began_s, pause_s = time.perf_counter(), 0.0
        self.calling_since = began_s
        tally = self.crowd.tally
        while True:
            asked_to_wait_s = None
            try:
                answer = await self.attempt(method, path, body, kind)
            except (OSError, TimeoutError) as error:
                fault = type(error).__name__
            else:
                if answer.status in SUCCESS:
                    self.crowd.tally.took_s[name].append(time.perf_counter() - began_s)
                    self.crowd.tally.moved[name].append((answer.sent, answer.received))
                    self.calling_since = None
                    return answer
                fault = f"{answer.status} {answer.code}"
                asked_to_wait_s = retry.retry_after_s(answer.fields.get(b"retry-after", b"").decode() or None)
                if answer.status not in retry.TRY_ELSEWHERE:
                    tally.given_up[f"{name}: {fault}"] += 1
                    self.newest = None if answer.status in (404, 410) else self.newest
                    raise GivenUpError
            tally.tried_again[f"{name}: {fault}"] += 1
            if self.connection is not None:
                self.connection.close()
            self.is_introduced = self.is_introduced and asked_to_wait_s is not None
            pause_s = min(max(2 * pause_s, retry.FIRST_PAUSE_S), retry.LONGEST_PAUSE_S)
            wait_s = max(pause_s * random.uniform(0.5, 1.0), asked_to_wait_s or 0.0)
            if time.perf_counter() + wait_s - began_s >= DEFAULT_TIMEOUT_S:
                tally.given_up[f"{name}: unavailable for {DEFAULT_TIMEOUT_S:.0f} s, last {fault}"] += 1
                raise GivenUpError
            await asyncio.sleep(wait_s)

    async def attempt(self, method: str, path: str, body: Sequence[bytes], kind: str) -> Answer:
        if self.connection is None or not self.connection.is_open:
            loop = asyncio.get_running_loop()
            async with asyncio.timeout(CONNECT_S):
                _, self.connection = await loop.create_connection(
                    Connection, "127.0.0.1", self.crowd.port, local_addr=(self.address, 0)
                )
        if not self.is_introduced:
            answer = await self.connection.ask(head("GET", "/version"))
            if answer.status != 200:
                return answer
            self.is_introduced = True
            if not self.connection.is_open:
                return await self.attempt(method, path, body, kind)
        return await self.connection.ask(head(method, path, kind, sum(map(len, body))), *body)


def head(method: str, path: str, kind: str = "", size: int = 0) -> bytes:
    about = f"content-type: {kind}\r\ncontent-length: {size}\r\n" if kind else ""
    return f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{about}\r\n".encode()


async def keep_on(client: Client) -> None:
    while True:
        with suppress(GivenUpError):
            await client.round()


async def join(clients: Sequence[Client], ledger: str) -> None:
    """Everybody's first update, upon genesis, a few at a time."""
    waiting = iter(clients)

    async def some() -> None:
        for client in waiting:
            await client.publish({"parents": [ledger]})

    await asyncio.gather(*(some() for _ in range(JOINING_AT_ONCE)))


async def crowd_of(port: int, clusters: int) -> tuple[Crowd, str]:
    """Nobody yet, and the ledger's id."""
    first = Client(Crowd(port, b"", "", clusters), 0)
    genesis = json.loads((await first.call("genesis", "GET", v1.GENESIS)).body)
    path = genesis["model"]["href"]
    model = bytes((await first.call("fetch", "GET", path)).body)
    return Crowd(port, model, path, clusters), genesis.get("ledger", "")


async def measured(clients: Sequence[Client], running: Running, *, warm_s: float, seconds: float) -> dict[str, Any]:
    """What so many clients at once get of a server, once they have begun."""
    crowd, tree = clients[0].crowd, running.processes()
    tasks = [asyncio.create_task(keep_on(client)) for client in clients]
    await asyncio.sleep(warm_s)
    before, own, began_s = [cpu_s(pid) for pid in tree], time.process_time(), time.perf_counter()
    crowd.tally = tally = Tally()
    await asyncio.sleep(seconds)
    taken_s, own = time.perf_counter() - began_s, time.process_time() - own
    used = [cpu_s(pid) - earlier for pid, earlier in zip(tree, before, strict=True)]
    now_s = time.perf_counter()
    oldest_s = max((now_s - each.calling_since for each in clients if each.calling_since is not None), default=0.0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for client in clients:
        if client.connection is not None:
            client.connection.close()
    per_round = 1e3 / max(tally.rounds, 1)
    return {
        "clients": len(clients),
        "rounds_per_s": round(tally.rounds / taken_s, 1),
        "server_cpu_ms_per_round": round(sum(used) * per_round, 2),
        "helpers_cpu_ms_per_round": round(sum(used[1:]) * per_round, 2),
        "server_cores": round(sum(used) / taken_s, 2),
        "clients_cores": round(own / taken_s, 2),
        "rss_mb": round(sum(memory_of(pid, "VmRSS") for pid in tree) / 1e6),
        "seconds": {name: quantiles(all_s) for name, all_s in sorted(tally.took_s.items())},
        "longest_under_way_s": round(oldest_s, 1),
        "tried_again": dict(tally.tried_again.most_common()),
        "given_up": dict(tally.given_up.most_common()),
        "load_average": harness.load()["load_average"][0],
    }


def quantiles(all_s: Sequence[float]) -> dict[str, float]:
    ordered = sorted(all_s)
    at = {
        name: ordered[int(share * (len(ordered) - 1))] for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
    }
    return {"n": len(ordered), **{name: round(value, 4) for name, value in at.items()}}


async def against(
    running: Running, numbers: Sequence[int], *, clusters: int, warm_s: float, seconds: float
) -> list[dict[str, Any]]:
    """Each number of clients, with ``FEW`` before it, on one server whose ledger grows."""
    crowd, ledger = await crowd_of(running.port, clusters)
    everybody: list[Client] = []
    rows = []
    for number in numbers:
        new = [Client(crowd, each) for each in range(len(everybody), number)]
        await join(new, ledger)
        everybody += new
        for now in sorted({min(FEW, number), number}):
            row = await measured(everybody[:now], running, warm_s=warm_s, seconds=seconds)
            rows.append({"authors": number, **row})
            show(rows[-1])
    return rows


def show(row: dict[str, Any]) -> None:
    print(
        f"{row['clients']:>5} clients, {row['authors']:>4} authors: {row['rounds_per_s']:>6.1f} rounds/s,"
        f" CPU of the server {row['server_cpu_ms_per_round']:.2f} ms a round"
        f" (its helpers {row['helpers_cpu_ms_per_round']:.2f}) and {row['server_cores']:.2f} cores,"
        f" of the clients {row['clients_cores']:.2f}; {row['rss_mb']} MB; load {row['load_average']}"
    )
    for name, each in row["seconds"].items():
        print(f"      {name}: p50 {each['p50']:.3f}, p95 {each['p95']:.3f}, p99 {each['p99']:.3f} s, n = {each['n']}")
    print(f"      longest under way {row['longest_under_way_s']} s; tried again {row['tried_again']}", flush=True)
    if row["given_up"]:
        print(f"      given up {row['given_up']}", flush=True)


def ratios(kind: str, rows: Sequence[dict[str, Any]], bare: dict[str, Any]) -> list[harness.Ratio]:
    """What the crowds cost, beside the targets."""
    few = {row["authors"]: row for row in rows if row["clients"] == min(FEW, row["authors"])}
    first = few[min(few)]
    basis = f"{first['clients']} clients; bare uvicorn and SQLite: {bare['server_cpu_ms_per_round']} ms"
    name = f"{kind}: CPU ms of the server's processes in a round"
    found = [harness.Ratio(name, first["server_cpu_ms_per_round"], KINDS[kind][2], "at most", basis)]
    for row in rows:
        if row["clients"] in GOODPUT:
            alone, target = few[row["authors"]]["rounds_per_s"], GOODPUT[row["clients"]]
            basis = f"{row['rounds_per_s']} rounds/s against {alone} of {FEW} clients on the same ledger"
            name = f"{kind}: goodput of {row['clients']:,} clients"
            found.append(harness.Ratio(name, row["rounds_per_s"] / alone, target, "at least", basis))
            lost, basis = sum(row["given_up"].values()), "calls that the SDK would not have tried again"
            found.append(harness.Ratio(f"{kind}: errors of {row['clients']:,} clients", lost, 0, "at most", basis))
    return found


def main() -> None:
    parser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where databases go")
    parser.add_argument("--clients", nargs="+", type=int, default=[10, 100, 1_000, 3_000])
    parser.add_argument("--kinds", nargs="+", choices=tuple(KINDS), default=("one cluster", "beast"))
    parser.add_argument("--warm", type=float, default=5.0, help="seconds before each measurement")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    options = parser.parse_args()
    how = {"warm_s": options.warm, "seconds": options.seconds}
    result = harness.Result("load", "Rounds of 0.1 MB for many clients at once, one server", options.date)
    print("bare uvicorn and SQLite")
    with running_bare_ledger(TENTH_MODEL_VALUES, folder=options.folder, stores=True) as bare:
        result.facts["bare"] = bare_rows = uvloop.run(against(bare, [FEW], clusters=1, **how))
    for kind in options.kinds:
        print(kind)
        clusters, rules, _ = KINDS[kind]
        with running_server(TENTH_MODEL_VALUES, folder=options.folder, rules=rules) as running:
            result.facts[kind] = rows = uvloop.run(against(running, options.clients, clusters=clusters, **how))
        result.ratios += ratios(kind, rows, bare_rows[0])
    print(result.write())


if __name__ == "__main__":
    main()
