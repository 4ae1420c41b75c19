"""Servers that lose sight of each other, again and again, while clients select and publish on all sides.

After each healing all servers must show the same within two pull intervals of gossip, and at no moment may any show
a transaction without its parents.
"""

import http.client
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from fl_core.sync.limits import GossipLimits
from fl_core.types import TxId
from fl_core.wire import v1
from tests.builders import LAYOUT
from tests.faults.harness.history import History
from tests.faults.harness.namespaces import Network, apart
from tests.faults.harness.observer import Observer
from tests.faults.harness.peers import introduce
from tests.faults.harness.servers import ServerProcess, approvals_between_authors, running
from tests.faults.harness.writers import Author, Writer, stop
from tests.faults.report import Report, quantiles
from tests.postgres import databases

PORT = 8000
WRITERS = 4
WRITES_PER_S = 3.0
EQUAL_WITHIN_S = 2 * GossipLimits().pull_interval_s
GIVEN_UP_S = 60.0
LOOK_EVERY = 25
"""Faults between two looks at everything that the servers show; their counts are held to it after each."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Servers of one ledger; the last ``on_postgresql`` of them keep it there, the others in SQLite."""

    name: str
    size: int
    on_postgresql: int = 0


CLUSTERS = (Cluster("three", 3), Cluster("five", 5, on_postgresql=2))


@dataclass(frozen=True, slots=True)
class Scene:
    """What a fault acts on, and for how long."""

    network: Network
    servers: Sequence[ServerProcess]
    rng: random.Random
    lasts_s: float

    def some(self) -> list[int]:
        """A server or more, but not all."""
        everyone = range(len(self.servers))
        return self.rng.sample(everyone, self.rng.randint(1, len(self.servers) - 1))

    def others(self, some: Sequence[int]) -> list[int]:
        return [number for number in range(len(self.servers)) if number not in some]

    def cut(self, here: Sequence[int], there: Sequence[int], *, both_ways: bool = True) -> None:
        """Part two sides; silently, or so that a connection fails at once, as it comes."""
        silently = self.rng.random() < 0.7
        for one, other in product(here, there):
            self.network.cut(one, other, silently=silently)
            if both_ways:
                self.network.cut(other, one, silently=silently)


def split(scene: Scene) -> None:
    """Two sides that do not hear each other."""
    some = scene.some()
    scene.cut(some, scene.others(some))
    time.sleep(scene.lasts_s)


def one_way(scene: Scene) -> None:
    """One side hears the other, and is not heard."""
    some = scene.some()
    scene.cut(some, scene.others(some), both_ways=False)
    time.sleep(scene.lasts_s)


def flapping(scene: Scene) -> None:
    """Cut and healed several times a second."""
    some = scene.some()
    until = time.monotonic() + scene.lasts_s
    while time.monotonic() < until:
        scene.cut(some, scene.others(some))
        time.sleep(scene.rng.uniform(0.1, 0.8))
        scene.network.heal()
        time.sleep(scene.rng.uniform(0.05, 0.4))


def isolation(scene: Scene) -> None:
    """One server alone, the others together."""
    one = [scene.rng.randrange(len(scene.servers))]
    scene.cut(one, scene.others(one))
    time.sleep(scene.lasts_s)


def swizzle(scene: Scene) -> None:
    """Cut off one by one, in any order, and let back one by one, in another."""
    everyone = list(range(len(scene.servers)))
    step_s = scene.lasts_s / (2 * len(everyone))
    for one in scene.rng.sample(everyone, len(everyone)):
        scene.cut([one], scene.others([one]))
        time.sleep(step_s)
    back: list[int] = []
    for one in scene.rng.sample(everyone, len(everyone)):
        for other in back:
            scene.network.mend(one, other)
            scene.network.mend(other, one)
        back.append(one)
        time.sleep(step_s)


def pause(scene: Scene) -> None:
    """A server that is there and does not answer (SIGSTOP)."""
    server = scene.rng.choice(scene.servers)
    os.killpg(server.pid, signal.SIGSTOP)
    try:
        time.sleep(scene.lasts_s)
    finally:
        os.killpg(server.pid, signal.SIGCONT)


def kill(scene: Scene) -> None:
    """``kill -9``, and a start when it was missed for a while."""
    server = scene.rng.choice(scene.servers)
    server.kill()
    time.sleep(scene.lasts_s)
    server.start()


