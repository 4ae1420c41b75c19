"""The accident that ends studies: three servers, eight clients, one server gone for minutes and one for good.

The server that comes back is killed first; the one that does not is killed in the middle of its absence, so that for a
while one of three is left. Nobody lends a hand: clients are processes of the real SDK that are started once, with the
list of all servers, each beginning with another.

    0 ────── S/6 ─────────────── S/6 + S/2 ───────── S/6 + S ────── S/6 + S + S/4
    three    "away" is killed    "lost" is killed,   "away" is      everything is
    serve                        for good            back           compared
"""

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from fl_core.types import TxId
from tests.faults.harness import forked
from tests.faults.harness.client import EVENTS, take_part
from tests.faults.harness.history import Event, History
from tests.faults.harness.peers import introduce
from tests.faults.harness.servers import ServerProcess, running
from tests.faults.report import Report, quantiles

CLIENTS = 8
STAYS, AWAY, LOST = "stays", "away", "lost"
SETTLE_S = 120.0
GOSSIPED_WITHIN_S = 10.0
"""Two pull intervals: what is older than that when a server is lost must be elsewhere too."""
PUBLISHES_WITHIN_S = 60.0
LONGEST_TRAINING_S = 2.0


@dataclass
class ClientProcess:
    """One client, started once."""

    folder: Path
    number: int
    urls: Sequence[str]
    training_s: float
    process: BaseProcess | None = None

    @property
    def log(self) -> Path:
        return self.folder.parent / f"{self.folder.name}.log"

    def start(self) -> None:
        """Train and publish from now on."""
        self.folder.mkdir(parents=True)
        target = float(self.number % 2 + 1)
        self.process = forked.start(take_part, self.folder, self.urls, target, self.training_s, log=self.log)

    def ended(self) -> str | None:
        """What its end was like, if it has ended: nobody told it to."""
        assert self.process is not None
        if self.process.exitcode is None:
            return None
        log = self.log.read_text(errors="replace")[-2000:]
        return f"client {self.number} ended with {self.process.exitcode}: {log}"

    def stop(self) -> int | None:
        """SIGTERM, and wait; returns the exit status."""
        assert self.process is not None
        self.process.terminate()
        self.process.join(60)
        return self.process.exitcode

    def kill(self) -> None:
        """End it, whatever it does."""
        if self.process is not None:
            self.process.kill()
            self.process.join()

    def events(self, names: dict[str, str]) -> list[Event]:
        """What it noted, with servers by their names."""
        path = self.folder / EVENTS
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        events: list[Event] = []
        for line in lines:
            event = {**json.loads(line), "client": self.number}
            if event.get("server"):
                event["server"] = names[event["server"]]
            events.append(event)
        return events


@contextmanager
def study(folder: Path, *, training_s: float) -> Iterator[tuple[dict[str, ServerProcess], list[ClientProcess], TxId]]:
    """Three servers, running, and eight clients, not started."""
    servers = {name: ServerProcess(folder / name, name) for name in (STAYS, AWAY, LOST)}
    introduce(list(servers.values()))
    (ledger,) = {server.found() for server in servers.values()}
    urls = [server.url for server in servers.values()]
    clients = [
        ClientProcess(folder / f"client-{number}", number, urls[number % 3 :] + urls[: number % 3], training_s)
        for number in range(CLIENTS)
    ]
    with running(list(servers.values())), ExitStack() as stack:
        for client in clients:
            stack.callback(client.kill)
        yield servers, clients, ledger


def run(folder: Path, size: int, seed: int) -> Report:
    """``size`` seconds without the server that comes back."""
    report = Report(
        "hospital",
        f"{CLIENTS} clients and 3 servers; one is killed for {size} s, another for good in the middle of that",
        "every client goes on publishing by itself, and nothing acknowledged is lost but what only the lost disk has",
        size,
        seed,
    )
    history = History()
    history.note("run", part="hospital", seed=seed, outage_s=size)
    with study(folder, training_s=min(LONGEST_TRAINING_S, size / 60)) as (servers, clients, ledger):
        names = {server.url: name for name, server in servers.items()}
        history.note("ledger", transaction=ledger)
        for client in clients:
            client.start()
        _go_on(clients, names, for_s=size / 6)
        killed_s: dict[str, float] = {}
        for name in (AWAY, LOST):
            servers[name].kill()
            killed_s[name] = time.monotonic()
            history.note("kill", server=name)
            _go_on(clients, names, for_s=size / 2)
        servers[AWAY].start()
        back_s = time.monotonic()
        history.note("started", server=AWAY)
        _go_on(clients, names, for_s=size / 4)
        report.broken += [end for client in clients if (end := client.ended()) is not None]
        statuses = [client.stop() for client in clients]
        stopped_s = time.monotonic()
        if statuses != [0] * CLIENTS:
            report.broken.append(f"clients that were told to stop ended with {statuses}")
        by_client = [client.events(names) for client in clients]
        history.events = sorted([*history.events, *(each for events in by_client for each in events)], key=_at_s)
        report.figures["settled_in_s"] = _settled(servers[STAYS], servers[AWAY])
        shown = {name: set(servers[name].show(history)) for name in (STAYS, AWAY)}
        shown[LOST] = _shown_by_disk(servers[LOST], folder / "lost-disk", history)
    moments = {
        f"without {AWAY}": (killed_s[AWAY], killed_s[LOST]),
        f"without {AWAY} and {LOST}": (killed_s[LOST], back_s),
        f"without {LOST}": (back_s, stopped_s),
    }
    report.figures |= _went_on(by_client, moments, report.broken)
    report.figures |= _kept(history, shown, killed_s[LOST], report.broken)
    # Every server is held to what it acknowledged itself, the lost one's disk included, and the survivors to more
    # in ``_kept``: what only the lost disk has cannot be everywhere.
    report.judge(history, folder, everywhere=False)
    report.broken += [
        f"{path.name} has a traceback: {text[text.index('Traceback') :][:1500]}"
        for path in sorted(folder.glob("*.log"))
        if "Traceback" in (text := path.read_text(errors="replace"))
    ]
    return report


