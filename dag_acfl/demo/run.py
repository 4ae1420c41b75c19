"""One demo from beginning to end: drives ``serve`` and ``client run`` as a user would, and measures what came of it."""

import csv
import json
import queue
import shutil
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console

from dag_acfl.demo import client
from dag_acfl.demo.baselines import accuracies, baseline, build_demo_world
from dag_acfl.demo.clients import Clients
from dag_acfl.demo.figures import cluster_figures, method_figures, network_figures, proof_figures, updates_of
from dag_acfl.demo.panel import next_steps, result_panel
from dag_acfl.demo.plots import plot_accuracy, plot_dag
from dag_acfl.demo.processes import DemoError
from dag_acfl.demo.progress import Progress, listen
from dag_acfl.demo.servers import Servers
from dag_acfl.demo.view import LiveView, View
from dag_acfl.sources import open_source
from fl_client.client import LedgerClient
from fl_core.dag.genesis import Component, Genesis
from fl_core.models import encode_flat, flat
from fl_core.types import AuthorId, TxId
from fl_simulator.engine.world import World
from fl_simulator.run.processes import interrupts_noted
from ledger_server.admin.bundle import Bundle, write_bundle

EPOCHS: Final = 3
"""E and E': passes over the local data before each update, and before a client first asks."""
LEDGER: Final = "ledger.dagacfl"
FILES: Final = ("accuracy.png", "dag.png", "metrics.csv", "summary.json", LEDGER)
"""What a finished demo leaves in its folder; ``RUN`` beside them holds the servers' databases and the logs."""
RUN: Final = "run"
LABELS: Final = tuple(f"{angle}°" for angle in client.ANGLES)
"""Each true cluster's name."""
_HASH_BYTES: Final = 32
_LAST_SHOWN_WITHIN_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What a person can choose."""

    out: Path
    clients: int
    updates: int
    seed: int
    servers: int
    port: int | None
    keep_serving: bool
    kill_server: bool


def run_demo(options: DemoOptions, console: Console) -> None:
    """Run the demo, write its files, print its results.

    Raises:
        DemoError: A process failed, or the ledger has a fault.
        KeyboardInterrupt: Ctrl-C; every process has ended, and ``options.out`` keeps what there was.
    """
    started = time.monotonic()
    folder = _fresh_folder(options.out)
    progress = Progress([number % len(LABELS) for number in range(options.clients)], options.updates)
    view = (
        LiveView(progress, console, LABELS, servers=options.servers) if console.is_terminal else View(progress, console)
    )
    with interrupts_noted() as interrupted, ExitStack() as stack:
        with view:
            view.say("training alone and by FedAvg, to compare with")
            world = stack.enter_context(closing(build_demo_world(options.clients, seed=options.seed, epochs=EPOCHS)))
            baselines = [
                method_figures(label, baseline(world, name, rounds=1 + options.updates))
                for label, name in (("local-only", "local-only"), ("FedAvg", "fedavg"))
            ]
            _heed(interrupted, view)
            view.say(f"starting {options.servers} ledger server{'s' * (options.servers > 1)}")
            servers = stack.enter_context(closing(_servers(options, folder, world)))
            servers.start()
            _heed(interrupted, view)
            view.say(f"starting {options.clients} clients, each a process, on {', '.join(servers.urls)}")
            clients = Clients(
                folder / "clients",
                servers.urls,
                count=options.clients,
                updates=options.updates,
                seed=options.seed,
            )
            stack.enter_context(closing(clients))
            _watch(progress, servers, clients, view, interrupted=interrupted, kill_server=options.kill_server)
            view.say("waiting until all servers hold the same" if len(servers) > 1 else "looking at the ledger")
            figures = _measure(progress, servers, clients, world, file=options.out / LEDGER)
            figures["methods"] = [*baselines, *figures["methods"]]
            figures["elapsed_s"] = time.monotonic() - started
            _write(options, progress, figures)
        _heed(interrupted, view)
        console.print(result_panel(figures))
        if faults := figures["proof"]["faults"]:
            raise DemoError(f"the ledger has {len(faults)} faults, the first: {faults[0]}")
        console.print(next_steps(options.out, urls=servers.urls if options.keep_serving else ()))
        while options.keep_serving and not interrupted.wait(0.2):
            servers.check()
        if options.keep_serving:
            interrupted.clear()  # which is how it is meant to end


def _heed(interrupted: threading.Event, view: View) -> None:
    if interrupted.is_set():
        view.say("stopping all processes")  # clients save first, and servers drain
        raise KeyboardInterrupt


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


def _watch(
    progress: Progress,
    servers: Servers,
    clients: Clients,
    view: View,
    *,
    interrupted: threading.Event,
    kill_server: bool,
) -> None:
    """Follow the run until every client has ended and every update was shown by every server that is up."""
    heard = listen(servers.urls, servers.keys, clients.authors)
    while not (clients.have_ended and progress.count == progress.total):
        with suppress(queue.Empty):
            update, server, at_s = heard.get(timeout=0.1)
            if progress.hear(update, server, at_s):
                view.show(update)
                if kill_server:
                    _kill_or_restart(servers, progress, view)
        _heed(interrupted, view)
        servers.check()
        clients.check()
    until = time.monotonic() + _LAST_SHOWN_WITHIN_S  # what other servers show of the last updates counts as well
    with suppress(queue.Empty):
        while sum(map(len, progress.shown.values())) < progress.total * len(servers):
            progress.hear(*heard.get(timeout=max(0.0, until - time.monotonic())))


def _kill_or_restart(servers: Servers, progress: Progress, view: View) -> None:
    """``kill -9`` of the last server after a third of all updates, and its return after two thirds."""
    last = len(servers) - 1
    if servers.victim is None and progress.count * 3 >= progress.total:
        servers.kill(last)
        view.say(f"server {last + 1} was killed (kill -9); training goes on")
    elif servers.is_down and progress.count * 3 >= progress.total * 2:
        servers.restart()
        view.say(f"server {last + 1} is back and catches up")


def _measure(progress: Progress, servers: Servers, clients: Clients, world: World, *, file: Path) -> dict[str, Any]:
    """Export the ledger into a file, prove it, and measure; gives the parts of ``summary.json`` that it decides."""
    digest, equal_after_s = servers.wait_until_equal(1 + progress.total)
    client_bytes = servers.client_bytes()  # asked before the export, which the server counts as well
    peer_bytes = servers.peer_bytes()
    given, trained = _final_accuracies(progress, world, servers.urls[0])
    with open_source(servers.urls[0]) as live:
        write_bundle(live, file)
    with Bundle(file) as bundle:
        updates = updates_of(bundle)
        truth = {AuthorId(author): progress.clusters[number] for author, number in clients.authors.items()}
        clusters, proof = cluster_figures(bundle, updates, truth), proof_figures(bundle)
    network = None
    if len(servers) > 1:
        network = network_figures(
            updates,
            progress,
            keys=servers.keys,
            digest=digest,
            equal_after_s=equal_after_s,
            peer_bytes=peer_bytes,
            killed=servers.victim,
        )
    return {
        "methods": [method_figures("DAG-ACFL", given)],
        "trained": method_figures("DAG-ACFL, trained on", trained),
        "clusters": clusters,
        "costs": {"measured": client_bytes, "equation_8": 2 * (_HASH_BYTES + world.model_bytes)},
        "proof": proof,
        "network": network,
    }


def _final_accuracies(progress: Progress, world: World, url: str) -> list[tuple[float, ...]]:
    """Accuracy of the average that each client would be given now [DAG-ACFL IV-A], and of its own newest model."""
    newest = [updates[-1].id for updates in progress.of_client]
    with LedgerClient(url) as sdk:
        layout = sdk.genesis().genesis.layout
        given = [sdk.select(transaction=each).aggregate.digest for each in newest]
        trained = [sdk.transaction(each).model.digest for each in newest]
        models = [np.stack([flat(layout, sdk.download(each)) for each in digests]) for digests in (given, trained)]
    return [accuracies(world, each, range(len(newest))) for each in models]


def _write(options: DemoOptions, progress: Progress, figures: Mapping[str, Any]) -> None:
    """Everything that the demo leaves beside the ledger."""
    plot_accuracy(options.out / "accuracy.png", progress, labels=LABELS, methods=figures["methods"])
    with Bundle(options.out / LEDGER) as bundle:
        genesis = TxId(bundle.ledger)
        plot_dag(options.out / "dag.png", updates_of(bundle), progress, genesis=genesis, labels=LABELS)
    with (options.out / "metrics.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["client", "true_cluster", "number", "transaction", "accuracy", "server", "parents"])
        for each in (update for updates in progress.of_client for update in updates):
            label = LABELS[progress.clusters[each.client]]
            parents = len(each.parents)
            writer.writerow([each.client + 1, label, each.number, each.id, each.accuracy, each.server + 1, parents])
    chosen = {name: getattr(options, name) for name in ("clients", "servers", "updates", "seed")}
    text = json.dumps({**chosen, **figures}, indent=2) + "\n"
    (options.out / "summary.json").write_text(text, encoding="utf-8")
