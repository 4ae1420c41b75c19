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

from dag_acfl.bundle import Bundle, write_bundle
from dag_acfl.demo.board import Board
from dag_acfl.demo.events import FirstModel, Published
from dag_acfl.demo.figures import (
    DemoFigures,
    ProofFigure,
    Site,
    cluster_figure,
    cost_figure,
    method_figures,
    sites_of,
)
from dag_acfl.demo.plots import plot_accuracy, plot_dag
from dag_acfl.demo.processes import DemoError, ServerProcess, Workers
from dag_acfl.demo.site import BEGIN, FINISH, Place, run_baselines, run_site
from dag_acfl.demo.task import DemoTask
from dag_acfl.demo.views import LiveView, PlainView, View, next_steps, result_panel
from dag_acfl.sources import open_source
from fl_client.client import LedgerClient
from fl_core.dag.genesis import Component, Genesis, parse_genesis
from fl_core.selection import build_selector
from fl_core.types import AuthorId, TxId
from fl_core.verify import VerifyProgress, verify
from fl_core.weights import ModelLayout, encode_model

HASH_BYTES: Final = 32
FILES: Final = ("accuracy.png", "dag.png", "metrics.csv", "summary.json", "ledger.dagacfl", "config.toml")
"""What a finished demo leaves in its folder; ``RUN`` beside them holds the ledger's database and the logs."""
RUN: Final = "run"


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What a person can choose."""

    task: DemoTask
    out: Path
    port: int = 0
    keep_serving: bool = False

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
    board = Board(options.clusters, options.task.transactions)
    view: View = LiveView(board, console, options.labels) if console.is_terminal else PlainView(board, console)
    with Workers() as workers:
        server: ServerProcess | None = None
        try:
            with view:
                server = _run(options, folder, board, view, workers)
                view.say("proving the ledger and drawing")
                figures = _conclude(options, board, server.url, started)
                view.say("done")
            console.print(result_panel(figures, labels=options.labels))
            _check(options.out, figures)
            workers.stop()
            console.print(next_steps(options.out, url=server.url if options.keep_serving else None))
            if options.keep_serving:
                _wait_for_interrupt(server)
        finally:
            if server is not None:
                server.stop()
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


def _run(options: DemoOptions, folder: Path, board: Board, view: View, workers: Workers) -> ServerProcess:
    """Everything up to the last client's last word; the server goes on."""
    task = options.task
    view.say("loading torch, making the first model")
    baselines = workers.start("baselines", run_baselines, task)
    # What the parent needs of the server loads while the worker loads torch.
    from ledger_server.keys import KEY_FILE, load_or_create_key  # noqa: PLC0415
    from ledger_server.service import create_ledger  # noqa: PLC0415
    from ledger_server.store import open_store  # noqa: PLC0415

    first = baselines.inbox.recv()
    if not isinstance(first, FirstModel):
        raise DemoError(f"the baselines' process failed: {first}")
    ledger = folder / "ledger"
    ledger.mkdir()
    genesis = _genesis(task, ModelLayout.of_arrays(first.arrays))
    with open_store(f"sqlite:///{ledger / 'ledger.sqlite3'}", data_dir=ledger) as store:
        create_ledger(
            store,
            genesis,
            encode_model(genesis.layout, first.arrays),
            key=load_or_create_key(ledger / KEY_FILE),
            now_ms=time.time_ns() // 1_000_000,
        )
    view.say("starting the ledger server")
    server = ServerProcess(ledger, log=folder / "server.log", port=options.port)
    try:
        url = server.wait_until_ready()
        view.say(f"{task.num_clients} clients and a ledger server on {url}, each a process, over HTTP")
        baselines.orders.send(BEGIN)
        for client in range(task.num_clients):
            state = folder / "clients" / f"{client + 1:02}"
            state.mkdir(parents=True)
            workers.start(f"client {client + 1}", run_site, Place(client, task, url, state))
        _listen(board, view, workers, idle=server.check)
    except BaseException:
        server.stop()
        raise
    return server


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


def _listen(board: Board, view: View, workers: Workers, *, idle: Callable[[], None]) -> None:
    orders: list[tuple[str, Callable[[], bool]]] = [
        (FINISH, lambda: board.has_all_transactions),
        (BEGIN, lambda: all(row.joined for row in board.rows)),
    ]
    for event in workers.events(idle=idle):
        board.hear(event)
        view.show(event)
        if board.failures:
            failure = board.failures[0]
            raise DemoError(f"{failure.who} failed: {failure.message}")
        while orders and orders[-1][1]():
            order, _ = orders.pop()
            workers.tell_all(order)
    if not board.is_complete:
        raise DemoError("a process ended without its results")


def _conclude(options: DemoOptions, board: Board, url: str, started: float) -> DemoFigures:
    """Export, prove, measure, draw, write."""
    out, task = options.out, options.task
    authors = {AuthorId(author): client for author, client in board.authors.items()}
    with LedgerClient(url, timeout=60.0) as client:  # asked before the export, which the server counts as well
        server_bytes = client.costs().bytes_per_client_round
    with open_source(url) as live:
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
        methods, trained = method_figures(board.baselines, board.finished)
        figures = DemoFigures(
            methods=methods,
            trained=trained,
            clusters=cluster_figure(bundle, sites, truth),
            costs=cost_figure(board.published, server=server_bytes, hash_bytes=HASH_BYTES, model_bytes=model_bytes),
            proof=ProofFigure(last.checked, last.models, last.aggregates, tuple(faults)),
            elapsed_s=time.monotonic() - started,
        )
        ledger = TxId(bundle.ledger)
        genesis = _genesis_of(bundle, ledger)
    _draw(options, board, sites, ledger, figures)
    figures = replace(figures, elapsed_s=time.monotonic() - started)
    _write_metrics(out / "metrics.csv", options, board)
    (out / "config.toml").write_text(_config(options, genesis), encoding="utf-8")
    summary = {"clients": task.num_clients, "transactions": task.transactions, "seed": task.seed, **figures.as_json()}
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
    names = [field.name for field in fields(Published) if field.name not in {"approved", "client"}]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["client", "true_cluster", *names, "approved_same", "approved_foreign"])
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
                    sum(same),
                    len(same) - sum(same),
                ]
            )


def _config(options: DemoOptions, genesis: Genesis) -> str:
    """The run as TOML: everything that decides what was learnt, defaults included."""
    selector = build_selector(genesis.selector.name, genesis.selector.params)
    tables: dict[str, Mapping[str, object]] = {
        "demo": {**asdict(options.task), "total_epochs": options.task.total_epochs},
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


def _wait_for_interrupt(server: ServerProcess) -> None:
    try:
        while True:
            server.check()
            time.sleep(0.5)
    except KeyboardInterrupt:
        return
