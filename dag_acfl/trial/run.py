"""One trial from beginning to end: drives ``serve`` and ``client run`` as a user would, and measures what came of it.

``dag-acfl try`` is a trial of a person's own file; ``dag-acfl demo`` is one of ``demo_client.py``, whose clusters are
known.
"""

import csv
import json
import queue
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console

from dag_acfl.commands.ledger.init import first_model_of, rules_of
from dag_acfl.sources import open_source
from dag_acfl.summary import clusters_of
from dag_acfl.trial.baselines import baseline, common_figure, judged, world_of
from dag_acfl.trial.clients import Clients, update_every_s
from dag_acfl.trial.figures import (
    cluster_figures,
    gain_figures,
    method_figures,
    network_figures,
    proof_figures,
    updates_of,
)
from dag_acfl.trial.panel import next_steps, result_panel
from dag_acfl.trial.plots import plot_curves, plot_dag
from dag_acfl.trial.processes import TrialError
from dag_acfl.trial.progress import Progress, Shown, listen
from dag_acfl.trial.servers import Servers
from dag_acfl.trial.view import LiveView, View
from fl_client.client import LedgerClient
from fl_client.training.protocol import progress_watched
from fl_core.models import flat
from fl_core.types import AuthorId, JsonScalar, TxId
from fl_simulator.run.processes import interrupts_noted
from fl_simulator.training.sites import SiteTrainers, load_sites
from ledger_server.admin.bundle import Bundle, write_bundle

LEDGER: Final = "ledger.dagacfl"
FILES: Final = ("curves.png", "dag.png", "metrics.csv", "summary.json", LEDGER)
"""What a finished trial leaves in its folder; ``RUN`` beside them holds the servers' databases and the logs."""
RUN: Final = "run"
MARK: Final = "trial"
"""An empty file in ``RUN``: what stands here is a trial's, and may be replaced by the next."""
BASELINES: Final = {"local-only": "local-only", "FedAvg": "fedavg"}
"""What a method is called, and the simulator's strategy of it."""
_HASH_BYTES: Final = 32
_LAST_SHOWN_WITHIN_S: Final = 10.0
_SILENT_S: Final = 60.0
"""Without news after all clients have ended, a trial ends as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What is tried, and where its results go.

    Attributes:
        name: The command, for the view's title.
        file: The client's file.
        sites: How many: ``trainer(site=0)`` and on.
        settings: Further arguments of ``trainer()``.
        updates: That each site publishes.
        epochs: E and E′: passes over the local data before each update, and before a site first asks.
        out: Folder of the results.
        servers: How many.
        port: As of ``Servers``.
        keep_serving: Whether the servers run on until Ctrl-C.
        kill_server: Whether one is killed in the middle.
        kinds: Names of the true clusters where somebody knows them; site i is of kind ``i % len(kinds)``.
    """

    name: str
    file: Path
    sites: int
    settings: Mapping[str, JsonScalar] = field(default_factory=dict)
    updates: int
    epochs: int
    out: Path
    servers: int
    port: int | None
    keep_serving: bool
    kill_server: bool = False
    kinds: Sequence[str] = ()


