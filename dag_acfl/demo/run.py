"""One demo from beginning to end: drives ``serve`` and ``client run`` as a user would, and measures what came of it."""

import csv
import json
import shutil
import threading
import time
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Final

import numpy as np
from rich.console import Console

from dag_acfl.demo import client
from dag_acfl.demo.baselines import accuracies, baseline, build_demo_world
from dag_acfl.demo.figures import (
    CostFigure,
    DemoFigures,
    MethodFigure,
    ProofFigure,
    cluster_figure,
    network_figure,
    updates_of,
)
from dag_acfl.demo.panel import next_steps, result_panel
from dag_acfl.demo.plots import plot_accuracy, plot_dag
from dag_acfl.demo.processes import Command, DemoError, stop
from dag_acfl.demo.progress import Listener, Progress
from dag_acfl.demo.servers import Servers
from dag_acfl.demo.view import LiveView, View
from dag_acfl.sources import open_source
from fl_client.client import LedgerClient
from fl_client.state import ParticipantState
from fl_core.dag.genesis import Component, Genesis
from fl_core.models import encode_flat, flat
from fl_core.types import AuthorId, TxId
from fl_core.verify import VerifyProgress, verify
from fl_simulator.engine.world import World
from fl_simulator.run.processes import interrupts_noted
from ledger_server.admin.bundle import Bundle, write_bundle

EPOCHS: Final = 3
"""E and E': passes over the local data before each update, and before a client first asks."""
FILES: Final = ("accuracy.png", "dag.png", "metrics.csv", "summary.json", "ledger.dagacfl")
"""What a finished demo leaves in its folder; ``RUN`` beside them holds the servers' databases and the logs."""
RUN: Final = "run"
_HASH_BYTES: Final = 32
_MOVES_EVERY: Final = 5
"""Every fifth client moves; coprime to four clusters: of sixteen clients four, one of each cluster."""
_NICENESS: Final = 5
"""Who trains steps back a little behind the servers, which sixteen clients would leave a tenth of a core each."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What a person can choose."""

    out: Path
    clients: int = 16
    updates: int = 14
    seed: int = 0
    servers: int = 3
    port: int | None = None
    keep_serving: bool = False
    kill_server: bool = False

    @property
    def labels(self) -> tuple[str, ...]:
        """Each true cluster's name."""
        return tuple(f"{angle}°" for angle in client.ANGLES)


def run_demo(options: DemoOptions, console: Console) -> DemoFigures:
    """Run the demo, write its files, print its results.

    Raises:
        DemoError: A process failed, the ledger has a fault, or a file is missing.
        KeyboardInterrupt: Ctrl-C; every process has ended, and ``options.out`` keeps what there was.
    """
    started = time.monotonic()
    folder = _fresh_folder(options.out)
    progress = Progress([number % len(client.ANGLES) for number in range(options.clients)], options.updates)
    view = (
        LiveView(progress, console, options.labels, servers=options.servers)
        if console.is_terminal
        else View(progress, console)
    )
    with interrupts_noted() as interrupted:
        world, servers, clients = None, None, None
        try:
            with view:
                view.say("training alone and by FedAvg, to compare with")
                rounds = 1 + options.updates
                world = build_demo_world(options.clients, seed=options.seed, epochs=EPOCHS)
                methods = [
                    MethodFigure(label, baseline(world, name, rounds=rounds))
                    for label, name in (("local-only", "local-only"), ("FedAvg", "fedavg"))
                ]
                view.say(f"starting {options.servers} ledger server{'s' * (options.servers > 1)}")
                servers = _servers(options, folder, world)
                servers.start()
                view.say(f"starting {options.clients} clients, each a process, on {', '.join(servers.urls)}")
                clients = Clients(options, folder, servers.urls)
                chaos = Chaos(servers, progress, view, is_on=options.kill_server)
                run = _Run(options, progress, world, servers, clients, chaos)
                _watch(run, view, interrupted)
                view.say("waiting until all servers hold the same" if len(servers) > 1 else "looking at the ledger")
                figures = _conclude(run, methods, started=started)
            if interrupted.is_set():
                raise KeyboardInterrupt
            console.print(result_panel(figures, labels=options.labels))
            _check(options.out, figures)
            console.print(next_steps(options.out, urls=servers.urls if options.keep_serving else ()))
            while options.keep_serving and not interrupted.wait(0.2):
                servers.check()
            if options.keep_serving:
                interrupted.clear()  # which is how it is meant to end
        finally:
            if clients is not None:
                stop(clients.commands)
            if servers is not None:
                servers.stop()
            if world is not None:
                world.close()
    return figures


