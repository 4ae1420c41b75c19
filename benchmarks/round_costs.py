"""What a round costs servers, by the model's size and by how many models are averaged; `dag-acfl capacity` goes by it.

Two servers of one ledger, the product's own command with its defaults (all of a model is compared, or a sketch of
it), each with its own SQLite database; models of a megabyte and more lie in a directory, as docs/capacity.md advises.
Clients of ``load.py`` keep the first one busy while the second is stopped, as by a link that was cut: CPU of a round is
that of the first. Then the second goes on until both are equal: what the first spends is serving a peer, what the
second spends is receiving, in batches. Then one client goes on alone, whose updates the second receives singly. The
same rounds on PostgreSQL (one server, many averaged) say what its processes take.

Few authors give averages of few models, many authors those of as many as one average may have. Beside CPU: bytes that
moved beyond models, bytes on disk beyond models, of them headers and evidence, time under the write lock, and memory.

    python benchmarks/round_costs.py
    python benchmarks/round_costs.py --models 0.1 --seconds 5
"""

import asyncio
import json
import os
import signal
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness
import uvloop
from gossip import Server, servers, wait_until_equal
from load import Client, Tally, crowd_of, join, keep_on
from our_server import MB_MODEL_VALUES, TENTH_MODEL_VALUES, memory_of
from workers import locked_s, of_postgresql

from fl_core.wire import v1
from ledger_server.store import schema
from tests.postgres import own_server

VALUES = {"0.1": TENTH_MODEL_VALUES, "1": MB_MODEL_VALUES, "13": harness.LARGE_MODEL_VALUES}
FEW, MANY = 5, 80
"""Authors; an average has at most 64 models."""
AT_ONCE = 10
"""Clients that publish at the same time."""
IN_FILES = MB_MODEL_VALUES
"""Models of as many values and more lie in a directory."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What there is to count at one time; what came between two is their difference."""

    cpu_s: float
    lock_s: float
    updates: int
    rounds: int
    header_bytes: int
    disk_bytes: int
    evidence_bytes: int

    def since(self, earlier: "Spent") -> dict[str, float]:
        return {name: getattr(self, name) - getattr(earlier, name) for name in self.__slots__}


@contextmanager
def surroundings(values: Mapping[str, str]) -> Iterator[None]:
    """Environment variables for the servers that start meanwhile."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def place(values: int) -> dict[str, str]:
    """Where models of this size lie."""
    return {"DAG_ACFL_BLOBS__STORE": "directory" if values >= IN_FILES else "database"}


async def spent(server: Server, asker: Client, *, rounds: int) -> Spent:
    """Up to now, by one server; disk only of SQLite."""
    costs = json.loads((await asker.call("costs", "GET", v1.COSTS)).body)
    lock_s, _ = await locked_s(asker)
    payload = costs["transactions"] * costs["model_bytes"]
    disk, evidence = on_disk(server.folder / "ledger.sqlite3")
    headers = costs["ledger_payload_bytes"] - payload
    return Spent(server.cpu_s(), lock_s, costs["transactions"], rounds, headers, disk, evidence)


def on_disk(file: Path) -> tuple[int, int]:
    """Bytes of an SQLite file's pages in use, and of evidence in it; zeros where there is no such file."""
    if not file.exists():
        return 0, 0
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:

        def ask(question: str) -> int:
            return int(connection.execute(question).fetchone()[0] or 0)

        pages = ask("PRAGMA page_count") - ask("PRAGMA freelist_count")
        return pages * ask("PRAGMA page_size"), ask("SELECT sum(length(data)) FROM attachments")