def run_trial(trial: Trial, console: Console) -> None:
    """Run it, write its files, print its results.

    Raises:
        UserModuleError, TrainerFailedError: The client's file does not do what it is to do; the message names the line.
        TrialError: A process failed, or the ledger has a fault.
        KeyboardInterrupt: Ctrl-C; every process has ended, and ``trial.out`` keeps what there was.
    """
    started = time.monotonic()
    console.print(f"{trial.file}: loading {trial.sites} sites", highlight=False, markup=False, soft_wrap=True)
    sites = load_sites(trial.file, trial.sites, trial.settings)
    clusters = [number % len(trial.kinds) if trial.kinds else 0 for number in range(trial.sites)]
    progress = Progress(clusters, trial.updates)
    progress.figure = common_figure(sites, file=trial.file)
    folder = fresh_folder(trial.out)
    view: View = View(progress, console)
    if console.is_terminal:
        view = LiveView(progress, console, title=trial.name, kinds=trial.kinds, servers=trial.servers)
    with interrupts_noted() as interrupted, ExitStack() as stack:
        with view:
            baselines = _baselines(trial, sites, progress.figure, view, interrupted)
            view.say(f"starting {trial.servers} ledger server{'s' * (trial.servers > 1)}")
            servers = stack.enter_context(closing(_servers(trial, folder, sites)))
            servers.start()
            _heed(interrupted, view)
            pace = f"an update at most every {update_every_s(trial.sites):g} s"
            where = f"on {', '.join(servers.urls)}; watch them in a browser: {servers.urls[0]}/ui/"
            view.say(f"starting {trial.sites} clients, each a process, {pace}, {where}")
            clients = Clients(
                folder / "clients",
                servers.urls,
                file=trial.file,
                count=trial.sites,
                settings=trial.settings,
                updates=trial.updates,
            )
            stack.enter_context(closing(clients))
            ended = threading.Event()
            stack.callback(ended.set)  # before the servers end, which would be asked for again otherwise
            heard = listen(servers.urls, servers.keys, clients.authors, figure=progress.figure, ended=ended)
            _watch(progress, servers, clients, view, heard, interrupted=interrupted, kill_server=trial.kill_server)
            view.say("waiting until all servers hold the same" if len(servers) > 1 else "looking at the ledger")
            figures = _measure(trial, progress, servers, clients, sites)
            figures["gain"] = gain_figures(figures["methods"][0], baselines[0], figure=progress.figure)
            figures["methods"] = [*baselines, *figures["methods"]]
            figures["elapsed_s"] = time.monotonic() - started
            _write(trial, progress, figures)
        _heed(interrupted, view)
        console.print(result_panel(figures))
        if faults := figures["proof"]["faults"]:
            raise TrialError(f"the ledger has {len(faults)} faults, the first: {faults[0]}")
        console.print(
            next_steps(
                trial.out,
                file=None if trial.kinds else trial.file,
                settings=trial.settings,
                epochs=trial.epochs,
                urls=servers.urls if trial.keep_serving else (),
                authors=clients.authors,
            )
        )
        while trial.keep_serving and not interrupted.wait(0.2):
            servers.check()
        if trial.keep_serving:
            interrupted.clear()  # which is how it is meant to end


def _heed(interrupted: threading.Event, view: View) -> None:
    if interrupted.is_set():
        view.say("stopping all processes")  # clients save first, and servers drain
        raise KeyboardInterrupt


def fresh_folder(out: Path) -> Path:
    """The folder of the run, emptied; files of an earlier trial go too, so that none passes for this one's."""
    folder = out / RUN
    ours = folder / MARK
    there = [name for name in (RUN, *FILES) if (out / name).exists()]
    if there and not ours.exists():
        raise TrialError(f"{out} has {there[0]} already, and not of a trial; choose another folder with --out")
    for name in FILES:
        (out / name).unlink(missing_ok=True)
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    ours.touch()
    return folder


def _baselines(
    trial: Trial, sites: SiteTrainers, figure: str, view: View, interrupted: threading.Event
) -> list[dict[str, Any]]:
    """Everybody alone, and one model for all, in this process: what is wrong with the file shows before any other."""
    rounds = 1 + trial.updates
    total = trial.sites * (1 + len(BASELINES) * rounds)
    done = 0

    def trained() -> None:
        nonlocal done
        done += 1
        tell("")

    def tell(how_far: str) -> None:
        _heed(interrupted, view)
        view.show_work(f"{done} of {total} trainings to compare with{how_far and f'; {how_far}'}")

    sites.on_trained = trained
    view.say(f"training alone and by {' and '.join(list(BASELINES)[1:])}, to compare with")
    found = []
    with progress_watched(tell):
        world = world_of(sites, epochs=trial.epochs)
        for label, name in BASELINES.items():
            sites.forget()
            given = baseline(world, name, rounds=rounds)
            found.append(method_figures(label, judged(sites, given.models, given.rows, figure=figure)))
    return found


def _servers(trial: Trial, folder: Path, sites: SiteTrainers) -> Servers:
    """Servers of a new ledger that has the rules of ``dag-acfl ledger init``, and the first site's model."""
    first = first_model_of(sites.trainers[0])
    hints = {"epochs": trial.epochs, "initial_epochs": trial.epochs}
    rules = rules_of({"name": trial.name, "training": hints}, first)
    return Servers(folder, rules, first.encoded, count=trial.servers, port=trial.port)


def _watch(
    progress: Progress,
    servers: Servers,
    clients: Clients,
    view: View,
    heard: "queue.SimpleQueue[Shown]",
    *,
    interrupted: threading.Event,
    kill_server: bool,
) -> None:
    """Follow the run until every client has ended and every update was shown by every server that is up."""
    last_s = time.monotonic()
    while not (clients.have_ended and progress.count == progress.total):
        if clients.have_ended and time.monotonic() > last_s + _SILENT_S:
            raise TrialError(
                f"all clients have ended, and {progress.count} of {progress.total} updates were published; does "
                f"{clients.file} end the process?"
            )
        with suppress(queue.Empty):
            update, server, at_s = heard.get(timeout=0.1)
            last_s = time.monotonic()
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


