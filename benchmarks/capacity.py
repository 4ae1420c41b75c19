"""`dag-acfl capacity` against a real run that none of its figures come from: three servers, 0.4 MB, at a fixed pace.

The servers are the product's own command with its defaults, on loopback, each with an SQLite database. Clients of
``load.py`` begin a round every few seconds, as ``dag-acfl client run --every`` does, a third of them at each server.
Held against the calculator's figures for as many devices: bytes between a client and its server, bytes between servers,
bytes on disk, and CPU of the three servers, each for one update. It reckons with the results that are there now, so it
runs after those that it goes by, and before ``make docs``.

    python benchmarks/capacity.py
    python benchmarks/capacity.py --clients 12 --every 2 --rounds 4
"""

import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import harness
import uvloop
from gossip import Server, servers, wait_until_equal
from load import Client, Tally, crowd_of, join
from round_costs import mean_of, on_disk

from docs.parts.measured_costs import measured_costs
from ledger_server.admin.sizing import DAY_S, Costs, Demand, needs

SERVERS = 3
WITHIN = {"bytes up": 0.05, "bytes down": 0.05, "bytes between servers": 0.05, "bytes on disk": 0.05, "CPU ms": 0.3}
"""How far each figure may be off, as a share."""


async def at_a_pace(client: Client, *, rounds: int, every_s: float, wait_s: float) -> None:
    """Rounds, one every so often, the first after a while."""
    await asyncio.sleep(wait_s)
    clock = asyncio.get_running_loop().time
    begins_s = clock()
    for _ in range(rounds):
        await client.round()
        begins_s += every_s
        await asyncio.sleep(max(begins_s - clock(), 0.0))


async def measured(running: Sequence[Server], *, clients: int, every_s: float, rounds: int) -> dict[str, float]:
    """By update: from when everybody has published once until all servers have all of everybody's rounds."""
    crowds = [await crowd_of(server.port, 1) for server in running]
    everybody = [Client(crowds[number % len(crowds)][0], number) for number in range(clients)]
    for place, (crowd, ledger) in enumerate(crowds):
        crowd.models = place << 20  # no model is made twice: a server that has it would not be sent it
        await join([client for client in everybody if client.crowd is crowd], ledger)
        crowd.tally = Tally()
    wait_until_equal(running)
    before, began_s = now(running), time.perf_counter()
    waits = [every_s * number / clients for number in range(clients)]
    paces = zip(everybody, waits, strict=True)
    await asyncio.gather(*(at_a_pace(who, rounds=rounds, every_s=every_s, wait_s=wait) for who, wait in paces))
    taken_s = time.perf_counter() - began_s
    for client in everybody:
        if client.connection is not None:
            client.connection.close()
    wait_until_equal(running, every_s=0.5)
    tallies = [crowd.tally for crowd, _ in crowds]
    updates, cpu_s, exchanged, disk = (later - earlier for earlier, later in zip(before, now(running), strict=True))
    calls = [
        mean_of([moved for tally in tallies for moved in tally.moved[name]]) for name in ("select", "fetch", "publish")
    ]
    return {
        "updates": updates,
        "updates a second": updates / taken_s,
        "bytes up": sum(sent for sent, _ in calls),
        "bytes down": sum(received for _, received in calls),
        "bytes between servers": exchanged / updates / (len(running) - 1),
        "bytes on disk": disk / updates / len(running),
        "CPU ms": cpu_s / updates * 1e3,
    }


def now(running: Sequence[Server]) -> tuple[float, ...]:
    """Updates of one server; CPU seconds, bytes exchanged and bytes on disk of all."""
    return (
        running[0].count(),
        sum(server.cpu_s() for server in running),
        sum(server.gossip_bytes() for server in running),
        sum(on_disk(server.folder / "ledger.sqlite3")[0] for server in running),
    )


def predicted(*, clients: int, every_s: float, model_bytes: int) -> dict[str, float]:
    """What the calculator says, by update."""
    demand = Demand(devices=clients, every_s=every_s, model_bytes=model_bytes, servers=SERVERS, keep_days=None)
    found = needs(demand, Costs.parse(measured_costs()))
    return {
        "updates a second": found.updates_per_s,
        "bytes up": found.client_up_bytes,
        "bytes down": found.client_down_bytes,
        "bytes between servers": found.from_peers_bytes_s * SERVERS / found.updates_per_s / (SERVERS - 1),
        "bytes on disk": found.disk_bytes_day / DAY_S / found.updates_per_s,
        "CPU ms": sum(found.cores.values()) * SERVERS / found.updates_per_s * 1e3,
    }


def compared(folder: Path, *, clients: int, every_s: float, rounds: int) -> dict[str, dict[str, float]]:
    """Both, by figure."""
    with servers(harness.SMALL_MODEL_VALUES, count=SERVERS, folder=folder) as (running, _, _):
        got = uvloop.run(measured(running, clients=clients, every_s=every_s, rounds=rounds))
    said = predicted(clients=clients, every_s=every_s, model_bytes=4 * harness.SMALL_MODEL_VALUES)
    return {name: {"predicted": said.get(name, got[name]), "measured": got[name]} for name in got}


def main() -> None:
    parser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where databases go")
    parser.add_argument("--clients", type=int, default=30)
    parser.add_argument("--every", type=float, default=10.0, help="seconds from one round of a client to its next")
    parser.add_argument("--rounds", type=int, default=8, help="of each client")
    options = parser.parse_args()
    about = f"The capacity calculator against {SERVERS} servers and {options.clients} clients, 0.4 MB"
    result = harness.Result("capacity", about, options.date)
    found = compared(options.folder, clients=options.clients, every_s=options.every, rounds=options.rounds)
    result.facts = {name: {which: round(value, 2) for which, value in each.items()} for name, each in found.items()}
    for name, within in WITHIN.items():
        said, got = found[name]["predicted"], found[name]["measured"]
        basis = f"{said:,.1f} predicted, {got:,.1f} measured, for an update"
        result.ratios.append(harness.Ratio(f"{name}: off by", abs(said / got - 1), within, "at most", basis))
    print(result.write())


if __name__ == "__main__":
    main()
