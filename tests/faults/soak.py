"""Two hours of ordinary work: three servers of two processes each, clients that come and go, and pruning, on two cores.

Nothing is killed. What a server needs must not grow with what it has been through: memory, open files, the database's
log; and its disk holds what the policy of pruning says, not all that was ever published. One server keeps models in
rows of SQLite, one in files, one in PostgreSQL. Clients are the real SDK in threads of one process: each place has an
author who publishes for minutes, is away for minutes, comes back to whichever server, or leaves for good to another.
"""

import http.client
import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil
from numpy.typing import NDArray

from fl_client import Participant, ParticipantState
from fl_client.training import Arrays, Hints, TrainingResult
from fl_core.types import digest_of
from fl_core.wire import v1
from ledger_server.store import schema
from tests.faults.harness import forked
from tests.faults.harness.client import EVENTS, NotingClient
from tests.faults.harness.ending import interruptible
from tests.faults.harness.history import Event, History
from tests.faults.harness.peers import introduce
from tests.faults.harness.servers import ServerProcess, running
from tests.faults.harness.writers import layout_with
from tests.faults.report import Report
from tests.postgres import PostgresServer, own_server
from tests.tiny_trainer import TinyTrainer

WORKERS: Final = 2
PLACES: Final = 16
LAYOUT: Final = layout_with(100, 250)
ROWS, FILES, POSTGRESQL = "rows", "files", "postgresql"
CLIENTS = "clients"
STAYS_S, AWAY_S, EVERY_S, LEAVES = (120.0, 600.0), (30.0, 240.0), (4.0, 10.0), 0.2
"""A client's stay, its absence, the time from one of its steps to the next, and how often it leaves for good."""
KEEP_S, PRUNE_EVERY_S = 300.0, 60.0
SLACK_S = 60.0
"""Beyond the policy's times, for what is just being received or pruned."""
SAMPLE_S = 20.0
IN_FULL_S = 600.0
"""In runs that are shorter than this, stays, absences and what is kept are shorter in proportion."""
SAYS_SOMETHING_S = 1800.0
"""Of shorter runs it is not judged whether anything grows."""
SETTLE_S = 120.0
LEAST_SHARE = 0.02
"""The growth within the second half that is none, as a share of the level; likewise what is within two standard
deviations of the values about their line."""
DAY_S: Final = 86_400.0
SHOWN_POINTS: Final = 40
MIB: Final = 1 << 20


class WanderingTrainer(TinyTrainer):
    """Adds a step of random direction and equal length: no two models are alike, and none is refused for its step."""

    def __init__(self, seed: int) -> None:
        super().__init__(1.0, layout=LAYOUT)
        self._rng = np.random.default_rng(seed)

    def train(self, arrays: Arrays, *, epochs: int, hints: Hints | None = None) -> TrainingResult:
        """One random step."""
        trained: dict[str, NDArray[np.float32]] = {
            name: array + self._rng.choice((np.float32(-0.1), np.float32(0.1)), array.shape)
            for name, array in arrays.items()
        }
        return TrainingResult(trained, 10, {"train_loss": 1.0})


# -- the clients' process ---------------------------------------------------------------------------


def crowd(folder: Path, urls: Sequence[str], pace: float, seed: int) -> int:
    """Take all places until SIGTERM.

    Args:
        folder: For the authors' folders.
        urls: Servers.
        pace: What stays and absences are multiplied by.
        seed: Of all that is random.
    """
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    places = [
        threading.Thread(
            target=_take, args=(folder / str(number), urls, pace, random.Random(f"{seed} {number}"), stopping)
        )
        for number in range(PLACES)
    ]
    for place in places:
        place.start()
    while not stopping.wait(1.0):  # a signal that came to another thread is seen when this one wakes
        pass
    for place in places:
        place.join()
    return 0


def _take(place: Path, urls: Sequence[str], pace: float, rng: random.Random, stopping: threading.Event) -> None:
    author = 0
    while not stopping.is_set():
        order = rng.sample(urls, k=len(urls))
        _stay(place / f"author-{author}", order, pace, rng, stopping)
        author += rng.random() < LEAVES
        stopping.wait(pace * rng.uniform(*AWAY_S))


