"""All pictures of an experiment: of each of its settings, and those that its file asks for."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from fl_simulator.config.experiment import PlannedRun
from fl_simulator.config.report_plan import Plateau, ReportPlan
from fl_simulator.data.errors import DataError
from fl_simulator.errors import PartitionError
from fl_simulator.plots.clustering import draw_communities, draw_misclassified, draw_satisfaction
from fl_simulator.plots.curves import draw_curves, draw_worst_client
from fl_simulator.plots.deviations import draw_changes, draw_deviations
from fl_simulator.plots.labels import draw_label_distribution
from fl_simulator.plots.nodes import NodeSeries, draw_node_accuracy, draw_node_curves
from fl_simulator.plots.series import Over, Series, over_seeds
from fl_simulator.plots.similarities import draw_change_points, draw_similarities
from fl_simulator.plots.style import CLUSTER_COLOURS
from fl_simulator.plots.trajectories import draw_collapse, draw_trajectories, least_loss, place_of
from fl_simulator.report import PlateauFigures, Report
from fl_simulator.run.folder import Run, read_choices, read_clients
from fl_simulator.run.prepare import build_population
from fl_simulator.run.record import RoundRecord


def draw_experiment(
    runs: Sequence[Run],
    folder: Path,
    *,
    report: Report | None = None,
) -> list[Path]:
    """Draw what there is to draw: a method's seeds become one line, a setting's methods one picture.

    Args:
        runs: Of one experiment. Unfinished ones are drawn where a method has no finished one, as far as they are.
        folder: Where pictures go; made if it is not there.
        report: Of these runs. Its methods decide colours, which are the same in all pictures, its rows the order of
            settings, and its plan what else is drawn; by default all go by the order of the runs, and nothing else is.

    Returns:
        The pictures: of each setting its curves, and its communities, satisfaction, misclassification, deviations and
        changes of parameters where a method has such figures, in virtual time over its clock, and then the worst-off
        client's accuracy, too; of each method on a ledger what one client was offered last. Of each setting its nodes,
        and of all settings together their trajectories and their curves over scaled time, where they are asked for.

    Raises:
        MatplotlibMissingError: matplotlib is not installed.
    """
    plan = ReportPlan() if report is None else report.plan
    methods = () if report is None else report.methods
    if report is not None:
        order = {(row.setting, row.participation, row.rounds): place for place, row in enumerate(report.rows)}
        runs = sorted(runs, key=lambda run: order.get(_key(run), len(order)))
    places = {name: place for place, name in enumerate(dict.fromkeys([*methods, *(run.label.method for run in runs)]))}
    settings: dict[tuple[str, float, int], dict[str, list[Run]]] = {}
    for run in runs:
        settings.setdefault(_key(run), {}).setdefault(run.label.method, []).append(run)
    folder.mkdir(parents=True, exist_ok=True)
    drawn: list[Path] = []
    for (setting, participation, rounds), by_method in settings.items():
        series = [
            Series(method, _rounds(by_method[method]), places[method])
            for method in sorted(by_method, key=lambda name: places[name])
        ]
        durations = [run.duration_s for those in by_method.values() for run in those if run.duration_s is not None]
        over: Over = "virtual_time_s" if durations else "round"
        words = f"{setting}, participation {participation:g}"
        name = _slug(f"{setting} {participation:g} {f'{min(durations):.10g}s' if durations else rounds}")
        pictures = [*_PICTURES, _WORST] if durations else _PICTURES
        for kind, what, figure, draw in pictures:
            with_figure = [each for each in series if over_seeds(each, figure, over=over) is not None]
            if with_figure:
                path = folder / f"{name}-{kind}.png"
                more = {"true_clusters": _true_clusters(by_method)} if kind == "communities" else {}
                draw(with_figure, path, title=f"{words}: {what}", over=over, **more)
                drawn.append(path)
        if plan.nodes is not None:
            drawn += _draw_nodes(series, by_method, folder / name, words=words, lowest=plan.nodes.lowest)
        for method, those in by_method.items():
            drawn += _draw_one_choice(those[0], folder / f"{name}-{_slug(method)}", title=f"{words}, {method}")
    if plan.trajectories is not None:
        drawn += _draw_trajectories(settings, folder, places=places, plan=plan)
    if plan.plateau is not None and report is not None:
        drawn += _draw_collapses(settings, folder, plateaus=report.plateaus, plan=plan.plateau)
    return drawn


def draw_populations(
    planned: Iterable[PlannedRun], folder: Path, *, skipped: Callable[[str], object] = lambda _why: None
) -> list[Path]:
    """Draw which labels each client has (Fig. 6): a picture for each way to share samples out, by its first seed.

    Args:
        planned: Runs of one experiment.
        folder: Where pictures go; made if it is not there.
        skipped: Told why there is no picture: the data set is not here, its samples cannot be shared out so, or clients
            are too many to be seen.

    Raises:
        MatplotlibMissingError: matplotlib is not installed.
    """
    first: dict[str, PlannedRun] = {}
    for run in planned:
        shared = {section: run.scenario.sections()[section] for section in ("data", "partition")}
        first.setdefault(repr((shared, run.scenario.run.train_fraction)), run)
    folder.mkdir(parents=True, exist_ok=True)
    drawn: list[Path] = []
    for run in first.values():
        setting, seed = run.label.setting, run.label.seed
        try:
            population = build_population(run.scenario)
        except (DataError, PartitionError) as error:
            skipped(f"labels of {setting}: {error}")
            continue
        if population.num_clients > _MOST_BARS:
            skipped(f"labels of {setting}: {population.num_clients} clients are too many to be seen")
            continue
        path = folder / f"{_slug(setting)}-labels.png"
        if path in drawn:  # a method of the setting has samples of its own
            path = folder / f"{_slug(f'{setting} {run.label.method}')}-labels.png"
        clients, clusters = population.num_clients, population.num_clusters
        title = f"{setting}, seed {seed}: labels of {clients} clients in {clusters} cluster{'s' * (clusters != 1)}"
        draw_label_distribution(population, path, title=title)
        drawn.append(path)
    return drawn


def _draw_nodes(
    series: Sequence[Series], by_method: Mapping[str, Sequence[Run]], path: Path, *, words: str, lowest: float
) -> list[Path]:
    """How a setting's nodes differ; nothing where no run has kept them."""
    kept = [(each, [read_clients(run.path) for run in _finished(by_method[each.name])]) for each in series]
    nodes = [
        NodeSeries(each, those)
        for each, found in kept
        if (those := tuple(figures for figures in found if figures is not None and np.isfinite(figures.accuracy).any()))
    ]
    if not nodes:
        return []
    curves, last = path.with_name(f"{path.name}-node-curves.png"), path.with_name(f"{path.name}-nodes.png")
    draw_node_curves(nodes, curves, lowest=lowest, title=f"{words}: nodes")
    draw_node_accuracy(nodes, last, lowest=lowest, title=f"{words}: each node's accuracy at the end")
    return [curves, last]


