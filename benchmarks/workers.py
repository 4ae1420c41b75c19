"""What a second process of one server costs and brings, on PostgreSQL: CPU of a round, and what is serialised of it.

The product's own command with ``--workers 1`` and ``--workers 2``, in turn, each on a new database of a PostgreSQL that
syncs; few clients of ``load.py`` that keep it busy. CPU is that of the server's processes and of all of PostgreSQL's.
Serialised is what happens under the database's write lock, its commit's wait for the disk included: from the server's
own ``dag_acfl_write_lock_seconds``. Both are stated for a round, so that they hold also where the machine has too few
cores for two processes, clients and database, as wall clock does not.

The model: a round takes ``w + (N - 1) k`` of one of N processes (each is one core's, by the interpreter's lock; k is
what following another's round costs), ``s`` of the write lock, and all CPU of it one of the machine's cores. M clients
that ask without pause meet these as queues (mean value analysis of a closed network, after Reiser and Lavenberg).

    python benchmarks/workers.py
"""

import asyncio
import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import harness
import uvloop
from load import FEW, Client, crowd_of, join, keep_on
from our_server import TENTH_MODEL_VALUES, Running, cpu_s, running_server

from ledger_server.store import schema
from tests.postgres import PostgresServer, own_server

COUNTS = (1, 2, 4, 8, 16)
MEASURED = ("rounds_per_s", "process_s", "database_s", "client_s", "lock_s", "rounds_per_lock")


def of_postgresql(server: PostgresServer) -> float:
    """CPU seconds of its processes, those that have ended included."""
    assert server.process is not None
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    ended_ticks = int(fields[13]) + int(fields[14])
    return cpu_s(server.process.pid) + sum(map(cpu_s, map(int, children))) + ended_ticks / 100


async def locked_s(client: Client) -> tuple[float, int]:
    """Seconds under the write lock, and how often it was taken, up to now."""
    text = (await client.call("metrics", "GET", "/metrics")).body.decode()
    lines = dict(line.split(" ") for line in text.splitlines() if line.startswith("dag_acfl_write_lock_seconds_"))
    return float(lines["dag_acfl_write_lock_seconds_sum"]), round(float(lines["dag_acfl_write_lock_seconds_count"]))


async def rounds(running: Running, postgresql: PostgresServer, *, warm_s: float, seconds: float) -> dict[str, Any]:
    """What few clients that never pause get, and what that costs whom."""
    crowd, ledger = await crowd_of(running.port, 1)
    clients = [Client(crowd, number) for number in range(FEW)]
    await join(clients, ledger)
    asker = Client(crowd, FEW)
    tasks = [asyncio.create_task(keep_on(client)) for client in clients]
    await asyncio.sleep(warm_s)
    tree = running.processes()

    async def now() -> tuple[float, ...]:
        server_s = sum(map(cpu_s, tree))
        locked = await locked_s(asker)
        return (
            time.perf_counter(),
            server_s,
            of_postgresql(postgresql),
            time.process_time(),
            *locked,
            crowd.tally.rounds,
        )

    before = await now()
    await asyncio.sleep(seconds)
    after = await now()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for client in (*clients, asker):
        if client.connection is not None:
            client.connection.close()
    taken_s, server_s, database_s, client_s, lock_s, locks, done = (
        later - earlier for earlier, later in zip(before, after, strict=True)
    )
    return {
        "rounds_per_s": round(done / taken_s, 2),
        "process_s": server_s / done,
        "database_s": database_s / done,
        "client_s": client_s / done,
        "lock_s": lock_s / done,
        "rounds_per_lock": round(done / max(locks, 1), 2),
        "given_up": dict(crowd.tally.given_up),
        "load_average": harness.load()["load_average"][0],
    }


