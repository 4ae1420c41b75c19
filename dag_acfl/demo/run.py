"""One demo from beginning to end: processes, view, and what is kept in the folder of results."""

import csv
import json
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Final

from rich.console import Console

from dag_acfl.demo.board import Board
from dag_acfl.demo.events import Equal, FirstModel, Published
from dag_acfl.demo.figures import (
    DemoFigures,
    NetworkFigure,
    ProofFigure,
    Site,
    cluster_figure,
    cost_figure,
    method_figures,
    network_figure,
    sites_of,
)
from dag_acfl.demo.interrupt import Interrupt
from dag_acfl.demo.plots import plot_accuracy, plot_dag
from dag_acfl.demo.processes import DemoError, Workers
from dag_acfl.demo.servers import LedgerServers
from dag_acfl.demo.site import BEGIN, FINISH, place_of, run_baselines, run_listener, run_site
from dag_acfl.demo.task import DemoTask
from dag_acfl.demo.views import LiveView, PlainView, View, next_steps, result_panel
from dag_acfl.sources import open_source
from fl_core.dag.genesis import Component, Genesis, parse_genesis
from fl_core.models import ModelLayout, encode_model
from fl_core.selection import SELECTORS
from fl_core.types import AuthorId, TxId
from fl_core.verify import VerifyProgress, verify
from ledger_server.admin.bundle import Bundle, write_bundle

HASH_BYTES: Final = 32
FILES: Final = ("accuracy.png", "dag.png", "metrics.csv", "summary.json", "ledger.dagacfl", "config.toml")
"""What a finished demo leaves in its folder; ``RUN`` beside them holds the servers' databases and the logs."""
RUN: Final = "run"


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What a person can choose."""

    task: DemoTask
    out: Path
    servers: int = 1
    port: int | None = None
    keep_serving: bool = False
    kill_server: bool = False

    @property
    def labels(self) -> tuple[str, ...]:
        """Each true cluster's name."""
        return tuple(f"{angle}°" for angle in self.task.rotations)

    @property
    def clusters(self) -> list[int]:
        """Each client's true cluster (``rotated_digits``)."""
        return [client % len(self.task.rotations) for client in range(self.task.num_clients)]


def run_demo(options: DemoOptions, console: Console) -> DemoFigures:
    """Run the demo, write its files, print its results.

    Raises:
        DemoError: A process died, the ledger has a fault, or a file is missing.
        KeyboardInterrupt: Ctrl-C; every process has ended, and ``options.out`` keeps what there was.
    """
    started = time.monotonic()
    folder = _fresh_folder(options.out)
    board = Board(options.clusters, options.task.transactions, servers=options.servers)
    view: View = LiveView(board, console, options.labels) if console.is_terminal else PlainView(board, console)
    with Interrupt() as interrupt, Workers() as workers:
        servers = LedgerServers(folder, count=options.servers, port=options.port)
        try:
            with view:
                chaos = _run(options, board, view, workers, servers, interrupt=interrupt)
                view.say("waiting until all servers hold the same" if len(servers) > 1 else "looking at the ledger")
                equal = servers.wait_until_equal(1 + board.total)
                interrupt.check()
                view.say("proving the ledger and drawing")
                figures = _conclude(options, board, servers, chaos, equal=equal, started=started)
                view.say("done")
            console.print(result_panel(figures, labels=options.labels))
            _check(options.out, figures)
            workers.stop()
            console.print(next_steps(options.out, urls=servers.urls if options.keep_serving else ()))
            if options.keep_serving:
                _wait_for_interrupt(servers, interrupt)
            else:
                interrupt.check()
        finally:
            servers.stop()
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


class _Chaos:
    """``kill -9`` of a server after a third of all transactions, and its return after two thirds.

    Args:
        board: Says how far the clients are.
        servers: The last one is killed.
        view: Told.
        is_on: Whether to do anything.
    """

    def __init__(self, board: Board, servers: LedgerServers, view: View, *, is_on: bool) -> None:
        self._board, self._servers, self._view = board, servers, view
        self.victim = len(servers) - 1 if is_on else None
        self.lost_bytes = 0
        """Between the victim and its peers in its first life, which its own counters forget."""
        self._left = 2 if is_on else 0

    def step(self) -> None:
        """Do what is due."""
        done = len(self._board.published) / self._board.total
        if self.victim is None or not self._left or done < (3 - self._left) / 3:
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


