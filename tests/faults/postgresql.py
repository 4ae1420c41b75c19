"""``kill -9`` of PostgreSQL under a server that goes on: of its postmaster, of one connection's process, of everything.

The server says 503 while there is nothing to write to, goes on by itself once there is, and nothing that it
acknowledged is lost. The database's own default is ``synchronous_commit = off``, under which a crash loses
acknowledged transactions: that none is lost shows that the server does not leave it at that.
Half of the clients never come back for what was not acknowledged; nobody may have to wait for them.
"""

import http.client
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from sqlalchemy import text

from fl_core.types import TxId
from fl_core.wire import v1
from ledger_server.store import schema
from ledger_server.store.engine import make_engine, parse_url
from tests.faults.harness.history import History
from tests.faults.harness.servers import ServerProcess
from tests.faults.harness.writers import Author, Writer, stop
from tests.faults.report import Report, quantiles
from tests.postgres import START_S, NoPostgresError, PostgresServer, conninfo, own_server

WRITERS = 8
CALM_S = 0.5
"""Between two publications of a writer; none just before a kill."""
RECOVERS_WITHIN_S = 10.0
DURABLE: Mapping[str, str] = {"synchronous_commit": "on", "fsync": "on", "full_page_writes": "on"}
EXPECTED = frozenset({http.client.OK, http.client.CREATED, http.client.SERVICE_UNAVAILABLE})


def processes_of(postgresql: PostgresServer) -> dict[int, str]:
    """The postmaster's children, with what each calls itself."""
    assert postgresql.process is not None
    postmaster = postgresql.process.pid
    found: dict[int, str] = {}
    with suppress(OSError):
        for process in Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split():
            with suppress(OSError):
                found[int(process)] = Path(f"/proc/{process}/cmdline").read_text().rstrip("\0 ")
    return found


def _kill_all(processes: Mapping[int, str]) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def kill_postmaster(postgresql: PostgresServer, rng: random.Random) -> None:
    """The postmaster alone: its children notice and end, some after they have committed."""
    postgresql.kill()
    time.sleep(rng.uniform(0.0, 1.0))
    _start(postgresql)


def kill_backend(postgresql: PostgresServer, rng: random.Random) -> None:
    """One connection's process; the postmaster ends all others and recovers by itself."""
    connections = [
        process
        for process, name in processes_of(postgresql).items()
        if name.startswith("postgres: postgres postgres") and "idle" not in name
    ]
    if not connections:  # none is at work at this very moment: any
        connections = [process for process, name in processes_of(postgresql).items() if "postgres postgres" in name]
    os.kill(rng.choice(connections), signal.SIGKILL)
    postgresql.wait()


def kill_everything(postgresql: PostgresServer, rng: random.Random) -> None:
    """All processes; what was only in shared memory is gone."""
    assert postgresql.process is not None
    os.kill(postgresql.process.pid, signal.SIGSTOP)  # so that it neither notices nor starts others
    _kill_all(processes_of(postgresql))
    postgresql.kill()
    time.sleep(rng.uniform(0.0, 1.0))
    _start(postgresql)


KINDS: Mapping[str, Callable[[PostgresServer, random.Random], None]] = {
    "postmaster": kill_postmaster,
    "backend": kill_backend,
    "everything": kill_everything,
}


def _start(postgresql: PostgresServer) -> None:
    """Start; again while a child of the one that was killed still holds its shared memory."""
    until = time.monotonic() + START_S
    while True:
        try:
            postgresql.start()
        except NoPostgresError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
        else:
            return


@dataclass(slots=True)
class FickleAuthor(Author):
    """A client that never asks again: what is not acknowledged is left alone, and another client comes instead."""

    def again(self) -> None:
        """Nothing."""
        if self.pending is not None:
            self.seed, self.sequence = self.seed + WRITERS, 0
            self.__post_init__()


@dataclass
class Reader(threading.Thread):
    """Asks for one thing after another, and keeps what was answered and how long the longest answer took."""

    server: ServerProcess
    path: str
    statuses: Counter[int] = field(default_factory=Counter)
    longest_s: float = 0.0

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        self.stopping = threading.Event()

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        """Ask on; an answer that does not come counts as status 0."""
        while not self.stopping.wait(0.05):
            began_s = time.monotonic()
            try:
                status, _ = self.server.ask(self.path, timeout_s=20)
            except (OSError, http.client.HTTPException):
                status = 0
            self.statuses[status] += 1
            self.longest_s = max(self.longest_s, time.monotonic() - began_s)


def settings_of(url: str) -> dict[str, str]:
    """What the server's connections have of ``DURABLE``."""
    engine = make_engine(parse_url(url))
    try:
        with engine.connect() as connection:
            return {name: str(connection.execute(text(f"SHOW {name}")).scalar_one()) for name in DURABLE}
    finally:
        engine.dispose()


