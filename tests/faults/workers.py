"""``kill -9`` of the processes that serve one ledger together, and of the PostgreSQL under them, while clients write.

Each client asks anew after every acknowledgement, by a connection of its own, which either process may take: what was
acknowledged is there. Killed are the process that leads, one that does not, and all of PostgreSQL's, in turn.
"""

import http.client
import json
import os
import random
import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fl_core.wire import v1
from ledger_server.store import schema
from tests.builders import author_of
from tests.faults.harness.history import History
from tests.faults.harness.servers import ServerProcess
from tests.faults.harness.writers import Author, Writer, stop
from tests.faults.postgresql import RECOVERS_WITHIN_S, kill_everything
from tests.faults.report import Report, quantiles
from tests.postgres import PostgresServer, own_server

WORKERS = 2
WRITERS = 8
PAUSE_S = 0.2
UP_S = 60.0
SILENCE_S = {"leader": 5.0, "other": 5.0, "postgresql": RECOVERS_WITHIN_S}
"""How long, after each kind of kill, no client may have an acknowledgement; a process that was killed is replaced before
the next kill."""
KINDS = tuple(SILENCE_S)


class ReadingWriter(Writer):
    """Publishes, and asks another process whether it is there."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.unread: list[str] = []
        self.read = 0

    def publish(self, connection: http.client.HTTPConnection) -> None:
        """As ``Writer``, and then ask."""
        super().publish(connection)
        mine = self.author.parent
        elsewhere = http.client.HTTPConnection(self.host, self.port, timeout=10)
        try:
            elsewhere.request("GET", v1.path(v1.TRANSACTION, transaction=mine))
            answer = elsewhere.getresponse()
            answer.read()
            listed: dict[str, str] = {}
            if answer.status == http.client.OK:
                elsewhere.request("GET", v1.CLIENTS)
                clients = elsewhere.getresponse()
                if clients.status == http.client.OK:
                    listed = {each["author"]: each["newest"] for each in json.loads(clients.read())["items"]}
        finally:
            elsewhere.close()
        if answer.status == http.client.NOT_FOUND or listed.get(author_of(self.author.key), mine) != mine:
            self.unread.append(mine)
        self.read += bool(listed)


def _silences(history: History) -> dict[str, list[float]]:
    """Seconds without an acknowledgement after each kill, the longest, by the kind of kill."""
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    last_s, kind = 0.0, ""
    for event in history.events:
        if event["event"] == "kill":
            kind = event["kind"]
            found[kind].append(0.0)
        elif event["event"] == "acknowledged":
            if kind:
                found[kind][-1] = max(found[kind][-1], event["at_s"] - last_s)
            last_s = event["at_s"]
    return found


def _said(server: ServerProcess, event: str) -> list[int]:
    """The processes that have logged an event, in order."""
    lines = server.log.read_text(errors="replace").splitlines() if server.log.exists() else []
    return [json.loads(line)["pid"] for line in lines if f'"event": "{event}"' in line]


def _wait_for(server: ServerProcess, event: str, count: int) -> bool:
    until_s = time.monotonic() + UP_S
    while len(_said(server, event)) < count:
        if time.monotonic() > until_s:
            return False
        time.sleep(0.05)
    return True


def _kill(kind: str, alive: set[int], server: ServerProcess, postgresql: PostgresServer, rng: random.Random) -> None:
    if kind == "postgresql":
        kill_everything(postgresql, rng)
        return
    leader = [each for each in _said(server, "this process leads") if each in alive][-1:]
    others = sorted(alive - set(leader))
    victim = (leader or others)[0] if kind == "leader" else rng.choice(others)
    os.kill(victim, signal.SIGKILL)
    alive.discard(victim)


def killed(postgresql: PostgresServer, folder: Path, report: Report, history: History) -> None:
    """``report.size`` kills under one server of several processes."""
    rng = random.Random(f"{report.seed} workers")
    url = postgresql.url.render_as_string(hide_password=False)
    schema.upgrade(url)
    environment = {"DAG_ACFL_WORKERS": str(WORKERS), "DAG_ACFL_LOG_LEVEL": "info"}
    server = ServerProcess(folder / "data", database_url=url, environment=environment)
    ledger = server.found()
    history.note("run", part="workers", seed=report.seed, kills=report.size)
    history.note("ledger", transaction=ledger)
    writers = [
        ReadingWriter(Author(10_000 + i, ledger), history, port=server.port, pause_s=PAUSE_S, stubborn=True)
        for i in range(WRITERS)
    ]
    with server, ExitStack() as stack:
        if not _wait_for(server, "server started", WORKERS):
            report.broken.append(f"the processes did not start: {server.tail()}")
            return
        for writer in writers:
            writer.start()
        stack.callback(stop, writers)
        alive = set(_said(server, "server started"))
        for number in range(report.size):
            kind = KINDS[number % len(KINDS)]
            time.sleep(rng.uniform(0.5, 1.5))
            history.note("kill", kind=kind)
            started = len(_said(server, "server started"))
            _kill(kind, alive, server, postgresql, rng)
            if kind != "postgresql":
                if not _wait_for(server, "server started", started + 1):
                    report.broken.append(f"{kind}: no process took the place: {server.tail()}")
                    break
                alive.add(_said(server, "server started")[-1])
        time.sleep(2.0)
        stop(writers)
        orders = [list(server.listed()) for _ in range(2 * WORKERS)]
        if any(order != orders[0] for order in orders):
            report.broken.append("the processes show different orders")
        server.show(history)
    silences = _silences(history)
    report.figures["reads_after_writes"] = sum(writer.read for writer in writers)
    report.figures["kills"] = {kind: len(each) for kind, each in silences.items()}
    report.figures["silence_s"] = {kind: quantiles(each) for kind, each in silences.items() if each}
    report.figures["answers"] = {
        status: sum(writer.statuses.get(status, 0) for writer in writers)
        for status in sorted({each for writer in writers for each in writer.statuses})
    }
    report.broken += [f"acknowledged and not read: {each}" for writer in writers for each in writer.unread]
    for kind, each in silences.items():
        if max(each, default=0.0) > SILENCE_S[kind]:
            report.broken.append(f"{kind}: nothing was acknowledged for {max(each):.1f} s")
    if not report.figures["reads_after_writes"]:
        report.broken.append("nobody read what it had written; the run shows nothing")


def run(folder: Path, size: int, seed: int) -> Report:
    """``size`` kills, of each kind in turn."""
    report = Report(
        "workers",
        f"kill -9 of one of {WORKERS} processes that serve a ledger together (the one that leads, another one), and of "
        f"all of PostgreSQL's, under {WRITERS} writers that read by other connections what they wrote",
        "nothing acknowledged is lost, there in part, or unknown to any process; all show one order; after a process's "
        f"end something is acknowledged within {SILENCE_S['leader']:g} s, after PostgreSQL's within "
        f"{SILENCE_S['postgresql']:g}",
        size,
        seed,
    )
    history = History()
    folder.mkdir(parents=True, exist_ok=True)
    with own_server(durable=True) as postgresql:
        killed(postgresql, folder, report, history)
    report.judge(history, folder)
    return report
