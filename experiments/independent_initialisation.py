"""What clients that start from different models gain by DecDiff, by the gain, and by the virtual teacher.

Plays ``independent_initialisation.toml`` (digits), or another such table, in virtual time, and looks where reports do
not: at the moment when a client receives its first average of several models. Its accuracy a moment before, with the
model that it asks with, and a moment after, with what its merge makes of the average, are the paper's disruption
(DecDiff+VT, Sec. IV-A). Writes ``figures.json`` and ``table.md`` into ``results/<name>``.

    python -m experiments.independent_initialisation               some minutes on two cores
    python -m experiments.independent_initialisation independent_initialisation_mnist       half an hour
    dag-acfl simulate experiments/independent_initialisation.toml  the same runs and curves, without the first averages
"""

import argparse
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fl_core.types import Vector32
from fl_simulator.config.experiment import PlannedRun, read_experiment
from fl_simulator.engine.asynchronous import AsynchronousRun
from fl_simulator.engine.conditions import Conditions
from fl_simulator.engine.world import World
from fl_simulator.run.prepare import build_world
from fl_simulator.strategies.asynchronous import ASYNCHRONOUS_STRATEGIES
from fl_simulator.strategies.asynchronous.dag_acfl import AsynchronousDagAcfl
from fl_simulator.strategies.asynchronous.protocol import Assignment

HERE: Final = Path(__file__).resolve().parent
NAME: Final = "independent_initialisation"
GOAL: Final = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One run.

    Attributes:
        setting: Of the experiment.
        method: Likewise.
        seed: Likewise.
        before: Mean over clients of the accuracy of the model with which each asked for its first average.
        first: The same of the model that it went on from.
        averaged: Mean over clients of the number of models in the first average.
        time_to_goal: Seconds until the mean accuracy was ``GOAL``; None: never.
        final: Mean accuracy at the end.
        curve: Pairs of time and mean accuracy.
    """

    setting: str
    method: str
    seed: int
    before: float
    first: float
    averaged: float
    time_to_goal: float | None
    final: float
    curve: Sequence[tuple[float, float]] = field(repr=False, default=())


class Observed:
    """A strategy whose first averages are measured; everything else is the strategy's own."""

    def __init__(self, strategy: AsynchronousDagAcfl, world: World) -> None:
        self._strategy, self._world = strategy, world
        self.before: dict[int, float] = {}
        self.first: dict[int, float] = {}
        self.averaged: dict[int, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._strategy, name)

    def start(self, client: int, *, now: float) -> Assignment:
        """See ``AsynchronousStrategy.start``."""
        asked_with = self._strategy.model_of(client)
        assignment = self._strategy.start(client, now=now)
        parents = self._strategy.parents_of(client)
        if asked_with is not None and len(parents) > 1 and client not in self.first:
            self.before[client] = self._accuracy(asked_with, client)
            self.first[client] = self._accuracy(assignment.model, client)
            self.averaged[client] = len(parents)
        return assignment

    def _accuracy(self, model: Vector32, client: int) -> float:
        return float(self._world.evaluate(model[None], [0], [client]).accuracy[0])


def play(run: PlannedRun, *, on_moment: Any) -> Figures:
    """One run from beginning to end."""
    scenario, label = run.scenario, run.label
    assert scenario.asynchronous is not None, "the experiment is in virtual time"
    world = build_world(scenario)
    try:
        strategy = ASYNCHRONOUS_STRATEGIES.build(scenario.strategy.name, scenario.strategy.params, world)
        assert isinstance(strategy, AsynchronousDagAcfl)
        observed = Observed(strategy, world)
        conditions = Conditions(scenario.asynchronous.conditions, world.seeds, world.num_clients)
        curve = []
        for moment in AsynchronousRun(world, observed, conditions, scenario.asynchronous.schedule).play():
            assert moment.evaluation is not None, "everybody is evaluated from the beginning"
            curve.append((moment.virtual_time_s, round(float(moment.evaluation.accuracy.mean()), 6)))
            on_moment()
    finally:
        world.close()
    return Figures(
        setting=label.setting,
        method=label.method,
        seed=label.seed,
        before=statistics.fmean(observed.before.values()),
        first=statistics.fmean(observed.first.values()),
        averaged=statistics.fmean(observed.averaged.values()),
        time_to_goal=next((time for time, accuracy in curve if accuracy >= GOAL), None),
        final=curve[-1][1],
        curve=curve,
    )


def table(figures: Sequence[Figures], *, unit: str) -> str:
    """Markdown: a row for each setting and method, mean ± standard deviation over seeds."""
    lines = [
        f"| setting | method | before the first average | after it | models in it | {unit} to {GOAL:.0%} | end |",
        "|---|---|---|---|---|---|---|",
    ]
    for (setting, method), runs in _grouped(figures).items():
        cells = [
            _spread([run.before for run in runs], 3),
            _spread([run.first for run in runs], 3),
            _spread([run.averaged for run in runs], 1),
            _times([run.time_to_goal for run in runs]),
            _spread([run.final for run in runs], 3),
        ]
        lines.append(f"| {setting} | {method} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _grouped(figures: Sequence[Figures]) -> Mapping[tuple[str, str], list[Figures]]:
    groups: dict[tuple[str, str], list[Figures]] = {}
    for run in figures:
        groups.setdefault((run.setting, run.method), []).append(run)
    return groups


def _spread(values: Sequence[float], digits: int) -> str:
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.{digits}f}{spread}"


def _times(times: Sequence[float | None]) -> str:
    reached = [time for time in times if time is not None]
    if not reached:
        return "never"
    text = _spread(reached, 1)
    return text if len(reached) == len(times) else f"{text} ({len(reached)} of {len(times)} seeds)"


def write(figures: Sequence[Figures], folder: Path, *, unit: str, command: str, facts: Mapping[str, Any]) -> None:
    """Both files, replacing older ones."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"command": command, "goal": GOAL, **facts, "runs": [asdict(run) for run in figures]}
    (folder / "figures.json").write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    seeds = sorted({run.seed for run in figures})
    head = f"`{command}`; mean ± standard deviation over seeds {', '.join(map(str, seeds))}.\n\n"
    (folder / "table.md").write_text(head + table(figures, unit=unit), "utf-8")


def bars() -> Progress:
    """Progress with the time left, of the terminal where there is one."""
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()
    )


def say(shown: Progress, figures: Figures) -> None:
    """A line for a run that is done."""
    shown.console.print(
        f"{figures.setting}, {figures.method}, seed {figures.seed}: {figures.before:.3f} before the first average, "
        f"{figures.first:.3f} after it, {figures.final:.3f} at the end",
        highlight=False,
        soft_wrap=True,
    )


def played(runs: Sequence[PlannedRun]) -> Iterator[Figures]:
    """All runs, one after another."""
    with bars() as shown:
        task = shown.add_task("", total=sum(run.label.rounds for run in runs))
        for run in runs:
            shown.update(task, description=f"{run.label.setting}, {run.label.method}, seed {run.label.seed}")
            figures = play(run, on_moment=lambda: shown.advance(task))
            say(shown, figures)
            yield figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", default=NAME, help="of a file in experiments/, without .toml")
    name = parser.parse_args().name
    file, results = HERE / f"{name}.toml", HERE / "results" / name
    figures = list(played(read_experiment(file).runs))
    command = f"python -m experiments.{NAME}" + ("" if name == NAME else f" {name}")
    facts = {"experiment": str(file.relative_to(HERE.parent))}
    write(figures, results, unit="virtual seconds", command=command, facts=facts)
    print((results / "table.md").read_text("utf-8"))


if __name__ == "__main__":
    main()
