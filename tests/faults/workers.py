"""``kill -9`` of the processes that serve one ledger together, and of the PostgreSQL under them, while clients write.

Each client asks anew after every acknowledgement, by a connection of its own, which either process may take: what was
acknowledged is there. Killed are the process that leads, one that does not, and all of PostgreSQL's, in turn. A
client's pause is the time from one of its acknowledgements to its next: its own 0.2 s, what it repeats, and all for which
PostgreSQL is gone (up to 1 s of it is the harness's, before it starts PostgreSQL again; the rest is its start and recovery).
"""

import http.client
import json
import os
import random
import signal
import threading
import time
from bisect import bisect
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

from fl_core.wire import v1
from ledger_server.http import workers
from ledger_server.store import schema
from tests.builders import author_of
from tests.faults.harness.ending import interruptible
from tests.faults.harness.history import History
from tests.faults.harness.servers import ServerProcess
from tests.faults.harness.writers import Author, Writer, stop
from tests.faults.postgresql import kill_everything
from tests.faults.report import Report, quantiles
from tests.postgres import PostgresServer, own_server

WORKERS = 2
WRITERS = 8
PAUSE_S = 0.2
UP_S = 300.0
"""A process begins within seconds; on a machine that has ten times as much to do, within minutes."""
KINDS = ("leader", "other", "postgresql")
LONGEST_PAUSE_S = 5.0
"""Of any client; a process that was killed is replaced before the next kill."""
SAYS_SOMETHING = 30
"""Of fewer kills pauses are reported and not judged."""


class ReadingWriter(Writer):
    """Publishes, and asks another process whether it is there."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.unread: list[str] = []
        self.read = 0
        self.acknowledged_s: list[float] = []

    def publish(self, connection: http.client.HTTPConnection) -> None:
        """As ``Writer``, and then ask."""
        super().publish(connection)
        self.acknowledged_s.append(time.monotonic())
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


def rest_no_longer() -> None:
    """Another process takes the place of one that was killed after a second, though the former ended soon, too.

    As it is, a place whose processes end within a minute rests for up to 32 s, and 300 kills would take an hour.
    """
    workers._LONGEST_REST_S = workers._FIRST_REST_S  # type: ignore[misc]


def pauses(acknowledged_s: Iterable[float], kills_s: Sequence[float]) -> list[float]:
    """After each kill the longest time without an acknowledgement.

    One that spans several kills counts for each of them, one that begins between two for the former.

    Args:
        acknowledged_s: Moments, in any order.
        kills_s: Moments, ascending.
    """
    found = [0.0] * len(kills_s)
    for began_s, ended_s in pairwise(sorted(acknowledged_s)):
        first, end = bisect(kills_s, began_s), bisect(kills_s, ended_s)
        for number in range(first, end) or range(max(first - 1, 0), first):
            found[number] = max(found[number], ended_s - began_s)
    return found


def go_on(orders: Sequence[Sequence[str]]) -> bool:
    """Whether each order that was shown goes on from the one that was shown before it, or is the same.

    All need not be the same although nobody writes any more: what a client has not waited for, as a disk took longer than
    its 10 s, may be committed at any time.
    """
    return all(later[: len(earlier)] == earlier for earlier, later in pairwise(orders))


def _by_kind(history: History, each_s: Sequence[float]) -> dict[str, Mapping[str, float]]:
    """Quantiles of a figure of every kill, by the kind of kill."""
    kinds = [event["kind"] for event in history.events if event["event"] == "kill"]
    return {
        kind: quantiles([value for value, its in zip(each_s, kinds, strict=True) if its == kind])
        for kind in KINDS
        if kind in kinds
    }


def _measure(history: History, writers: Sequence[ReadingWriter], ended_s: float, report: Report) -> None:
    """Pauses of all clients together, of the client that waited longest, and PostgreSQL's own part in them."""
    moments: dict[str, list[float]] = {
        name: [event["at_s"] for event in history.events if event["event"] == name] for name in ("kill", "killed")
    }
    by_client = [pauses([*writer.acknowledged_s, ended_s], moments["kill"]) for writer in writers]
    longest = [max(each) for each in zip(*by_client, strict=True)]
    together = pauses([at_s for writer in writers for at_s in writer.acknowledged_s], moments["kill"])
    down = [until_s - at_s for at_s, until_s in zip(moments["kill"], moments["killed"], strict=True)]
    report.figures["longest_pause_of_a_client_s"] = found = _by_kind(history, longest)
    report.figures["nobody_acknowledged_s"] = _by_kind(history, together)
    report.figures["postgresql_gone_s"] = _by_kind(history, down).get("postgresql", {})
    for kind, each in found.items():
        if report.size >= SAYS_SOMETHING and each["max"] > LONGEST_PAUSE_S:
            report.broken.append(f"{kind}: a client waited {each['max']:.1f} s for its next acknowledgement")