def _stay(folder: Path, urls: Sequence[str], pace: float, rng: random.Random, stopping: threading.Event) -> None:
    stays_s, every_s = pace * rng.uniform(*STAYS_S), max(pace, 0.1) * rng.uniform(*EVERY_S)
    with ParticipantState(folder) as state, NotingClient(urls, key=state.key) as client:
        client.events = folder / EVENTS
        client.note("stay", server=urls[0])
        participant = Participant(client, WanderingTrainer(rng.getrandbits(32)), state)

        def end() -> None:
            stopping.wait(stays_s)
            participant.stop()

        threading.Thread(target=end, daemon=True).start()
        participant.run(every_s=every_s)


# -- what is measured -------------------------------------------------------------------------------


def processes(root: int) -> dict[str, float]:
    """What a process and its descendants have: memory in bytes, open files, threads, CPU seconds.

    ``anonymous_bytes`` is what is in no file: heaps and stacks; of ``pss_bytes`` what several share is counted in parts.
    """
    found: Counter[str] = Counter()
    with suppress(psutil.NoSuchProcess):
        top = psutil.Process(root)
        for each in (top, *top.children(recursive=True)):
            with suppress(psutil.NoSuchProcess, OSError):
                rollup = Path(f"/proc/{each.pid}/smaps_rollup").read_text(encoding="ascii")
                kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in rollup.splitlines()[1:]}
                found["pss_bytes"] += kilobytes["Pss"] * 1024
                found["anonymous_bytes"] += kilobytes["Anonymous"] * 1024
                found["files"] += each.num_fds()
                found["threads"] += each.num_threads()
                times = each.cpu_times()
                found["cpu_s"] += times.user + times.system  # type: ignore[assignment]
                found["processes"] += 1
    return dict(found)


def bytes_under(folder: Path) -> int:
    """Size of all files below a folder."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.stat().st_size if path.is_file() else 0
    return total


def held(server: ServerProcess) -> tuple[int, int]:
    """Transactions that a server shows, and those of them whose models it has."""
    costs = server.json(v1.COSTS)
    return costs["transactions"], costs["transactions"] - costs["pruned_models"]


@dataclass
class Soak:
    """Servers, the clients' process, and the database of one of the servers."""

    servers: Mapping[str, ServerProcess]
    clients: BaseProcess
    postgresql: PostgresServer

    def sample(self) -> dict[str, dict[str, float]]:
        """What each has now."""
        found: dict[str, dict[str, float]] = {}
        for name, server in self.servers.items():
            each = processes(server.pid)
            each["transactions"], each["held"] = held(server)
            if name == POSTGRESQL:
                each["log_bytes"] = bytes_under(self.postgresql.data / "pg_wal")
                each["disk_bytes"] = bytes_under(self.postgresql.data / "base") + bytes_under(server.folder)
            else:
                log = server.folder / "ledger.sqlite3-wal"
                each["log_bytes"] = log.stat().st_size if log.exists() else 0
                each["disk_bytes"] = bytes_under(server.folder) - each["log_bytes"]
            found[name] = each
        assert self.postgresql.process is not None
        assert self.clients.pid is not None
        found["its database"] = processes(self.postgresql.process.pid)
        found[CLIENTS] = processes(self.clients.pid)
        return found


@dataclass(frozen=True, slots=True)
class Growth:
    """A straight line through values.

    Attributes:
        level: Their mean.
        grown: What the line rises by, from its beginning to its end.
        noise: Standard deviation of the values about it.
    """

    level: float
    grown: float
    noise: float

    @classmethod
    def of(cls, at_s: Sequence[float], values: Sequence[float]) -> "Growth":
        """By least squares."""
        slope, start = np.polyfit(at_s, values, 1)
        noise = float(np.std(np.asarray(values) - (slope * np.asarray(at_s) + start)))
        return cls(float(np.mean(values)), float(slope) * (at_s[-1] - at_s[0]), noise)

    @property
    def is_flat(self) -> bool:
        """Whether it rises by no more than ``LEAST_SHARE`` or than two standard deviations of the noise."""
        return self.grown <= max(LEAST_SHARE * self.level, 2 * self.noise)


