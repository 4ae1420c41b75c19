"""How a demo shows itself: a live table in a terminal, plain lines elsewhere, and the panel of results."""

import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from dag_acfl.demo.board import Board, ClientRow
from dag_acfl.demo.events import BaselineDone, Event, Failed, Published
from dag_acfl.demo.figures import DemoFigures, NetworkFigure
from dag_acfl.demo.plots import colour_of

_SPARKS: Final = "▁▂▃▄▅▆▇█"
_SPARK_FLOOR: Final = 0.1
_BASELINES: Final = "baselines"


class View(Protocol):
    """What the demo tells about itself while it runs; used as a context manager."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def say(self, phase: str) -> None:
        """A new phase begins."""
        ...

    def show(self, event: Event) -> None:
        """The board has heard an event."""
        ...


class PlainView:
    """One line for every phase, for each time that all clients have published once more, and for results."""

    def __init__(self, board: Board, console: Console) -> None:
        self._board, self._console = board, console
        self._started, self._told = time.monotonic(), 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def say(self, phase: str) -> None:
        """A line for the phase."""
        self._line(phase)

    def show(self, event: Event) -> None:
        """A line when every client has come one transaction further, and for each baseline."""
        board = self._board
        if isinstance(event, Published):
            row = board.rows[event.client]
            if row.has_just_moved:
                before, now = row.servers[-2:]
                self._line(f"client {event.client + 1} moved from server {before + 1} to server {now + 1}")
            rounds = min(row.published for row in board.rows)
            if rounds > self._told:
                self._told = rounds
                latest = [row.accuracies[rounds - 1] for row in board.rows]
                same, foreign = (sum(counts) for counts in zip(*map(board.approvals, board.rows), strict=True))
                self._line(
                    f"everybody has {rounds} of {board.transactions} transactions: accuracy "
                    f"{sum(latest) / len(latest):.3f}, approvals {same} same cluster, {foreign} foreign"
                )
        elif isinstance(event, BaselineDone):
            mean = sum(event.accuracies) / len(event.accuracies)
            self._line(f"baseline {event.name}: accuracy {mean:.3f}")
        elif isinstance(event, Failed):
            self._line(f"{event.who} failed: {event.message}")

    def _line(self, text: str) -> None:
        self._console.print(
            f"[{time.monotonic() - self._started:5.1f} s] {text}", highlight=False, markup=False, soft_wrap=True
        )


class LiveView:
    """The table of clients, redrawn in place, with a progress bar under it."""

    def __init__(self, board: Board, console: Console, labels: Sequence[str]) -> None:
        self._board, self._labels = board, labels
        self._progress = Progress(
            TextColumn("{task.description:<12}"),
            BarColumn(bar_width=None, complete_style="#0072B2", finished_style="#009E73"),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            console=console,
            expand=True,
        )
        self._rounds: TaskID = self._progress.add_task("transactions", total=board.total)
        self._baseline: TaskID = self._progress.add_task(_BASELINES, total=None, start=True)
        self._phase = ""
        self._live = Live(
            console=console,
            get_renderable=self._render,
            refresh_per_second=8,
            transient=False,
            vertical_overflow="crop",
        )

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def say(self, phase: str) -> None:
        """Show the phase in the title."""
        self._phase = phase

    def show(self, event: Event) -> None:
        """Move the bars; the table is drawn from the board."""
        if isinstance(event, Published):
            self._progress.update(self._rounds, completed=len(self._board.published))
        elif (step := self._board.baseline_step) is not None:
            self._progress.update(self._baseline, completed=step.done, total=step.total, description=step.name)

    def _render(self) -> RenderableType:
        return Group(self._table(), self._progress)

    def _table(self) -> Table:
        table = Table(
            box=box.SIMPLE_HEAD,
            title=f"[bold]dag-acfl demo[/]  [dim]{self._phase}[/]",
            title_justify="left",
            title_style="",
            expand=True,
            padding=(0, 1),
            show_edge=False,
        )
        table.add_column("client", justify="right", no_wrap=True)
        table.add_column("cluster", no_wrap=True)
        if self._board.servers > 1:
            table.add_column("server", no_wrap=True)
        table.add_column("sent", justify="right", no_wrap=True)
        table.add_column("same", justify="right", no_wrap=True)
        table.add_column("foreign", justify="right", no_wrap=True)
        table.add_column("rule", no_wrap=True, ratio=1, overflow="ellipsis")
        table.add_column("accuracy", no_wrap=True, justify="right")
        table.add_column("", no_wrap=True, min_width=min(self._board.transactions, 16))
        for number, row in enumerate(self._board.rows):
            table.add_row(*self._cells(number, row))
        return table

    def _cells(self, number: int, row: ClientRow) -> list[RenderableType]:
        colour = colour_of(row.cluster)
        same, foreign = self._board.approvals(row)
        accuracy = row.finished.accuracy if row.finished else (row.accuracies[-1] if row.accuracies else None)
        state = row.rule if row.published else ("training from genesis" if row.joined else "starting")
        return [
            Text(f"{number + 1}"),
            Text(f"● {self._labels[row.cluster]}", style=colour),
            *([_stay(row)] if self._board.servers > 1 else []),
            Text(f"{row.published}/{self._board.transactions}"),
            Text(f"{same}" if row.published else ""),
            Text(f"{foreign}" if row.published else "", style="bold red" if foreign else "dim"),
            Text(state, style="" if row.published else "dim italic"),
            Text("" if accuracy is None else f"{accuracy:.2f}", style="bold" if row.finished else ""),
            Text(sparkline(row.accuracies[-16:]), style=colour),
        ]


def _stay(row: ClientRow) -> Text:
    """The server that a client speaks to; the one that it has left stays beside it."""
    if len(row.servers) < 2:
        return Text("".join(f"{server + 1}" for server in row.servers))
    return Text(
        f"{row.servers[-2] + 1} → {row.servers[-1] + 1}", style="bold reverse" if row.has_just_moved else "bold yellow"
    )


def sparkline(values: Sequence[float]) -> str:
    """Values in [0, 1] as block characters; chance level for ten classes and below is the lowest."""
    steps = len(_SPARKS) - 1
    scaled = (max(0.0, min(1.0, (value - _SPARK_FLOOR) / (1 - _SPARK_FLOOR))) for value in values)
    return "".join(_SPARKS[round(value * steps)] for value in scaled)


def result_panel(figures: DemoFigures, *, labels: Sequence[str]) -> Panel:
    """What was measured in this run."""
    return Panel(
        Group(_methods(figures), Text(), _facts(figures, labels)),
        title="[bold]measured in this run[/]",
        title_align="left",
        border_style="green" if not figures.proof.faults else "red",
        padding=(1, 2),
        expand=False,
    )


def _methods(figures: DemoFigures) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("method")
    table.add_column("accuracy", justify="right")
    table.add_column("± over clients", justify="right")
    table.add_column("", no_wrap=True)
    best = max(method.mean for method in figures.methods)
    for method in figures.methods:
        style = "bold green" if method.mean == best else ""
        bar = "█" * round(method.mean * 32)
        table.add_row(
            Text(method.name, style=style),
            Text(f"{method.mean:.3f}", style=style),
            f"{method.spread:.3f}",
            Text(bar, style="green" if method.mean == best else "bright_black"),
        )
    trained = figures.trained
    table.add_row("  and trained on", f"{trained.mean:.3f}", f"{trained.spread:.3f}", "", style="dim")
    return table


def _facts(figures: DemoFigures, labels: Sequence[str]) -> Table:
    clusters, costs, proof = figures.clusters, figures.costs, figures.proof
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    found = f"{len(clusters.found)} found by Louvain ({' + '.join(map(str, clusters.found))}), {clusters.true} true"
    grid.add_row("clusters", f"{found}; {_placed(clusters.misplaced, sum(clusters.found))}")
    grid.add_row(
        "modularity",
        f"{clusters.modularity:.3f} (Eq. 6; at most {1 - 1 / len(labels):.2f} with {len(labels)} equal clusters)",
    )
    satisfaction = "no selection had a choice" if clusters.satisfaction is None else f"{clusters.satisfaction:.3f}"
    grid.add_row(
        "satisfaction mr",
        f"{satisfaction} (Eq. 7); {clusters.foreign_approvals:.1%} of approvals went to another cluster",
    )
    over = costs.measured / costs.equation_8 - 1
    grid.add_row(
        "bytes",
        f"{costs.measured:,.0f} per client and round; Eq. 8 says {costs.equation_8:,}, "
        f"evidence and HTTP add {over:.0%} to so small a model",
    )
    if proof.faults:
        grid.add_row("ledger", Text(f"{len(proof.faults)} faults: {', '.join(proof.faults[:5])}", style="bold red"))
    else:
        grid.add_row(
            "ledger",
            f"verified: {proof.transactions} transactions, {proof.models} models, "
            f"{proof.aggregates} averages recomputed",
        )
    if figures.network is not None:
        _network(grid, figures.network)
    grid.add_row("time", f"{figures.elapsed_s:.1f} s")
    return grid


def _network(grid: Table, network: NetworkFigure) -> None:
    took = " + ".join(map(str, network.transactions))
    grid.add_row(
        "servers",
        f"{took} transactions; all {len(network.transactions)} ledgers equal (tips {network.digest[:12]}…), "
        f"{network.equal_after_s:.2f} s after the last client",
    )
    if (seen := network.visibility) is not None:
        grid.add_row(
            "visible elsewhere",
            f"after {seen.median_s * 1000:.0f} ms (median), {seen.p95_s * 1000:.0f} ms (p95), "
            f"of {seen.pairs} arrivals on other servers",
        )
    grid.add_row(
        "server to server",
        f"{network.peer_bytes:,.0f} bytes per transaction and receiver; model + header are {network.equation_8:,.0f}, "
        f"evidence and HTTP add {network.peer_bytes / network.equation_8 - 1:.0%}",
    )
    grid.add_row("roaming", f"clients switched servers {network.switches} times; nobody lost its place")
    if network.killed is not None:
        grid.add_row("chaos", f"server {network.killed + 1} was killed (kill -9), came back, and holds everything")


def _placed(misplaced: int, total: int) -> str:
    return f"all {total} clients in the right one" if misplaced == 0 else f"{misplaced} of {total} clients misplaced"


def next_steps(folder: Path, *, urls: Sequence[str]) -> Group:
    """Where the files are and what to do now."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(style="dim")
    for name, what in (
        ("accuracy.png", "accuracy over transactions"),
        ("dag.png", "who learnt from whom"),
        ("metrics.csv", "every round of every client"),
        ("summary.json", "the figures above"),
        ("ledger.dagacfl", "the whole ledger; check it: dag-acfl ledger verify " + str(folder / "ledger.dagacfl")),
        ("config.toml", "what was run"),
    ):
        grid.add_row(f"  {folder / name}", what)
    steps = Text()
    if urls:
        steps.append(f"\nThe ledger is still served on {', '.join(urls)} (Ctrl-C to stop).\n", style="bold")
    steps.append("\nYour own model: dag-acfl client init my_client.py")
    return Group(Text("files", style="bold"), grid, steps)