class Log:
    """What a server's processes have said, read as it grows: it has a line for each request."""

    def __init__(self, path: Path) -> None:
        self._path, self._read, self._rest = path, 0, b""
        self._said: dict[str, list[int]] = {}

    def said(self, event: str) -> list[int]:
        """The processes that have logged an event, in order."""
        with self._path.open("rb") as file:
            file.seek(self._read)
            new = file.read()
        self._read += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        for line in lines:
            if b'"pid": ' in line:
                said = json.loads(line)
                self._said.setdefault(said["event"], []).append(said["pid"])
        return self._said.get(event, [])

    def wait_for(self, event: str, count: int) -> bool:
        """Whether so many have, in time."""
        until_s = time.monotonic() + UP_S
        while len(self.said(event)) < count:
            if time.monotonic() > until_s:
                return False
            time.sleep(0.05)
        return True


def _kill(kind: str, alive: set[int], log: Log, postgresql: PostgresServer, rng: random.Random) -> None:
    if kind == "postgresql":
        kill_everything(postgresql, rng)
        return
    leader = [each for each in log.said("this process leads") if each in alive][-1:]
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
    server = ServerProcess(folder / "data", database_url=url, environment=environment, before=rest_no_longer)
    ledger = server.found()
    history.note("run", part="workers", seed=report.seed, kills=report.size)
    history.note("ledger", transaction=ledger)
    writers = [
        ReadingWriter(Author(10_000 + i, ledger), history, port=server.port, pause_s=PAUSE_S, stubborn=True)
        for i in range(WRITERS)
    ]
    stopping = threading.Event()
    with interruptible(stopping), server, ExitStack() as stack:
        log = Log(server.log)
        if not log.wait_for("server started", WORKERS):
            report.broken.append(f"the processes did not start: {server.tail()}")
            return
        for writer in writers:
            writer.start()
        stack.callback(stop, writers)
        alive = set(log.said("server started"))
        for number in range(report.size):
            kind = KINDS[number % len(KINDS)]
            if stopping.wait(rng.uniform(0.5, 1.5)):
                report.size = number
                break
            history.note("kill", kind=kind)
            started = len(log.said("server started"))
            _kill(kind, alive, log, postgresql, rng)
            history.note("killed", kind=kind)
            if kind != "postgresql":
                if not log.wait_for("server started", started + 1):
                    report.broken.append(f"{kind}: no process took the place: {server.tail()}")
                    break
                alive.add(log.said("server started")[-1])
        time.sleep(2.0)
        _measure(history, writers, time.monotonic(), report)
        stop(writers)
        orders = [list(server.listed()) for _ in range(2 * WORKERS)]
        if not go_on(orders):
            report.broken.append(f"the processes show different orders, of {[*map(len, orders)]} transactions")
        server.show(history)
    kinds = [event["kind"] for event in history.events if event["event"] == "kill"]
    report.figures["reads_after_writes"] = sum(writer.read for writer in writers)
    report.figures["kills"] = {kind: kinds.count(kind) for kind in KINDS}
    report.figures["answers"] = {
        status: sum(writer.statuses.get(status, 0) for writer in writers)
        for status in sorted({each for writer in writers for each in writer.statuses})
    }
    report.broken += [f"acknowledged and not read: {each}" for writer in writers for each in writer.unread]
    if not report.figures["reads_after_writes"]:
        report.broken.append("nobody read what it had written; the run shows nothing")


def run(folder: Path, size: int, seed: int) -> Report:
    """``size`` kills, of each kind in turn."""
    report = Report(
        "workers",
        f"kill -9 of one of {WORKERS} processes that serve a ledger together (the one that leads, another one), and of "
        f"all of PostgreSQL's, under {WRITERS} writers that read by other connections what they wrote",
        "nothing acknowledged is lost, there in part, or unknown to any process; all show one order; no client waits "
        f"longer than {LONGEST_PAUSE_S:g} s for its next acknowledgement, whatever was killed",
        size,
        seed,
    )
    history = History()
    folder.mkdir(parents=True, exist_ok=True)
    with own_server(durable=True) as postgresql:
        killed(postgresql, folder, report, history)
    report.judge(history, folder)
    return report