def kill_apart(scene: Scene) -> None:
    """Two sides, and on one of them a ``kill -9`` and a start before they heal."""
    some = scene.some()
    scene.cut(some, scene.others(some))
    time.sleep(scene.lasts_s / 2)
    server = scene.servers[scene.rng.choice(some)]
    server.kill()
    time.sleep(scene.lasts_s / 2)
    server.start()


KINDS: Mapping[str, Callable[[Scene], None]] = {
    "split": split,
    "one way": one_way,
    "flapping": flapping,
    "isolation": isolation,
    "swizzle": swizzle,
    "pause": pause,
    "kill": kill,
    "kill apart": kill_apart,
}


@dataclass
class Run:
    """One cluster's run: its servers, who writes and who reads, and what came of it."""

    cluster: Cluster
    network: Network
    servers: Sequence[ServerProcess]
    ledger: TxId
    seed: int
    history: History = field(default_factory=History)
    healed_s: dict[str, list[float]] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    answers: dict[int, int] = field(default_factory=dict)
    were_apart: int = 0
    approvals: int = 0

    def __post_init__(self) -> None:
        self.history.note("run", part="partitions", cluster=self.cluster.name, seed=self.seed)
        self.history.note("ledger", transaction=self.ledger)
        self.observers = [Observer(server, self.seed) for server in self.servers]
        size = self.cluster.size
        self.authors = [Author(10_000 + number, self.ledger, LAYOUT) for number in range(max(WRITERS, size))]

    def go(self, faults: Sequence[str], lasts_s: tuple[float, float]) -> None:
        """One fault after the other, with a healing and a look after each."""
        rng = random.Random(f"{self.seed} {self.cluster.name}")
        for observer in self.observers:
            observer.start()
        try:
            for number, kind in enumerate(faults, start=1):
                writers = self._write()
                scene = Scene(self.network, self.servers, rng, rng.uniform(*lasts_s))
                self.history.note("fault", kind=kind, lasts_s=scene.lasts_s)
                try:
                    KINDS[kind](scene)
                    self.network.heal()
                    healed_s = time.monotonic()
                    self.history.note("healed")
                    # At once: before the writers have ended, on a busy machine, all may be equal again.
                    self.were_apart += len(self._held()) > 1
                finally:
                    stop(writers)
                self._converge(kind, healed_s)
                for status, count in ((s, c) for writer in writers for s, c in writer.statuses.items()):
                    self.answers[status] = self.answers.get(status, 0) + count
                if number % LOOK_EVERY == 0:
                    self._look(models=False)
        finally:
            for observer in self.observers:
                observer.stop()
        self._look(models=True)
        self.broken += [fault for observer in self.observers for fault in observer.faults]

    def _write(self) -> list[Writer]:
        writers = [
            Writer(
                author,
                self.history,
                host=server.host,
                port=server.port,
                server=server.name,
                pause_s=1 / WRITES_PER_S,
                stubborn=True,
            )
            for author, server in zip(self.authors, self._servers_in_turn(), strict=False)
        ]
        for writer in writers:
            writer.start()
        return writers

    def _servers_in_turn(self) -> Iterator[ServerProcess]:
        while True:
            yield from self.servers

    def _converge(self, kind: str, healed_s: float) -> None:
        """Wait until all show the same, and as much as was acknowledged."""
        held = self._held()
        while len(held) > 1 or None in held:
            if time.monotonic() > healed_s + GIVEN_UP_S:
                self.broken.append(f"{kind}: servers had not become equal after {GIVEN_UP_S:.0f} s: {held}")
                return
            time.sleep(0.05)
            held = self._held()
        took_s = time.monotonic() - healed_s
        count = max(found[0] for found in held if found is not None)
        self.history.note("equal", kind=kind, after_s=round(took_s, 3), transactions=count)
        self.healed_s.setdefault(kind, []).append(took_s)
        if took_s > EQUAL_WITHIN_S:
            self.broken.append(f"{kind}: servers became equal only {took_s:.1f} s after the healing")
        verdict = self.history.verdict(everywhere=False)
        if not verdict.acknowledged <= count - 1 <= verdict.attempted:
            self.broken.append(
                f"{kind}: all show {count - 1} transactions of {verdict.acknowledged} acknowledged and "
                f"{verdict.attempted} attempted"
            )

    def _held(self) -> set[tuple[int, str] | None]:
        """What is shown, by whomever; one thing where all are equal."""
        return {_held(server) for server in self.servers}

    def _look(self, *, models: bool) -> None:
        with ThreadPoolExecutor(len(self.servers)) as pool:
            shown = list(pool.map(lambda server: server.show(self.history, models=models), self.servers))
        self.approvals = approvals_between_authors(shown[0])

    def figures(self) -> dict[str, object]:
        """For the report."""
        times = [took for each in self.healed_s.values() for took in each]
        return {
            "faults": len(times),
            "faults_that_left_servers_unequal": self.were_apart,
            "equal_after_s": quantiles(times),
            "equal_after_s_by_kind": {
                kind: {"faults": len(each), **quantiles(each)} for kind, each in sorted(self.healed_s.items())
            },
            "approvals_between_authors": self.approvals,
            "transactions_read_by_observers": sum(observer.reads for observer in self.observers),
            "writers_were_answered": dict(sorted(self.answers.items())),
        }


