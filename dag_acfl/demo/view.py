"""How a running demo shows itself: a live table in a terminal, plain lines elsewhere."""

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, Self

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text

from dag_acfl.demo.progress import Progress, Update
from fl_simulator.plots.style import cluster_colour

_SPARKS: Final = "▁▂▃▄▅▆▇█"
_SPARK_FLOOR: Final = 0.1


class View:
    """What the demo tells while it runs; used as a context manager. This one prints a line for each news."""

    def __init__(self, progress: Progress, console: Console) -> None:
        self._progress, self._console = progress, console
        self._started, self._rounds_told = time.monotonic(), 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def say(self, phase: str) -> None:
        """A new phase begins."""
        seconds = time.monotonic() - self._started
        self._console.print(f"[{seconds:5.1f} s] {phase}", highlight=False, markup=False, soft_wrap=True)

    def show(self, update: Update) -> None:
        """An update was published: tell moves, and each time that every client has come one further."""
        mine = self._progress.of_client[update.client]
        if len(mine) > 1 and mine[-1].server != mine[-2].server:
            self.say(
                f"client {update.client + 1} moved from server {mine[-2].server + 1} to server {update.server + 1}"
            )
        rounds = min(map(len, self._progress.of_client))
        if rounds > self._rounds_told:
            self._rounds_told = rounds
            latest = [updates[rounds - 1].accuracy for updates in self._progress.of_client]
            counts = map(self._progress.approvals, range(len(self._progress.clusters)))
            same, foreign = (sum(each) for each in zip(*counts, strict=True))
            self.say(
                f"everybody has {rounds} of {self._progress.target} updates: accuracy {sum(latest) / len(latest):.3f}, "
                f"approvals {same} same cluster, {foreign} foreign"
            )


class LiveView(View):
    """The table of clients, redrawn in place, with a progress bar under it."""

    def __init__(self, progress: Progress, console: Console, labels: Sequence[str], *, servers: int) -> None:
        super().__init__(progress, console)
        self._labels, self._servers, self._phase = labels, servers, ""
        self._bars = Bars(
            TextColumn("updates"),
            BarColumn(bar_width=None, complete_style="#0072B2", finished_style="#009E73"),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            console=console,
            expand=True,
        )
        self._bar = self._bars.add_task("updates", total=progress.total)
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=8, vertical_overflow="crop")

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def say(self, phase: str) -> None:
        """Show the phase in the title."""
        self._phase = phase

    def show(self, update: Update) -> None:  # noqa: ARG002 (the table is drawn from all that was heard)
        """Move the bar."""
        self._bars.update(self._bar, completed=self._progress.count)

    def _render(self) -> RenderableType:
        table = Table(
            box=box.SIMPLE_HEAD,
            title=f"[bold]dag-acfl demo[/]  [dim]{self._phase}[/]",
            title_justify="left",
            title_style="",
            expand=True,
            padding=(0, 1),
            show_edge=False,
        )
        for name in ("client", "cluster", *(["server"] if self._servers > 1 else []), "updates", "same", "foreign"):
            table.add_column(name, justify="left" if name in ("cluster", "server") else "right", no_wrap=True)
        table.add_column("accuracy", justify="right", no_wrap=True)
        table.add_column("", no_wrap=True, ratio=1, min_width=min(self._progress.target, 16))
        for client in range(len(self._progress.clusters)):
            table.add_row(*self._cells(client))
        return Group(table, self._bars)

    def _cells(self, client: int) -> list[RenderableType]:
        updates = self._progress.of_client[client]
        cluster = self._progress.clusters[client]
        colour = cluster_colour(cluster)
        same, foreign = self._progress.approvals(client)
        stays = [update.server + 1 for update in updates]
        moved = [before for before, after in pairwise(stays) if before != after]
        server = (
            Text(f"{moved[-1]} → {stays[-1]}", style="bold yellow") if moved else Text("".join(map(str, stays[-1:])))
        )
        return [
            Text(f"{client + 1}"),
            Text(f"● {self._labels[cluster]}", style=colour),
            *([server] if self._servers > 1 else []),
            Text(f"{len(updates)}/{self._progress.target}"),
            Text(f"{same}" if updates else ""),
            Text(f"{foreign}" if updates else "", style="bold red" if foreign else "dim"),
            Text(f"{updates[-1].accuracy:.2f}" if updates else ""),
            Text(sparkline([update.accuracy for update in updates[-16:]]), style=colour),
        ]


def sparkline(values: Sequence[float]) -> str:
    """Values in [0, 1] as block characters; chance level for ten classes and below is the lowest."""
    steps = len(_SPARKS) - 1
    scaled = (max(0.0, min(1.0, (value - _SPARK_FLOOR) / (1 - _SPARK_FLOOR))) for value in values)
    return "".join(_SPARKS[round(value * steps)] for value in scaled)
