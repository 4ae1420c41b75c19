"""How a running trial shows itself: a live table in a terminal, plain lines elsewhere."""

import math
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

from dag_acfl.trial.progress import Progress, Update
from fl_simulator.plots.style import cluster_colour

_SPARKS: Final = "▁▂▃▄▅▆▇█"
_SPARK_FLOOR: Final = 0.1
_WORK_EVERY_S: Final = 15.0


class View:
    """What a trial tells while it runs; used as a context manager. This one prints a line for each news."""

    def __init__(self, progress: Progress, console: Console) -> None:
        self._progress, self._console = progress, console
        self._started = self._told = time.monotonic()
        self._rounds_told = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def say(self, phase: str) -> None:
        """A new phase begins."""
        self._told = time.monotonic()
        seconds = self._told - self._started
        self._console.print(f"[{seconds:5.1f} s] {phase}", highlight=False, markup=False, soft_wrap=True)

    def show_work(self, doing: str) -> None:
        """How far the phase is, told as often as it likes: shown in place, here now and then by a line."""
        if time.monotonic() - self._told >= _WORK_EVERY_S:
            self.say(doing)

    def show(self, update: Update) -> None:
        """An update was published: tell moves, and each time that every client has come one further."""
        mine = self._progress.of_client[update.client]
        if len(mine) > 1 and mine[-1].server != mine[-2].server:
            self.say(f"site {update.client} moved from server {mine[-2].server + 1} to server {update.server + 1}")
        rounds = min(map(len, self._progress.of_client))
        if rounds > self._rounds_told:
            self._rounds_told = rounds
            latest = [updates[rounds - 1].figure for updates in self._progress.of_client]
            finite = [value for value in latest if math.isfinite(value)]
            told = f"{sum(finite) / len(finite):.3f}" if finite else "not finite"
            if 0 < len(finite) < len(latest):
                told += f" at {len(finite)} of {len(latest)} sites, elsewhere not finite"
            counts = map(self._progress.approvals, range(len(self._progress.clusters)))
            same, foreign = (sum(each) for each in zip(*counts, strict=True))
            self.say(
                f"everybody has {rounds} of {self._progress.target} updates: {self._progress.figure} "
                f"{told}, {self._told_approvals(same, foreign)}"
            )

    def _told_approvals(self, same: int, foreign: int) -> str:
        if len(set(self._progress.clusters)) > 1:
            return f"approvals {same} same cluster, {foreign} foreign"
        return f"{same} models of others taken"


class LiveView(View):
    """The table of clients, redrawn in place, with a progress bar under it."""

    def __init__(
        self,
        progress: Progress,
        console: Console,
        *,
        title: str,
        kinds: Sequence[str],
        servers: int,
    ) -> None:
        super().__init__(progress, console)
        self._title, self._kinds, self._servers, self._phase = title, kinds, servers, ""
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

    def show_work(self, doing: str) -> None:
        """Show it in the title, too."""
        self._phase = doing

    def show(self, update: Update) -> None:  # noqa: ARG002 (the table is drawn from all that was heard)
        """Move the bar."""
        self._bars.update(self._bar, completed=self._progress.count)

    def _render(self) -> RenderableType:
        table = Table(
            box=box.SIMPLE_HEAD,
            title=Text.assemble((self._title, "bold"), "  ", (self._phase, "dim"), no_wrap=True, overflow="ellipsis"),
            title_justify="left",
            title_style="",
            expand=True,
            padding=(0, 1, 0, 0),  # with three servers that move and 16 updates it is 80 columns wide
            show_edge=False,
        )
        clusters = ["cluster"] if self._kinds else []
        servers = ["server"] if self._servers > 1 else []
        approved = ["same", "foreign"] if self._kinds else ["from others"]
        for name in ("site", *clusters, *servers, "updates", *approved, self._progress.figure):
            table.add_column(name, justify="left" if name in ("cluster", "server") else "right", no_wrap=True)
        table.add_column("", no_wrap=True, ratio=1, min_width=min(self._progress.target, 16))
        for client in range(len(self._progress.clusters)):
            table.add_row(*self._cells(client))
        return Group(table, self._bars)

    def _cells(self, client: int) -> list[RenderableType]:
        updates = self._progress.of_client[client]
        cluster = self._progress.clusters[client]
        colour = cluster_colour(cluster if self._kinds else client)
        same, foreign = self._progress.approvals(client)
        stays = [update.server + 1 for update in updates]
        moved = [before for before, after in pairwise(stays) if before != after]
        server = (
            Text(f"{moved[-1]} → {stays[-1]}", style="bold yellow") if moved else Text("".join(map(str, stays[-1:])))
        )
        return [
            Text(f"{client}"),
            *([Text(f"● {self._kinds[cluster]}", style=colour)] if self._kinds else []),
            *([server] if self._servers > 1 else []),
            Text(f"{len(updates)}/{self._progress.target}"),
            Text(f"{same}" if updates else ""),
            *([Text(f"{foreign}" if updates else "", style="bold red" if foreign else "dim")] if self._kinds else []),
            Text(_two_digits(updates[-1].figure) if updates else ""),
            Text(sparkline([update.figure for update in updates[-16:]], most=self._most), style=colour),
        ]

    @property
    def _most(self) -> float:
        """The top of the sparklines."""
        if self._progress.figure == "accuracy":
            return 1.0
        figures = (update.figure for updates in self._progress.of_client for update in updates)
        return max(filter(math.isfinite, figures), default=0.0) or 1.0


def _two_digits(figure: float) -> str:
    return f"{figure:.2f}" if math.isfinite(figure) else "–"


def sparkline(values: Sequence[float], *, most: float = 1.0) -> str:
    """Values in [0, ``most``] as block characters; the lowest tenth, chance level for ten classes, is the lowest.

    A value that is not finite is a gap.
    """
    steps = len(_SPARKS) - 1
    shares = ((value / most - _SPARK_FLOOR) / (1 - _SPARK_FLOOR) for value in values)
    return "".join(
        _SPARKS[round(max(0.0, min(1.0, share)) * steps)] if math.isfinite(share) else " " for share in shares
    )