def _run(
    options: DemoOptions, board: Board, view: View, workers: Workers, servers: LedgerServers, *, interrupt: Interrupt
) -> _Chaos:
    """Everything up to the last client's last word; the servers go on."""
    task, folder = options.task, options.out / RUN
    view.say("loading torch, making the first model")
    baselines = workers.start("baselines", run_baselines, task)
    first = baselines.inbox.recv()
    if not isinstance(first, FirstModel):
        raise DemoError(f"the baselines' process failed: {first}")
    genesis = _genesis(task, ModelLayout.of_arrays(first.arrays))
    servers.create(genesis, encode_model(genesis.layout, first.arrays))
    several = len(servers) > 1
    view.say(f"starting {len(servers)} ledger servers" if several else "starting the ledger server")
    urls = servers.start()
    if several:
        workers.start("the listener", run_listener, urls, board.total)
        ports = ", ".join(url.rpartition(":")[2] for url in urls)
        who = f"{len(urls)} ledger servers on ports {ports}"
    else:
        who = f"a ledger server on {urls[0]}"
    view.say(f"{task.num_clients} clients and {who}, each a process, over HTTP")
    baselines.orders.send(BEGIN)
    for client in range(task.num_clients):
        state = folder / "clients" / f"{client + 1:02}"
        state.mkdir(parents=True)
        place = place_of(client, task=task, urls=urls, folder=state)
        workers.start(f"client {client + 1}", run_site, place)
    chaos = _Chaos(board, servers, view, is_on=options.kill_server)

    def idle() -> None:
        interrupt.check()
        servers.check()

    def heard() -> None:
        interrupt.check()
        chaos.step()

    _listen(board, view, workers, idle=idle, heard=heard)
    return chaos


def _genesis(task: DemoTask, layout: ModelLayout) -> Genesis:
    return Genesis(
        name="demo rotated digits",
        layout=layout,
        similarity_layers=tuple(sorted(task.similarity_tensors)),
        selector=Component("beast"),
        aggregator=Component("fedavg"),
        training={
            "epochs": task.epochs,
            "initial_epochs": task.initial_epochs,
            "learning_rate": task.learning_rate,
            "batch_size": task.batch_size,
        },
    )


def _genesis_of(bundle: Bundle, ledger: TxId) -> Genesis:
    digest = next(t.header.attachment_digest for id_, t in bundle.transactions() if id_ == ledger)
    return parse_genesis(bundle.attachment(digest) or b"")


def _listen(board: Board, view: View, workers: Workers, *, idle: Callable[[], None], heard: Callable[[], None]) -> None:
    orders: list[tuple[str, Callable[[], bool]]] = [
        (FINISH, lambda: board.has_all_transactions),
        (BEGIN, lambda: all(row.joined for row in board.rows)),
    ]
    for event in workers.events(idle=idle):
        board.hear(event)
        view.show(event)
        heard()
        if board.failures:
            failure = board.failures[0]
            raise DemoError(f"{failure.who} failed: {failure.message}")
        while orders and orders[-1][1]():
            order, _ = orders.pop()
            workers.tell_all(order)
    if not board.is_complete:
        raise DemoError("a process ended without its results")