def mean_of(calls: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """Of a call's request and answer, bytes."""
    return statistics.mean(each[0] for each in calls), statistics.mean(each[1] for each in calls)


async def rounds(
    running: list[Server], *, authors: int, seconds: float, least: int, database_s: Any = lambda: 0.0
) -> dict[str, Any]:
    """What clients' rounds cost, per round; what they cost a second server, per update."""
    first, others = running[0], running[1:]
    crowd, ledger = await crowd_of(first.port, 1)
    everybody = [Client(crowd, number) for number in range(authors)]
    await join(everybody, ledger)
    asker = Client(crowd, authors)
    wait_until_equal(running, every_s=1.0)
    held = first.count()
    for server in others:
        server.signal(signal.SIGSTOP)
    clients = everybody[:AT_ONCE]
    tasks = [asyncio.create_task(keep_on(client)) for client in clients]
    while crowd.tally.rounds < 2 * len(clients):  # noqa: ASYNC110 -- warm: everybody has published upon an average
        await asyncio.sleep(0.1)
    crowd.tally = Tally()
    before, database, began_s = await spent(first, asker, rounds=0), database_s(), time.perf_counter()
    while time.perf_counter() - began_s < seconds or crowd.tally.rounds < least:  # noqa: ASYNC110 -- as above
        await asyncio.sleep(0.1)
    after, database = await spent(first, asker, rounds=crowd.tally.rounds), database_s() - database
    taken_s = time.perf_counter() - began_s
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for client in clients:
        if client.connection is not None:
            client.connection.close()  # an answer to what was broken off may be on its way
    pid = first.process.pid if first.process is not None else 0
    found, model_bytes = after.since(before), len(crowd.model)
    count = found["rounds"]
    path = v1.path(v1.TRANSACTION, transaction=clients[0].newest or "")
    newest = json.loads((await asker.call("newest", "GET", path)).body)
    moved = [mean_of(crowd.tally.moved[name]) for name in ("select", "fetch", "publish")]
    in_rows = 0 if place(model_bytes // 4)["DAG_ACFL_BLOBS__STORE"] == "directory" else model_bytes
    row: dict[str, Any] = {
        "model_bytes": model_bytes,
        "authors": authors,
        "averaged": len(newest["parents"]),
        "rounds": count,
        "rounds_per_s": round(count / taken_s, 2),
        "cpu_ms": round(found["cpu_s"] / count * 1e3, 2),
        "database_cpu_ms": round(database / count * 1e3, 2),
        "lock_ms": round(found["lock_s"] / count * 1e3, 3),
        "client_sent_beyond_model": round(sum(each[0] for each in moved) - model_bytes),
        "client_received_beyond_model": round(sum(each[1] for each in moved) - model_bytes),
        "header_bytes": round(found["header_bytes"] / found["updates"]),
        "rss_mb": round(memory_of(pid, "VmRSS") / 1e6, 1),
        "peak_mb": round(memory_of(pid, "VmHWM") / 1e6, 1),
        "given_up": dict(crowd.tally.given_up),
    }
    if found["disk_bytes"]:
        row["evidence_bytes"] = round(found["evidence_bytes"] / found["updates"])
        row["disk_bytes_beyond_model"] = round(found["disk_bytes"] / found["updates"] - in_rows)
    if others:
        behind = first.count() - held
        served_s, received_s = first.cpu_s(), [server.cpu_s() for server in others]
        for server in others:
            server.signal(signal.SIGCONT)
        wait_until_equal(running, every_s=1.0)
        per_update = 1e3 / behind / len(others)
        received_s = [server.cpu_s() - earlier for server, earlier in zip(others, received_s, strict=True)]
        row["updates_received"] = behind
        row["serving_cpu_ms"] = round((first.cpu_s() - served_s) * per_update, 2)
        row["receiving_cpu_ms"] = round(sum(received_s) * per_update, 2)
        pause_s = 0.05 + 3e-3 * row["receiving_cpu_ms"]
        cpu_ms, exchanged = await singly(running, clients[0], least=least, pause_s=pause_s)
        row["receiving_singly_cpu_ms"] = round(cpu_ms, 2)
        row["peer_bytes_beyond_model"] = round(exchanged - model_bytes)
    return row


async def singly(running: Sequence[Server], client: Client, *, least: int, pause_s: float) -> tuple[float, float]:
    """CPU ms of receiving an update, and bytes that servers exchange for it, where each comes alone."""
    others = running[1:]
    held, before_s = running[0].count(), sum(server.cpu_s() for server in others)
    exchanged = sum(server.gossip_bytes() for server in running)
    for _ in range(least):
        await client.round()
        await asyncio.sleep(pause_s)
    wait_until_equal(running, every_s=1.0)
    received = (running[0].count() - held) * len(others)
    spent_s = sum(server.cpu_s() for server in others) - before_s
    exchanged = sum(server.gossip_bytes() for server in running) - exchanged
    return spent_s / received * 1e3, exchanged / received


def main() -> None:
    parser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where databases go")
    parser.add_argument("--models", nargs="+", choices=tuple(VALUES), default=tuple(VALUES), help="megabytes")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each measurement, at least")
    parser.add_argument("--rounds", type=int, default=30, help="in each measurement, at least")
    options = parser.parse_args()
    how = {"seconds": options.seconds, "least": options.rounds}
    result = harness.Result("round_costs", "What a round costs servers, by size and number of models", options.date)
    rows: dict[str, list[dict[str, Any]]] = {"SQLite, two servers": [], "PostgreSQL, one server": []}
    for name in options.models:
        values = VALUES[name]
        for authors in (FEW, MANY):
            with surroundings(place(values)), servers(values, count=2, folder=options.folder) as (running, _, _):
                row = uvloop.run(rounds(running, authors=authors, **how))
            rows["SQLite, two servers"].append({"model_mb": float(name), **row})
            print(f"{name} MB, SQLite: {row}", flush=True)
        with own_server(durable=True) as postgresql:
            url = postgresql.url.render_as_string(hide_password=False)
            schema.upgrade(url)
            environment = {**place(values), "DAG_ACFL_DATABASE_URL": url}
            with surroundings(environment), servers(values, count=1, folder=options.folder) as (running, _, _):
                work = rounds(running, authors=MANY, database_s=lambda of=postgresql: of_postgresql(of), **how)
                row = uvloop.run(work)
        rows["PostgreSQL, one server"].append({"model_mb": float(name), **row})
        print(f"{name} MB, PostgreSQL: {row}", flush=True)
    result.facts = dict(rows)
    print(result.write())


if __name__ == "__main__":
    main()