def _at_s(event: Event) -> float:
    moment: float = event["at_s"]
    return moment


def _go_on(clients: Sequence[ClientProcess], names: dict[str, str], *, for_s: float) -> None:
    """Let time pass: so long, and until every client has published meanwhile, as far as that takes a minute."""
    began_s = time.monotonic()
    time.sleep(for_s)
    while time.monotonic() < began_s + for_s + PUBLISHES_WITHIN_S:
        events = [client.events(names) for client in clients]
        if all(any(each["event"] == "acknowledged" and each["at_s"] > began_s for each in own) for own in events):
            return
        ends = [end for client in clients if (end := client.ended()) is not None]
        assert not ends, ends[0]
        time.sleep(0.1)


def _settled(*servers: ServerProcess) -> float:
    """Wait until all show the same; returns how long that took."""
    began_s = time.monotonic()
    while time.monotonic() < began_s + SETTLE_S:
        first, *others = [server.listed().keys() for server in servers]
        if all(first == other for other in others):
            break
        time.sleep(0.2)
    return round(time.monotonic() - began_s, 1)


def _shown_by_disk(lost: ServerProcess, copy: Path, history: History) -> set[TxId]:
    """What the lost server's disk holds, by a server over a copy of it that speaks to nobody."""
    shutil.copytree(lost.folder, copy)
    with ServerProcess(copy, lost.name) as server:
        return set(server.show(history))


def _went_on(
    by_client: Sequence[Sequence[Event]], moments: dict[str, tuple[float, float]], broken: list[str]
) -> dict[str, Any]:
    """Publications of each client in each of the spans, and the longest that a client was without one."""
    figures: dict[str, Any] = {"publications": {}}
    gaps = []
    for number, events in enumerate(by_client):
        acknowledged_s = [event["at_s"] for event in events if event["event"] == "acknowledged"]
        gaps.append(max((after - before for before, after in pairwise(acknowledged_s)), default=0.0))
        for what, (start_s, end_s) in moments.items():
            count = sum(start_s < moment < end_s for moment in acknowledged_s)
            figures["publications"].setdefault(what, []).append(count)
            if not count:
                broken.append(f"client {number} published nothing {what}")
    figures["seconds"] = {what: round(end_s - start_s, 1) for what, (start_s, end_s) in moments.items()}
    figures["longest_pause_s"] = quantiles(gaps, digits=1)
    return figures


def _kept(history: History, shown: dict[str, set[TxId]], lost_s: float, broken: list[str]) -> dict[str, Any]:
    """Survivors are equal and hold all that anybody acknowledged, but for what the lost server took along."""
    if shown[STAYS] != shown[AWAY]:
        broken.append(f"the survivors differ in {len(shown[STAYS] ^ shown[AWAY])} transactions")
    by_server: dict[str, dict[str, float]] = {STAYS: {}, AWAY: {}, LOST: {}}
    for event in history.events:
        if event["event"] == "acknowledged":
            by_server[event["server"]].setdefault(event["transaction"], event["at_s"])
    survivors = shown[STAYS] & shown[AWAY]
    elsewhere = by_server[STAYS].keys() | by_server[AWAY].keys()
    broken += [f"lost: {each}, which a survivor acknowledged" for each in sorted(elsewhere - survivors)]
    only_there = sorted(by_server[LOST].keys() - survivors)
    broken += [
        f"lost for good: {each} is not on the lost disk either" for each in only_there if each not in shown[LOST]
    ]
    ages_s = [round(lost_s - by_server[LOST][each], 3) for each in only_there]
    broken += [
        f"{each} was acknowledged {age_s} s before its server was lost, and had not gone to another"
        for each, age_s in zip(only_there, ages_s, strict=True)
        if age_s > GOSSIPED_WITHIN_S
    ]
    return {
        "acknowledged_by": {name: len(transactions) for name, transactions in by_server.items()},
        "survivors_hold": len(survivors),
        "only_on_the_lost_server": len(only_there),
        "only_on_the_lost_server_acknowledged_s_before": ages_s,
        "only_on_the_lost_server_and_on_its_disk": sum(each in shown[LOST] for each in only_there),
    }