def mva(clients: int, stations: Mapping[str, tuple[float, int]]) -> float:
    """Rounds a second of a closed network: stations with a demand in seconds and a number of servers each.

    A station of m servers counts as one that is m times as fast and a delay of the rest (Seidmann).
    """
    waiting = dict.fromkeys(stations, 0.0)
    rate = 0.0
    for population in range(1, clients + 1):
        stays = {
            name: demand / servers * (1 + waiting[name]) + demand * (servers - 1) / servers
            for name, (demand, servers) in stations.items()
        }
        rate = population / sum(stays.values())
        queued = {name: demand / servers * (1 + waiting[name]) for name, (demand, servers) in stations.items()}
        waiting = {name: rate * each for name, each in queued.items()}
    return rate


def model(count: int, of: Mapping[str, float], *, cores: float) -> float:
    """Rounds a second of so many processes, where so many of the machine's cores are left for all of this."""
    process_s = of["process_s"] + (count - 1) * of["follow_s"]
    stations = {"processes": (process_s, count), "lock": (of["lock_s"], 1)}
    return min(mva(FEW * count, stations), cores / (process_s + of["database_s"] + of["client_s"]))


def mean(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    return sum(float(row[name]) for row in rows) / len(rows)


def main() -> None:
    parser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where databases go")
    parser.add_argument("--warm", type=float, default=5.0, help="seconds before each measurement")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    parser.add_argument("--turns", type=int, default=2, help="measurements of each number of processes")
    options = parser.parse_args()
    result = harness.Result("workers", "One and two processes that serve a ledger on PostgreSQL", options.date)
    rows: dict[int, list[dict[str, Any]]] = {1: [], 2: []}
    for turn in range(options.turns):
        for count in (1, 2) if turn % 2 == 0 else (2, 1):
            with own_server(durable=True) as postgresql:
                url = postgresql.url.render_as_string(hide_password=False)
                schema.upgrade(url)
                environment = {"DAG_ACFL_DATABASE_URL": url, "DAG_ACFL_WORKERS": str(count)}
                with running_server(TENTH_MODEL_VALUES, folder=options.folder, environment=environment) as running:
                    work = rounds(running, postgresql, warm_s=options.warm, seconds=options.seconds)
                    row = uvloop.run(work)
            rows[count].append(row)
            print(count, row, flush=True)
    one, two = ({name: mean(rows[count], name) for name in MEASURED} for count in (1, 2))
    costs = [each["process_s"] + each["database_s"] for each in (one, two)]
    of = {**one, "follow_s": max(two["process_s"] - one["process_s"], 0.0), "lock_s": two["lock_s"]}
    predicted = {}
    for count in rows:
        row = one if count == 1 else two
        got = row["rounds_per_s"] * (row["process_s"] + row["database_s"] + row["client_s"])
        predicted[count] = model(count, of, cores=got)
    alone = {
        count: round(model(count, {**of, "client_s": 0.0, "database_s": 0.0}, cores=math.inf), 1) for count in COUNTS
    }
    result.facts["measured"] = {str(count): each for count, each in rows.items()}
    result.facts["model"] = {"parameters": of, "rounds_per_s_where_cores_are_no_bound": alone}
    basis = f"{1e3 * costs[1]:.2f} against {1e3 * costs[0]:.2f} ms, {options.turns} turns each"
    result.ratios += [
        harness.Ratio("CPU of a round with two processes against one", costs[1] / costs[0], 1.15, "at most", basis),
        harness.Ratio(
            "time under the write lock in the CPU of a round, two processes",
            two["lock_s"] / costs[1],
            0.05,
            "at most",
            f"{1e3 * two['lock_s']:.2f} ms of wall clock, {two['rounds_per_lock']:.1f} rounds a lock",
        ),
    ]
    for count, rate in predicted.items():
        found = mean(rows[count], "rounds_per_s")
        basis = f"{rate:.1f} predicted, {found:.1f} rounds/s measured, with the cores that all of it got"
        result.ratios.append(
            harness.Ratio(
                f"model against measured, {count} processes: off by", abs(rate / found - 1), 0.15, "at most", basis
            )
        )
    print(result.write())


if __name__ == "__main__":
    main()
