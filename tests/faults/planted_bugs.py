"""The harness itself: bugs are planted one by one, and the part that is meant for each must find it.

``PLANTED`` says for each bug of ``tests.faults.harness.planted`` which part looks for it. A look returns what is
broken, as that part reports it: nothing without the bug, something with it.
"""

import http.client
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np

from fl_core.dag.signature import public_key_of
from fl_core.models import encode_flat
from fl_core.wire import gossip_v1
from ledger_server.http.peer_signature import NONCE_BYTES, sign_request
from ledger_server.keys import load_or_create_key
from tests.builders import LAYOUT, key_from_seed
from tests.faults.commands import command_points
from tests.faults.cursor import follow
from tests.faults.gossip.world import World
from tests.faults.harness.history import History
from tests.faults.harness.planted import BUGS
from tests.faults.harness.servers import ServerProcess
from tests.faults.harness.writers import Author, Writer, stop
from tests.faults.kill import PLACES, kill_points, ledger_at
from tests.faults.power_loss import CANARY_CUTS, cuts
from tests.faults.report import Report

Look = Callable[[str | None, Path], list[str]]
"""A look: the bug to plant, or None, and a folder; returns what is broken."""

SQLITE, IN_FILES = PLACES[0], PLACES[1]
SEEDS = 12
KILLS = 40


def by_kills_in_files(bug: str | None, folder: Path) -> list[str]:
    """``kill``, with models in files."""
    points = 2 if bug is None else KILLS
    return list(kill_points(IN_FILES, folder, points=points, seed=1, bug=bug).verdict(everywhere=False).faults)


def by_kills(bug: str | None, folder: Path) -> list[str]:
    """``kill``, with models in rows."""
    points = 2 if bug is None else KILLS
    return list(kill_points(SQLITE, folder, points=points, seed=1, bug=bug).verdict(everywhere=False).faults)


def by_commands(bug: str | None, folder: Path) -> list[str]:
    """``commands``, with models in rows."""
    points = 1 if bug is None else KILLS
    return list(command_points(SQLITE, folder, points=points, seed=1, bug=bug).verdict(everywhere=False).faults)


def by_power_cuts(bug: str | None, folder: Path) -> list[str]:
    """``power_loss``, on xfs, with models in rows."""
    count = 2 if bug is None else CANARY_CUTS
    return list(cuts(SQLITE, "xfs", folder, count=count, seed=1, bug=bug).verdict(everywhere=False).faults)


def by_followers(bug: str | None, folder: Path) -> list[str]:
    """``cursor``."""
    return list(follow(SQLITE, folder, transactions=150, seed=1, bug=bug).verdict().faults)


def by_simulation(bug: str | None, folder: Path) -> list[str]:
    """``simulation``; the bug is taken out of this process again."""
    bad_peer = "withholder" if bug == "unbounded-orphans" else None
    try:
        if bug is not None:
            BUGS[bug]()
        for seed in range(SEEDS):
            World(seed, bad_peer=bad_peer).play()
    except AssertionError as error:  # a BrokenInvariantError is one
        return [f"seed {seed}: {error}"]
    finally:
        patch.stopall()
    return []


def by_damage(bug: str | None, folder: Path) -> list[str]:
    """Bytes that are damaged on the disk are never served."""
    history = History()
    with ledger_at(IN_FILES, folder) as (server, ledger):
        server.bug = bug
        server.start()
        author = Author(1, ledger, IN_FILES.layout)
        writer = Writer(author, history, port=server.port)
        writer.start()
        while author.sequence < 3:
            time.sleep(0.01)
        stop([writer])
        server.kill()
        newest = max((folder / "data" / "models").glob("??/*"), key=lambda path: path.stat().st_mtime_ns)
        with newest.open("r+b") as file:
            file.seek(newest.stat().st_size // 2)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 1]))
        server.start()
        answers = [server.ask(item["model"]["href"]) for item in server.listed().values()]
        faults = history_faults(server)
    assert any(status == http.client.SERVICE_UNAVAILABLE for status, _ in answers) != (bug is not None)
    return [fault for fault in faults if "(200)" in fault]


def history_faults(server: ServerProcess) -> list[str]:
    """What ``ServerProcess.show`` finds wrong."""
    history = History()
    server.show(history)
    return list(history.events[-1]["faults"])


def by_nan(bug: str | None, folder: Path) -> list[str]:
    """A model with a value that is no number is refused."""
    with ledger_at(SQLITE, folder) as (server, ledger):
        server.bug = bug
        server.start()
        data = encode_flat(LAYOUT, np.array([1, np.nan, 0, 0], np.float32))
        status, _ = server.send(Author(1, ledger).signed(data).body)
        shown = len(server.listed())
    return [f"NaN was answered {status}, and {shown - 1} such transaction is there"] if shown > 1 else []


def by_replay(bug: str | None, folder: Path) -> list[str]:
    """A peer's request that is sent again is refused."""
    peer = key_from_seed(7)
    with ledger_at(SQLITE, folder) as (server, _):
        own = load_or_create_key(folder / "data" / "server-key.pem")
        server.environment = {"DAG_ACFL_PEERS": f"b=http://127.0.0.1:1#{public_key_of(peer)}"}
        server.bug = bug
        server.start()
        time.sleep(1.1)  # a server that has just begun takes nothing that was signed before it did
        headers = sign_request(
            peer,
            method="GET",
            target=gossip_v1.SUMMARY,
            body=b"",
            recipient=public_key_of(own),
            created_s=int(time.time()),
            nonce=bytes(NONCE_BYTES),
        )
        statuses = [server.ask(gossip_v1.SUMMARY, headers=headers)[0] for _ in range(3)]
    assert statuses[0] == http.client.OK, statuses
    return [f"a request that was sent three times was answered {statuses}"] if statuses[1:] != [401, 401] else []


@dataclass(frozen=True, slots=True)
class Planted:
    """A bug and the look that must find it."""

    look: Look
    part: str


PLANTED: dict[str, Planted] = {
    "synchronous-normal": Planted(by_power_cuts, "power_loss"),
    "row-before-blob": Planted(by_kills_in_files, "kill"),
    "acknowledged-before-commit": Planted(by_kills, "kill"),
    "cursor-gap": Planted(by_followers, "cursor"),
    "no-hash-check": Planted(by_damage, "damage at rest"),
    "sum-in-order-of-arrival": Planted(by_simulation, "simulation"),
    "unbounded-orphans": Planted(by_simulation, "simulation"),
    "no-foreign-keys": Planted(by_simulation, "simulation"),
    "accepts-nan": Planted(by_nan, "bad input"),
    "no-replay-cache": Planted(by_replay, "access"),
    "locks-dropped": Planted(by_commands, "commands"),
}


def run(folder: Path, size: int, seed: int) -> Report:
    """The first ``size`` bugs."""
    report = Report(
        "planted_bugs",
        "bugs planted in the product, one at a time",
        "the part that looks for it finds each, and finds nothing without it",
        size,
        seed,
    )
    for name, bug in list(PLANTED.items())[:size]:
        sound = bug.look(None, folder / f"{name}-sound")
        found = bug.look(name, folder / name)
        report.figures[name] = {"part": bug.part, "is_caught": bool(found), "found": found[:1]}
        report.broken += [f"without {name}: {fault}" for fault in sound]
        if not found:
            report.broken.append(f"{name} was not caught")
    report.figures["caught"] = sum(each["is_caught"] for each in report.figures.values())
    return report