def _held(server: ServerProcess) -> tuple[int, str] | None:
    """How much a server shows and the digest of its tips; None while it does not answer."""
    with suppress(OSError, http.client.HTTPException, AssertionError):
        tips = server.json(v1.TIPS)
        return tips["transactions"], tips["digest"]
    return None


@contextmanager
def cluster_in(folder: Path, cluster: Cluster, seed: int) -> Iterator[Run]:
    """Servers that are up, each in a namespace of its own, peers of one another."""
    with ExitStack() as stack:
        network = stack.enter_context(apart(cluster.size))
        postgresql = stack.enter_context(databases()) if cluster.on_postgresql else None
        servers = [
            ServerProcess(
                folder / name, name, host=network.address(number), port=PORT, namespace=network.namespace(number)
            )
            for number, name in enumerate(f"server-{number}" for number in range(cluster.size))
        ]
        for server in servers[cluster.size - cluster.on_postgresql :] if postgresql is not None else ():
            server.database_url = stack.enter_context(postgresql.fresh())
        introduce(servers)
        (ledger,) = {server.found() for server in servers}
        stack.enter_context(running(servers))
        yield Run(cluster, network, servers, ledger, seed)


def kinds_of(size: int, seed: int) -> list[str]:
    """``size`` faults in which every kind occurs equally often, in any order."""
    rng = random.Random(seed)
    faults: list[str] = []
    while len(faults) < size:
        faults += rng.sample(list(KINDS), len(KINDS))
    return faults[:size]


def run(folder: Path, size: int, seed: int, lasts_s: tuple[float, float] = (2.0, 8.0)) -> Report:
    """``size`` faults, shared between the clusters, which run at the same time."""
    report = Report(
        "partitions",
        "splits, one-way and flapping links, isolation, swizzles, pauses and kills of 3 and of 5 servers, "
        f"{lasts_s[0]:g} to {lasts_s[1]:g} s each, with clients that select and publish on all sides",
        f"all servers are equal at most {EQUAL_WITHIN_S:g} s after each healing, nothing is lost or unexpected, and no "
        "transaction is ever shown without its parents",
        size,
        seed,
    )
    faults = kinds_of(size, seed)

    with ExitStack() as stack, ThreadPoolExecutor(len(CLUSTERS)) as pool:
        # One after the other: Alembic does not migrate two databases of one process at once.
        runs = [stack.enter_context(cluster_in(folder / cluster.name, cluster, seed)) for cluster in CLUSTERS]
        shares = [faults[number :: len(CLUSTERS)] for number in range(len(CLUSTERS))]
        list(pool.map(lambda made, share: made.go(share, lasts_s), runs, shares))
    for made in runs:
        verdict = report.judge(made.history, folder, made.cluster.name, **made.figures())
        report.broken += [f"{made.cluster.name}: {fault}" for fault in made.broken]
        if verdict.acknowledged <= size or made.were_apart < len(made.healed_s) / 2:
            report.broken.append(f"{made.cluster.name}: servers hardly differed at healings; the run shows nothing")
        if made.approvals < verdict.acknowledged / 2:
            report.broken.append(f"{made.cluster.name}: authors hardly approved one another; the run shows nothing")
    return report