def killed(postgresql: PostgresServer, folder: Path, report: Report, history: History) -> None:
    """``report.size`` kills of PostgreSQL under one server, which is started once more at the end, to compare."""
    rng = random.Random(f"{report.seed} postgresql")
    url = postgresql.url.render_as_string(hide_password=False)
    with psycopg.connect(conninfo(postgresql.url), autocommit=True) as connection:
        connection.execute("ALTER DATABASE postgres SET synchronous_commit = off")
    schema.upgrade(url)
    server = ServerProcess(folder / "data", database_url=url)
    ledger = server.found()
    report.figures["settings"] = found = settings_of(url)
    if found != DURABLE:
        report.broken.append(f"the server's connections are not durable: {found}")
    history.note("run", part="postgresql", seed=report.seed, kills=report.size)
    history.note("ledger", transaction=ledger)
    writers = [
        Writer(
            (FickleAuthor, Author)[i % 2](10_000 + i, ledger), history, port=server.port, pause_s=CALM_S, stubborn=True
        )
        for i in range(WRITERS)
    ]
    recovered_s: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with server, ExitStack() as stack:
        process = server.process
        readers = {
            "readyz": Reader(server, "/readyz"),
            "tips": Reader(server, v1.TIPS),
            "list": Reader(server, f"{v1.TRANSACTIONS}?limit=5"),
            "model": Reader(server, v1.path(v1.TRANSACTION_MODEL, transaction=TxId(ledger))),
        }
        for thread in (*writers, *readers.values()):
            thread.start()
        stack.callback(stop, writers)
        for number in range(report.size):
            kind = list(KINDS)[number % len(KINDS)]
            _burst(writers, rng.uniform(0.05, 0.4))
            history.note("kill", kind=kind)
            KINDS[kind](postgresql, rng)
            up_s = time.monotonic()
            _calm(writers)
            back_s = _acknowledges_again(history, up_s)
            if back_s is None:
                report.broken.append(
                    f"{kind}: nothing was acknowledged within {RECOVERS_WITHIN_S:.0f} s of PostgreSQL's return"
                )
                break
            recovered_s[kind].append(back_s)
        stop(writers)
        for reader in readers.values():
            reader.stopping.set()
            reader.join(30)
        if process is not server.process or process is None or process.exitcode is not None:
            report.broken.append(f"the server ended: {server.tail()}")
        server.show(history)
        server.kill()
        server.start()
        server.show(history)
    report.figures["kills"] = {kind: len(each) for kind, each in recovered_s.items()}
    report.figures["acknowledges_again_after_s"] = {kind: quantiles(each) for kind, each in recovered_s.items()}
    answers = {name: reader.statuses for name, reader in readers.items()}
    answers["publish"] = sum((Counter(writer.statuses) for writer in writers), Counter())
    report.figures["answers"] = {name: dict(sorted(each.items())) for name, each in answers.items()}
    report.figures["longest_read_s"] = round(max(reader.longest_s for reader in readers.values()), 2)
    for name, each in answers.items():
        if odd := each.keys() - EXPECTED:
            report.broken.append(f"{name} was answered with {sorted(odd)}")
    for name in ("readyz", "publish"):
        if not answers[name][http.client.SERVICE_UNAVAILABLE]:
            report.broken.append(f"{name} never was 503; the run shows nothing")


def _burst(writers: list[Writer], lasts_s: float) -> None:
    """All write as fast as they may, and go on so; returns after a while."""
    for writer in writers:
        writer.pause_s = 0.0
    time.sleep(CALM_S + lasts_s)


def _calm(writers: list[Writer]) -> None:
    for writer in writers:
        writer.pause_s = CALM_S


def _acknowledges_again(history: History, up_s: float) -> float | None:
    """Seconds from ``up_s`` until something is acknowledged; None if nothing is, in time."""
    until = up_s + RECOVERS_WITHIN_S
    while time.monotonic() < until:
        for event in reversed(history.events):
            if event["at_s"] <= up_s:
                break
            if event["event"] == "acknowledged":
                return float(event["at_s"]) - up_s
        time.sleep(0.01)
    return None


def run(folder: Path, size: int, seed: int) -> Report:
    """``size`` kills, of each kind in turn."""
    report = Report(
        "postgresql",
        f"kill -9 of PostgreSQL's postmaster, of one backend, of all its processes, under {WRITERS} writers of a "
        "server that goes on; the database's own default is synchronous_commit = off",
        "the server's connections are durable; it answers 200, 201 or 503 and nothing else, writes again within "
        f"{RECOVERS_WITHIN_S:g} s by itself, and nothing acknowledged is lost or there in part",
        size,
        seed,
    )
    history = History()
    folder.mkdir(parents=True, exist_ok=True)
    with own_server(durable=True) as postgresql:
        killed(postgresql, folder, report, history)
    report.judge(history, folder)
    return report