def _conclude(
    options: DemoOptions, board: Board, servers: LedgerServers, chaos: _Chaos, *, equal: Equal, started: float
) -> DemoFigures:
    """Export, prove, measure, draw, write."""
    out, task = options.out, options.task
    authors = {AuthorId(author): client for author, client in board.authors.items()}
    server_bytes = servers.client_bytes()  # asked before the export, which the server counts as well
    peer_bytes = servers.peer_bytes() + chaos.lost_bytes
    with open_source(servers.urls[0]) as live:
        write_bundle(live, out / "ledger.dagacfl")
    with Bundle(out / "ledger.dagacfl") as bundle:
        last = VerifyProgress(0, 0, 0, 0)

        def keep(progress: VerifyProgress) -> None:
            nonlocal last
            last = progress

        faults = [
            f"{finding.kind} ({(finding.transaction or 'ledger')[:16]})"
            for finding in verify(bundle, progress=keep)
            if not finding.kind.is_warning
        ]
        sites = sites_of(bundle, authors)
        truth = {author: options.clusters[client] for author, client in authors.items()}
        model_bytes = sites[0].header.model_size
        network: NetworkFigure | None = None
        if len(servers) > 1:
            assert board.observed is not None, "the board is complete"
            network = network_figure(
                sites,
                keys=servers.keys,
                equal=equal,
                arrivals=board.observed.arrivals,
                peer_bytes=peer_bytes,
                switches=board.switches,
                killed=chaos.victim,
            )
        methods, trained = method_figures(board.baselines, board.finished)
        figures = DemoFigures(
            methods=methods,
            trained=trained,
            clusters=cluster_figure(bundle, sites, truth),
            costs=cost_figure(board.published, server=server_bytes, hash_bytes=HASH_BYTES, model_bytes=model_bytes),
            proof=ProofFigure(last.checked, last.models, last.aggregates, tuple(faults)),
            network=network,
            elapsed_s=time.monotonic() - started,
        )
        ledger = TxId(bundle.ledger)
        genesis = _genesis_of(bundle, ledger)
    _draw(options, board, sites, ledger, figures)
    figures = replace(figures, elapsed_s=time.monotonic() - started)
    _write_metrics(out / "metrics.csv", options, board)
    (out / "config.toml").write_text(_config(options, genesis), encoding="utf-8")
    summary = {
        "clients": task.num_clients,
        "servers": options.servers,
        "transactions": task.transactions,
        "seed": task.seed,
        **figures.as_json(),
    }
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    return figures


def _draw(options: DemoOptions, board: Board, sites: list[Site], genesis: TxId, figures: DemoFigures) -> None:
    plot_accuracy(
        options.out / "accuracy.png",
        published=board.published,
        clusters=options.clusters,
        labels=options.labels,
        methods=figures.methods,
    )
    plot_dag(options.out / "dag.png", genesis=genesis, sites=sites, clusters=options.clusters, labels=options.labels)


def _write_metrics(path: Path, options: DemoOptions, board: Board) -> None:
    names = [field.name for field in fields(Published) if field.name not in {"approved", "client", "server"}]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["client", "true_cluster", *names, "server", "approved_same", "approved_foreign"])
        for event in sorted(board.published, key=lambda each: (each.client, each.number)):
            cluster = options.clusters[event.client]
            others = [board.client_of[each] for each in event.approved if each in board.client_of]
            same = [options.clusters[other] == cluster for other in others if other != event.client]
            values = asdict(event)
            writer.writerow(
                [
                    event.client + 1,
                    options.labels[cluster],
                    *(values[name] for name in names),
                    event.server + 1,
                    sum(same),
                    len(same) - sum(same),
                ]
            )


def _config(options: DemoOptions, genesis: Genesis) -> str:
    """The run as TOML: everything that decides what was learnt, defaults included."""
    selector = SELECTORS.build(genesis.selector.name, genesis.selector.params)
    tables: dict[str, Mapping[str, object]] = {
        "demo": {
            **asdict(options.task),
            "total_epochs": options.task.total_epochs,
            "servers": options.servers,
            "kill_server": options.kill_server,
        },
        "ledger": {
            "name": genesis.name,
            "similarity_layers": genesis.similarity_layers,
            "selector": genesis.selector.name,
            "aggregator": genesis.aggregator.name,
        },
        "ledger.selector_params": asdict(selector.params),
        "ledger.training": genesis.training,
        "ledger.policy": asdict(genesis.policy),
    }
    lines = ["# What this demo ran with. Accuracies vary a little: who asks first depends on the machine."]
    for table, values in tables.items():
        lines += ["", f"[{table}]"]
        lines += [f"{name} = {_toml(value)}" for name, value in values.items()]
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    """Numbers, texts, truth values and lists of them look the same in JSON."""
    return json.dumps(list(value) if isinstance(value, tuple) else value)


def _check(out: Path, figures: DemoFigures) -> None:
    if figures.proof.faults:
        raise DemoError(f"the ledger has faults: {', '.join(figures.proof.faults[:5])}; see {out / 'ledger.dagacfl'}")
    missing = [name for name in FILES if not (out / name).is_file()]
    if missing:
        raise DemoError(f"missing in {out}: {', '.join(missing)}")


def _wait_for_interrupt(servers: LedgerServers, interrupt: Interrupt) -> None:
    try:
        while True:
            interrupt.check()
            servers.check()
            time.sleep(0.5)
    except KeyboardInterrupt:
        return