MUST_BE_FLAT: Final = ("anonymous_bytes", "pss_bytes", "files", "threads", "log_bytes")
AN_UPDATE_AT_MOST: Final = LAYOUT.nbytes / 5
"""Bytes that the disk may grow by with each update, beside the models that are held: its header, signatures and evidence (some
9 kB where it names 32 candidates), which stay for ever, and indexes."""


def growths(samples: Sequence[Mapping[str, Any]], broken: list[str]) -> dict[str, dict[str, dict[str, float]]]:
    """Of each figure of each process its level in the second half, and what it grew by in an hour, per cent and noise."""
    second = samples[len(samples) // 2 :]
    at_s = [each["at_s"] for each in second]
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name in [name for name in second[0] if name != "at_s"]:
        for figure in [figure for figure in (*MUST_BE_FLAT, "disk_bytes") if figure in second[0][name]]:
            growth, unit = Growth.of(at_s, [each[name][figure] for each in second]), 1
            words = figure
            if figure.endswith("_bytes"):
                unit, words = MIB, figure.replace("_bytes", "_mib")
            hours = (at_s[-1] - at_s[0]) / 3600
            found.setdefault(name, {})[words] = {
                "level": round(growth.level / unit, 2),
                "per_hour": round(growth.grown / unit / hours, 2),
                "per_cent_per_hour": round(100 * growth.grown / max(growth.level, 1) / hours, 2),
                "noise": round(growth.noise / unit, 2),
            }
            if figure in MUST_BE_FLAT and not growth.is_flat:
                broken.append(f"{name}: {words} grew by {growth.grown / unit:.2f} from about {growth.level / unit:.1f}")
    return found


def stays_of_an_update(samples: Sequence[Mapping[str, Any]], broken: list[str]) -> dict[str, int]:
    """By how many bytes each server's disk grew with an update in the second half, the models that it held apart."""
    second, found = samples[len(samples) // 2 :], {}
    for name in [name for name, each in second[0].items() if name != "at_s" and "held" in each]:
        beside = [each[name]["disk_bytes"] - LAYOUT.nbytes * each[name]["held"] for each in second]
        slope, _ = np.polyfit([each[name]["transactions"] for each in second], beside, 1)
        found[name] = round(float(slope))
        if slope > AN_UPDATE_AT_MOST:
            broken.append(f"{name}: the disk grew by {slope:.0f} bytes with each update")
    return found


# -- the run ----------------------------------------------------------------------------------------


@contextmanager
def study(folder: Path, *, pace: float, seed: int) -> Iterator[tuple[Soak, str]]:
    """Everything, running; and the ledger's id."""
    with own_server(durable=True) as postgresql:
        url = postgresql.url.render_as_string(hide_password=False)
        schema.upgrade(url)
        settings = {
            "DAG_ACFL_WORKERS": str(WORKERS),
            "DAG_ACFL_PRUNE__KEEP_DAYS": str(pace * KEEP_S / DAY_S),
            "DAG_ACFL_PRUNE__EVERY_S": str(pace * PRUNE_EVERY_S),
        }
        servers = {
            ROWS: ServerProcess(folder / ROWS, ROWS, blobs="database", environment=settings),
            FILES: ServerProcess(folder / FILES, FILES, blobs="directory", environment=settings),
            POSTGRESQL: ServerProcess(folder / POSTGRESQL, POSTGRESQL, database_url=url, environment=settings),
        }
        introduce(list(servers.values()))
        (ledger,) = {server.found(LAYOUT) for server in servers.values()}
        with running(list(servers.values())):
            urls = [server.url for server in servers.values()]
            clients = forked.start(crowd, folder, urls, pace, seed, log=folder / "clients.log")
            try:
                yield Soak(servers, clients, postgresql), ledger
            finally:
                clients.kill()
                clients.join()


def run(folder: Path, size: int, seed: int) -> Report:
    """``size`` seconds."""
    report = Report(
        "soak",
        f"3 servers with {WORKERS} processes each (models in rows, in files, in PostgreSQL) and {PLACES} clients that come, "
        f"go, move to another server and leave for good; models of 0.1 MB are kept for {KEEP_S:.0f} s",
        "memory, open files and the database's log are flat in the second half, the disk holds what pruning keeps, and "
        "nothing acknowledged is lost",
        size,
        seed,
    )
    history, stopping, pace = History(), threading.Event(), min(1.0, size / IN_FULL_S)
    history.note("run", part="soak", seed=seed, seconds=size)
    with interruptible(stopping), study(folder, pace=pace, seed=seed) as (soak, ledger):
        history.note("ledger", transaction=ledger)
        began_s = time.monotonic()
        samples = _sampled(soak, folder, stopping, for_s=size, every_s=min(SAMPLE_S, size / 10))
        soak.clients.terminate()
        soak.clients.join(60)
        ended_s = time.monotonic()
        if soak.clients.exitcode != 0:
            report.broken.append(f"the clients ended with {soak.clients.exitcode}")
            with suppress(ProcessLookupError):  # who goes on publishing while servers are compared tells nothing more
                assert soak.clients.pid is not None
                os.killpg(soak.clients.pid, signal.SIGKILL)
        if stopping.is_set():
            report.size, report.figures["ended_early_of_s"] = round(ended_s - began_s), size
        report.figures["settled_in_s"] = _settled(soak)
        events = _events(folder, {server.url: name for name, server in soak.servers.items()})
        history.events = sorted([*history.events, *events], key=lambda event: float(event["at_s"]))
        shown = {name: server.show(history, models=False) for name, server in soak.servers.items()}
        _hold_to_policy(soak, shown, events, ended_s=ended_s, pace=pace, report=report)
        answers = {name: _answers(server) for name, server in soak.servers.items()}
    report.judge(history, folder)
    report.figures |= {
        "seconds": round(ended_s - began_s),
        "authors": len({event["author"] for event in events}),
        "stays": sum(event["event"] == "stay" for event in events),
        "answers": answers,
        "most_behind": max(_behind(each) for each in samples),
        "cpu_share_of_one_core": {
            name: round((samples[-1][name]["cpu_s"] - samples[0][name]["cpu_s"]) / (ended_s - began_s), 3)
            for name in samples[-1]
            if name != "at_s"
        },
    }
    growing: list[str] = []
    report.figures["second_half"] = growths(samples, growing)
    report.figures["disk_bytes_of_an_update_beside_its_model"] = stays_of_an_update(samples, growing)
    if report.size >= SAYS_SOMETHING_S:
        report.broken += growing
    report.figures["series"] = _series(samples)
    report.broken += [
        f"{path.name} has a traceback: {text[text.index('Traceback') :][:1500]}"
        for path in sorted(folder.glob("*.log"))
        if "Traceback" in (text := path.read_text(errors="replace"))
    ]
    report.broken += [
        f"{name} answered {count} times {status}"
        for name, statuses in answers.items()
        for status, count in statuses.items()
        if status.startswith("5")
    ]
    return report


def _sampled(
    soak: Soak, folder: Path, stopping: threading.Event, *, for_s: float, every_s: float
) -> list[dict[str, Any]]:
    """Look at everything again and again, for so long and until each server has pruned something; each is kept in a file."""
    samples: list[dict[str, Any]] = []
    began_s = time.monotonic()
    while not stopping.is_set():
        now_s = time.monotonic() - began_s
        sample = {"at_s": round(now_s, 1), **soak.sample()}
        samples.append(sample)
        with (folder / "samples.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(sample) + "\n")
        has_pruned = all(sample[name]["held"] < sample[name]["transactions"] for name in soak.servers)
        if now_s >= for_s and (has_pruned or now_s >= for_s + SETTLE_S):
            break
        stopping.wait(every_s)
    return samples


def _behind(sample: Mapping[str, Any]) -> int:
    """How many transactions the last of the servers lacked of those of the first."""
    counts = [each["transactions"] for name, each in sample.items() if name != "at_s" and "transactions" in each]
    return int(max(counts) - min(counts))


def _settled(soak: Soak) -> float:
    """Wait until all show the same; returns how long that took."""
    began_s = time.monotonic()
    while time.monotonic() < began_s + SETTLE_S:
        first, *others = [server.listed().keys() for server in soak.servers.values()]
        if all(first == other for other in others):
            break
        time.sleep(0.5)
    return round(time.monotonic() - began_s, 1)


def _events(folder: Path, names: Mapping[str, str]) -> list[Event]:
    """What the clients noted, with servers by their names."""
    events: list[Event] = []
    for path in sorted(folder.glob(f"*/author-*/{EVENTS}")):
        for line in path.read_text(encoding="utf-8").splitlines():
            event = {**json.loads(line), "author": f"{path.parent.parent.name} {path.parent.name}"}
            if event.get("server"):
                event["server"] = names[event["server"]]
            events.append(event)
    return events


def _hold_to_policy(
    soak: Soak,
    shown: Mapping[str, Mapping[Any, Mapping[str, Any]]],
    events: Sequence[Event],
    *,
    ended_s: float,
    pace: float,
    report: Report,
) -> None:
    """Each server has the models that it must keep, whole, and of older ones each author's newest and no others."""
    acknowledged = [event for event in events if event["event"] == "acknowledged"]
    newest = {event["author"]: event["transaction"] for event in acknowledged}
    young = [each["transaction"] for each in acknowledged if each["at_s"] > ended_s - pace * KEEP_S / 2]
    until_s = ended_s - pace * (KEEP_S + PRUNE_EVERY_S) - SLACK_S
    old = [each["transaction"] for each in acknowledged if each["at_s"] < until_s]
    old = sorted(set(old) - set(newest.values()))
    may_be = len(acknowledged) - len(old) + 1
    report.figures["models_that_may_be_held"] = may_be
    report.figures["models_held"] = {name: held(server)[1] for name, server in soak.servers.items()}
    looked_at = random.Random(report.seed).sample(old, k=min(300, len(old)))
    report.figures["looked_for"] = {"young": len(young), "old": len(looked_at)}
    for name, server in soak.servers.items():
        for transaction in young:
            item = shown[name].get(transaction)
            if item is None:
                continue  # it is lost, as the history says
            status, body = server.ask(item["model"]["href"])
            if status != http.client.OK or digest_of(body) != item["model"]["digest"]:
                report.broken.append(
                    f"{name}: the model of {transaction}, which is to be kept, is not whole ({status})"
                )
        there = [each for each in looked_at if server.ask(shown[name][each]["model"]["href"])[0] == http.client.OK]
        report.broken += [f"{name}: the model of {each} should have been pruned" for each in there]
        count = report.figures["models_held"][name]
        if count > may_be:
            report.broken.append(f"{name} holds {count} models, of which only {may_be} may be")
        if count == held(server)[0]:
            report.broken.append(f"{name} has pruned nothing; the run shows nothing")


def _answers(server: ServerProcess) -> dict[str, int]:
    """How often a server answered with each status."""
    found: Counter[str] = Counter()
    for labels, count in server.metrics("requests_total"):
        found[labels["status"]] += count
    return dict(sorted(found.items()))


def _series(samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A curve for each figure, of at most ``SHOWN_POINTS`` of the samples; bytes in MiB."""
    every = max(1, len(samples) // SHOWN_POINTS)
    thinned = samples[::every]
    curves: dict[str, Any] = {"at_s": [round(each["at_s"]) for each in thinned]}
    for name in [name for name in samples[0] if name != "at_s"]:
        for figure in samples[0][name]:
            if figure == "cpu_s":
                continue
            values = [each[name].get(figure, 0) for each in thinned]
            in_mib = figure.endswith("_bytes")
            words = figure.replace("_bytes", "_mib")
            curves.setdefault(name, {})[words] = " ".join(f"{v / MIB:.1f}" if in_mib else f"{v:g}" for v in values)
    return curves