_Settings: TypeAlias = Mapping[tuple[str, float, int], Mapping[str, Sequence[Run]]]


def _draw_trajectories(settings: _Settings, folder: Path, *, places: Mapping[str, int], plan: ReportPlan) -> list[Path]:
    """All settings of a participation in one picture of loss."""
    assert plan.trajectories is not None
    bound = plan.trajectories.limit
    drawn = []
    for participation in dict.fromkeys(key[1] for key in settings):
        rows = [(key, by_method) for key, by_method in settings.items() if key[1] == participation]
        names = list(dict.fromkeys(key[0] for key, _ in rows))
        methods = [
            name
            for name in sorted(places, key=lambda name: places[name])
            if name != bound and any(name in by_method for _, by_method in rows)
        ]
        series, limits, batches = [], [], {}
        for (setting, _, _), by_method in rows:
            for method, those in by_method.items():
                if len(names) == 1:
                    name, place = method, places[method]
                elif method == bound or len(methods) == 1:
                    name, place = setting, place_of(names.index(setting), 0)
                else:
                    name, place = f"{setting}, {method}", place_of(names.index(setting), methods.index(method))
                look = Series(name, _rounds(those), place)
                if method == bound:
                    if (least := least_loss(look)) is not None:
                        limits.append((least, look))
                elif over_seeds(look, "loss") is not None:
                    series.append(look)
                    batches[name] = plan.batches.get(setting, 1.0)
        if series:
            path = folder / f"{_slug(f'{participation:g} trajectories')}.png"
            series.sort(key=lambda each: (each.place // len(CLUSTER_COLOURS), each.place))
            draw_trajectories(
                series, path, batches=batches if plan.batches else {}, limits=limits, highest=plan.trajectories.highest
            )
            drawn.append(path)
    return drawn


def _draw_collapses(
    settings: _Settings, folder: Path, *, plateaus: Sequence[PlateauFigures], plan: Plateau
) -> list[Path]:
    """Of each method with an exponent that is asked for, its settings over scaled time."""
    drawn = []
    for found in plateaus:
        if found.exponent is None or plan.method not in ("", found.method):
            continue
        series = [
            (Series(setting, _rounds(by_method[found.method]), place_of(found.settings.index(setting), 0)), nodes)
            for (setting, participation, _), by_method in settings.items()
            if participation == found.participation and found.method in by_method and setting in found.settings
            for nodes in [found.nodes[found.settings.index(setting)]]
        ]
        path = folder / f"{_slug(f'{found.participation:g} {found.method} collapse')}.png"
        title = f"{found.method}: test loss over scaled time"
        draw_collapse(series, path, exponent=found.exponent, threshold=plan.threshold, title=title)
        drawn.append(path)
    return drawn


def _draw_one_choice(run: Run, path: Path, *, title: str) -> list[Path]:
    """What one client was offered in the run's last round (Fig. 4, Fig. 5); which client, the run's seed decides."""
    kept = read_choices(run.path)
    choices = [each for each in kept[0] if len(each.ranked_by)] if kept is not None else []
    if kept is None or not choices:
        return []
    choice = choices[run.label.seed % len(choices)]
    title = f"{title}: client {choice.client}"
    heat = path.with_name(f"{path.name}-similarities.png")
    draw_similarities(choice.ranked_by, kept[1][choice.offered], heat, cut=len(choice.taken), title=title)
    if not len(choice.probabilities):
        return [heat]
    line = path.with_name(f"{path.name}-change-points.png")
    draw_change_points(choice.ranked_by, choice.probabilities, line, cut=len(choice.taken), title=title)
    return [heat, line]


def _true_clusters(by_method: Mapping[str, Sequence[Run]]) -> int | None:
    """How many there are, if a run has kept it and no other says otherwise: a partition may depend on the seed."""
    kept = [found for those in by_method.values() for run in those if (found := read_choices(run.path)) is not None]
    counts = {len(np.unique(clusters)) for _, clusters in kept}
    return counts.pop() if len(counts) == 1 else None


def _key(run: Run) -> tuple[str, float, int]:
    return run.label.setting, run.label.participation, run.label.rounds


def _slug(words: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", words.lower()).strip("-")


_PICTURES: Final[tuple[tuple[str, str, str, Callable[..., Any]], ...]] = (
    ("curves", "accuracy and loss", "accuracy", draw_curves),
    ("communities", "communities", "communities", draw_communities),
    ("satisfaction", "satisfaction rate", "satisfaction", draw_satisfaction),
    ("misclassified", "misclassified clients", "misclassified", draw_misclassified),
    ("deviations", "standard deviations of parameters", "sigma_an", draw_deviations),
    ("changes", "changes by aggregation and training", "change_by_aggregation", draw_changes),
)
_WORST: Final = ("worst-client", "the worst-off client", "worst", draw_worst_client)
"""Of each picture the file's ending, the title, a figure without which there is none, and who draws it."""


_MOST_BARS: Final = 1000


def _rounds(runs: Sequence[Run]) -> tuple[Sequence[RoundRecord], ...]:
    return tuple(run.records for run in _finished(runs))


def _finished(runs: Sequence[Run]) -> Sequence[Run]:
    """The finished ones, or all where none is: an unfinished one would cut the others' line short."""
    return [run for run in runs if run.finished] or runs
