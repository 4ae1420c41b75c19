"""What a person sees of a running experiment: bars with the time left on a terminal, a line for each run elsewhere."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from fl_simulator.config.experiment import Experiment, PlannedRun
from fl_simulator.run.parallel import RoundFinished, RunEvent, RunFailed, RunFinished, RunStarted
from fl_simulator.run.record import RoundRecord

_TIME_OVER_S = 600.0
"""The time left is told by the rounds of so many seconds: methods differ in speed."""


class ProgressView:
    """Shows the events of ``play_all`` or ``play_on_ray``."""

    def __init__(self, experiment: Experiment, runs: Sequence[PlannedRun], folder: Path, console: Console) -> None:
        self._runs, self._folder, self._console = runs, folder, console
        self._title = experiment.title
        self._latest: dict[int, RoundRecord] = {}
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}"),
            console=console,
            speed_estimate_period=_TIME_OVER_S,
            disable=not console.is_terminal,
        )
        rounds = sum(run.label.rounds for run in runs)
        counted = "evaluations" if all(run.scenario.asynchronous for run in runs) else "rounds"
        self._all = self._bars.add_task(f"{len(runs)} runs", total=rounds, figures=counted)
        self._tasks: dict[int, TaskID] = {}
        self.failed: list[int] = []

    def __enter__(self) -> Self:
        runs = f"{len(self._runs)} run{'s' if len(self._runs) != 1 else ''}"
        self._console.print(
            f"{escape(self._title)}: {runs} into {escape(str(self._folder))}", highlight=False, soft_wrap=True
        )
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def on_event(self, event: RunEvent) -> None:
        index = event.index
        name, rounds = self._name(index), self._runs[index].label.rounds
        match event:
            case RunStarted(_, first):
                self._tasks[index] = self._bars.add_task(f"  {name}", total=rounds, completed=first, figures="")
                self._bars.advance(self._all, first)
            case RoundFinished(_, record):
                if record.accuracy is not None:
                    self._latest[index] = record
                figures = self._figures(index)
                self._bars.update(self._tasks[index], completed=record.round + 1, figures=figures)
                self._bars.advance(self._all)
            case RunFinished(_, finished, before):
                if before:
                    self._bars.advance(self._all, rounds)
                    self._say(name, "finished before")
                else:
                    self._hide(index)
                    self._say(name, self._figures(index) if finished else "stopped, with a checkpoint")
            case RunFailed(_, message):
                self.failed.append(index)
                self._hide(index)
                self._console.print(
                    f"[bold red]error:[/] {escape(name)}: {escape(message)}", highlight=False, soft_wrap=True
                )

    def _name(self, index: int) -> str:
        label = self._runs[index].label
        return f"{label.setting} {label.participation:g} {label.method} seed {label.seed}"

    def _figures(self, index: int) -> str:
        record = self._latest.get(index)
        if record is None or record.accuracy is None:
            return ""
        timed = record.results is not None
        when = f"at {record.virtual_time_s:,.10g} s" if timed else f"after {record.round + 1} rounds"
        figures = f"accuracy {record.accuracy:.4f} {when}"
        if record.loss is None or math.isfinite(record.loss):
            return figures
        return f"{figures}; loss {record.loss}: training diverged, lower training.learning_rate"

    def _hide(self, index: int) -> None:
        if index in self._tasks:
            self._bars.remove_task(self._tasks.pop(index))

    def _say(self, name: str, what: str) -> None:
        self._console.print(f"{escape(name)}: {escape(what)}", highlight=False, soft_wrap=True)