def _fresh_folder(out: Path) -> Path:
    """The folder of the run, emptied; files of an earlier demo go too, so that none passes for this one's."""
    out.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        (out / name).unlink(missing_ok=True)
    folder = out / RUN
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir()
    return folder


def _servers(options: DemoOptions, folder: Path, world: World) -> Servers:
    layout = world.trainer.layout
    genesis = Genesis(
        name="demo rotated digits",
        layout=layout,
        comparison=Component("all"),
        selector=Component("beast"),
        aggregator=Component("fedavg"),
        training={
            "epochs": EPOCHS,
            "initial_epochs": EPOCHS,
            "learning_rate": client.LEARNING_RATE,
            "batch_size": client.BATCH_SIZE,
        },
    )
    first = encode_flat(layout, world.initial_model())
    return Servers(folder, genesis, first, count=options.servers, port=options.port)


class Clients:
    """The clients' commands: each knows all servers, in an order of its own; some change it in the middle.

    Args:
        options: How many clients and updates.
        folder: For their states and logs.
        urls: The servers.
    """

    def __init__(self, options: DemoOptions, folder: Path, urls: tuple[str, ...]) -> None:
        self._options, self._urls = options, urls
        self._folders = [folder / "clients" / f"{number + 1:02}" for number in range(options.clients)]
        self.authors: dict[str, int] = {}
        """Each author's client."""
        for number, each in enumerate(self._folders):
            with ParticipantState(each) as state:  # makes the key
                self.authors[state.author] = number
        self._moves = {
            number: options.updates - options.updates // 2
            for number in range(0, options.clients, _MOVES_EVERY)
            if len(urls) > 1 and options.updates > 1
        }
        """Clients that are to move yet, and how many updates are left to them then."""
        self.commands = [
            self._command(number, options.updates - self._moves.get(number, 0)) for number in range(options.clients)
        ]

    def _command(self, number: int, updates: int, *, onward: int = 0) -> Command:
        count = len(self._urls)
        orders = list(permutations(range(count)))
        order = orders[(number * len(orders) // count + number // count) % len(orders)]
        settings = {"site": number, "count": self._options.clients, "seed": self._options.seed}
        return Command(
            f"client {number + 1}",
            *("client", "run", str(Path(client.__file__)), "--state", str(self._folders[number])),
            *("--transactions", str(updates)),
            *(word for name, value in settings.items() for word in ("--set", f"{name}={value}")),
            *(word for place in (*order[onward:], *order[:onward]) for word in ("--server", self._urls[place])),
            log=self._folders[number].with_suffix(".log"),
            niceness=_NICENESS,
        )

    def check(self) -> None:
        """Start those anew that move to another server now.

        Raises:
            DemoError: A client has failed.
        """
        for number, command in enumerate(self.commands):
            command.check()
            if command.exit_code == 0 and number in self._moves:
                onward = 1 + number // _MOVES_EVERY % (len(self._urls) - 1)
                self.commands[number] = self._command(number, self._moves.pop(number), onward=onward)

    @property
    def have_ended(self) -> bool:
        """Whether all have published everything."""
        return not self._moves and all(command.exit_code == 0 for command in self.commands)


class Chaos:
    """``kill -9`` of the last server after a third of all updates, and its return after two thirds.

    Args:
        servers: At least two if ``is_on``.
        progress: Says how far the clients are.
        view: Told.
        is_on: Whether to do anything.
    """

    def __init__(self, servers: Servers, progress: Progress, view: View, *, is_on: bool) -> None:
        self._servers, self._progress, self._view = servers, progress, view
        self.victim = len(servers) - 1 if is_on else None
        self.lost_bytes = 0
        """Between the victim and its peers in its first life, which its own counters forget."""
        self._left = 2 if is_on else 0

    def step(self) -> None:
        """Do what is due."""
        if self.victim is None or not self._left or self._progress.count * 3 < self._progress.total * (3 - self._left):
            return
        self._left -= 1
        if self._left:
            before = self._servers.peer_bytes()
            self._servers.kill(self.victim)
            self.lost_bytes = before - self._servers.peer_bytes()
            self._view.say(f"server {self.victim + 1} was killed (kill -9); training goes on")
        else:
            self._servers.restart()
            self._view.say(f"server {self.victim + 1} is back and catches up")


@dataclass(frozen=True, slots=True)
class _Run:
    """A demo whose processes have been started."""

    options: DemoOptions
    progress: Progress
    world: World
    servers: Servers
    clients: Clients
    chaos: Chaos


def _watch(run: _Run, view: View, interrupted: threading.Event) -> None:
    """Follow the run until every client has ended and every update was shown by every server that is up."""
    progress, servers, clients = run.progress, run.servers, run.clients
    listener = Listener(servers.urls, servers.keys, clients.authors)
    while not (clients.have_ended and progress.count == progress.total):
        heard = listener.next(0.1)
        if heard is not None and progress.hear(*heard):
            view.show(heard[0])
            run.chaos.step()
        if interrupted.is_set():
            raise KeyboardInterrupt
        servers.check()
        clients.check()
    until = time.monotonic() + 2.0  # what other servers show of the last updates counts as well
    while time.monotonic() < until and sum(map(len, progress.shown.values())) < progress.total * len(servers):
        if (heard := listener.next(0.1)) is not None:
            progress.hear(*heard)


def _conclude(run: _Run, methods: list[MethodFigure], *, started: float) -> DemoFigures:
    """Export, prove, measure, draw, write."""
    options, progress, world, servers = run.options, run.progress, run.world, run.servers
    equal = servers.wait_until_equal(1 + progress.total)
    client_bytes = servers.client_bytes()  # asked before the export, which the server counts as well
    peer_bytes = servers.peer_bytes() + run.chaos.lost_bytes
    given, trained = _final_accuracies(progress, world, servers.urls[0])
    with open_source(servers.urls[0]) as live:
        write_bundle(live, options.out / "ledger.dagacfl")
    with Bundle(options.out / "ledger.dagacfl") as bundle:
        updates = updates_of(bundle)
        truth = {AuthorId(author): progress.clusters[number] for author, number in run.clients.authors.items()}
        figures = DemoFigures(
            methods=(*methods, MethodFigure("DAG-ACFL", given)),
            trained=MethodFigure("DAG-ACFL, trained on", trained),
            clusters=cluster_figure(bundle, updates, truth),
            costs=CostFigure(client_bytes, 2 * (_HASH_BYTES + world.model_bytes)),
            proof=_proof(bundle),
            network=network_figure(
                updates, progress, keys=servers.keys, equal=equal, peer_bytes=peer_bytes, killed=run.chaos.victim
            )
            if len(servers) > 1
            else None,
            elapsed_s=time.monotonic() - started,
        )
        genesis = TxId(bundle.ledger)
    plot_accuracy(options.out / "accuracy.png", progress, labels=options.labels, methods=figures.methods)
    plot_dag(options.out / "dag.png", updates, progress, genesis=genesis, labels=options.labels)
    _write_metrics(options.out / "metrics.csv", options, progress)
    summary = {
        "clients": options.clients,
        "servers": options.servers,
        "updates": options.updates,
        "seed": options.seed,
        **figures.as_json(),
    }
    (options.out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    return figures


def _final_accuracies(progress: Progress, world: World, url: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Accuracy of the average that each client would be given now [DAG-ACFL IV-A], and of its own newest model."""
    models: dict[str, np.ndarray[tuple[int], np.dtype[np.float32]]] = {}
    given: list[str] = []
    trained: list[str] = []
    with LedgerClient(url) as sdk:
        layout = sdk.genesis().genesis.layout
        for updates in progress.of_client:
            newest = updates[-1].id
            given.append(sdk.select(transaction=newest).aggregate.digest)
            trained.append(sdk.transaction(newest).model.digest)
            for digest in (given[-1], trained[-1]):
                if digest not in models:
                    models[digest] = flat(layout, sdk.download(digest)).copy()
    place = {digest: row for row, digest in enumerate(models)}
    matrix = np.stack(list(models.values()))
    return (
        accuracies(world, matrix, [place[digest] for digest in given]),
        accuracies(world, matrix, [place[digest] for digest in trained]),
    )


def _proof(bundle: Bundle) -> ProofFigure:
    last = VerifyProgress(0, 0, 0, 0)

    def keep(progress: VerifyProgress) -> None:
        nonlocal last
        last = progress

    faults = tuple(
        f"{finding.kind} ({(finding.transaction or 'ledger')[:16]})"
        for finding in verify(bundle, progress=keep)
        if not finding.kind.is_warning
    )
    return ProofFigure(last.checked, last.models, last.aggregates, faults)


def _write_metrics(path: Path, options: DemoOptions, progress: Progress) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["client", "true_cluster", "number", "transaction", "accuracy", "server", "parents"])
        for each in progress.updates:
            label = options.labels[progress.clusters[each.client]]
            parents = len(each.parents)
            writer.writerow([each.client + 1, label, each.number, each.id, each.accuracy, each.server + 1, parents])


def _check(out: Path, figures: DemoFigures) -> None:
    missing = [name for name in FILES if not (out / name).is_file()]
    if missing:
        raise DemoError(f"the demo left no {', '.join(missing)} in {out}")
    if figures.proof.faults:
        raise DemoError(f"the ledger has {len(figures.proof.faults)} faults, the first: {figures.proof.faults[0]}")