def _measure(
    trial: Trial, progress: Progress, servers: Servers, clients: Clients, sites: SiteTrainers
) -> dict[str, Any]:
    """Export the ledger into a file, prove it, and measure; gives the parts of ``summary.json`` that it decides.

    Where nobody knows clusters, ``progress.clusters`` are those that were found, from now on.
    """
    digest, equal_after_s = servers.wait_until_equal(1 + progress.total)
    client_bytes = servers.client_bytes()  # asked before the export, which the server counts as well
    peer_bytes = servers.peer_bytes()
    given, trained, model_bytes = _final_figures(progress, clients, sites, servers.urls[0])
    with open_source(servers.urls[0]) as live:
        write_bundle(live, trial.out / LEDGER)
    with Bundle(trial.out / LEDGER) as bundle:
        updates = updates_of(bundle)
        _, partition = clusters_of({update.id: update.header for update in updates})
        found = (sorted(clients.authors[author] for author in group) for group in partition)
        groups = sorted(found, key=lambda group: (-len(group), group))
        truth = {AuthorId(author): progress.clusters[number] for author, number in clients.authors.items()}
        clusters = {"sites": groups, **cluster_figures(bundle, updates, truth if trial.kinds else None)}
        proof = proof_figures(bundle)
    if not trial.kinds:
        progress.clusters = [next(n for n, group in enumerate(groups) if site in group) for site in range(trial.sites)]
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
        "figure": progress.figure,
        "methods": [method_figures("DAG-ACFL", given)],
        "trained": method_figures("DAG-ACFL, trained on", trained),
        "clusters": clusters,
        "costs": {"measured": client_bytes, "equation_8": 2 * (_HASH_BYTES + model_bytes)},
        "proof": proof,
        "network": network,
    }


def _final_figures(
    progress: Progress, clients: Clients, sites: SiteTrainers, url: str
) -> tuple[tuple[float, ...], tuple[float, ...], int]:
    """Of the average that each site would be given now [DAG-ACFL IV-A], and of its own newest model; a model's size."""
    newest = [updates[-1].id for updates in progress.of_client]
    for site, rest in enumerate(clients.rests() if sites.holds_back else ()):
        sites.hold(site, rest)
    with LedgerClient(url) as sdk:
        layout = sdk.genesis().genesis.layout
        given = [sdk.select(transaction=each).aggregate.digest for each in newest]
        trained = [sdk.transaction(each).model.digest for each in newest]
        models = [np.stack([flat(layout, sdk.download(each)) for each in digests]) for digests in (given, trained)]
    found = [judged(sites, each, range(len(newest)), figure=progress.figure) for each in models]
    return found[0], found[1], layout.nbytes


def _write(trial: Trial, progress: Progress, figures: Mapping[str, Any]) -> None:
    """Everything that a trial leaves beside the ledger."""
    figure, methods = figures["figure"], figures["methods"]
    kinds = trial.kinds or [f"group {number + 1}" for number in range(len(figures["clusters"]["sites"]))]
    plot_curves(trial.out / "curves.png", progress, kinds=kinds, methods=methods, figure=figure)
    with Bundle(trial.out / LEDGER) as bundle:
        genesis = TxId(bundle.ledger)
        plot_dag(
            trial.out / "dag.png",
            updates_of(bundle),
            progress,
            genesis=genesis,
            kinds=kinds,
            known=bool(trial.kinds),
        )
    with (trial.out / "metrics.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["site", "cluster", "number", "transaction", figure, "server", "parents"])
        for each in (update for updates in progress.of_client for update in updates):
            kind = kinds[progress.clusters[each.client]]
            row = [each.client, kind, each.number, each.id, each.figure, each.server + 1, len(each.parents)]
            writer.writerow(row)
    chosen = {name: getattr(trial, name) for name in ("sites", "servers", "updates", "epochs")}
    text = strict_json({**chosen, "settings": dict(trial.settings), **figures})
    (trial.out / "summary.json").write_text(text, encoding="utf-8")


def strict_json(figures: Mapping[str, Any]) -> str:
    """What every reader of JSON takes: null for a number that is not finite."""
    return json.dumps(json.loads(json.dumps(figures), parse_constant=lambda _: None), indent=2) + "\n"
