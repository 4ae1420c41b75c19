"""What a report of decentralised systems has beside accuracy: nodes, characteristic times, graphs, the plateau.

Each is made of runs that are there; ``[report]`` of an experiment's file asks for it. Rounds are counted here as they
were done: what is seen after the first round took one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from statistics import fmean, stdev
from typing import Final

import numpy as np

from fl_simulator.config.report_plan import Plateau
from fl_simulator.report.figures import Rounds, known
from fl_simulator.run.folder import Run
from fl_simulator.run.record import ClientFigures

SHARES: Final = (0.5, 0.8, 0.9, 0.95)
"""Of the reference's final accuracy: the columns of DecDiff's Table IV."""


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """Accuracy over nodes at the last evaluated round, nodes of all seeds together.

    Attributes:
        mean: Of all.
        std: Standard deviation over the nodes of a seed, not an estimate for others; root mean square over seeds. 0
            where all have one model.
        least: Of any node.
        greatest: Of any node.
        nodes: How many of each seed, its graph's.
    """

    mean: float
    std: float
    least: float
    greatest: float
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GraphFigures:
    """The graph of each seed, and how unequal its nodes' data are.

    Attributes:
        edges_per_node: Mean over nodes of the edges that end at a node.
        messages_per_node: Mean over nodes and rounds of what a node sends.
        gini: Of the nodes' label counts.
    """

    edges_per_node: tuple[float, ...]
    messages_per_node: tuple[float, ...]
    gini: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class PlateauFigures:
    """How long one method's loss stayed where chance has it, by the number of nodes.

    Attributes:
        method: Whose.
        participation: Of the rows.
        settings: Of the rows.
        nodes: How many in each setting.
        rounds: Of each setting each seed's, None for one that did not come below the threshold.
        exponents: mu of each seed that came below it in two settings or more: the slope of log rounds over log nodes.
    """

    method: str
    participation: float
    settings: tuple[str, ...]
    nodes: tuple[int, ...]
    rounds: tuple[tuple[int | None, ...], ...]
    exponents: tuple[float, ...]

    @property
    def exponent(self) -> float | None:
        """Mean over seeds; None without one."""
        return fmean(self.exponents) if self.exponents else None

    @property
    def exponent_std(self) -> float | None:
        """Sample standard deviation over seeds; None for fewer than two."""
        return stdev(self.exponents) if len(self.exponents) > 1 else None


def nodes_of(runs: Sequence[ClientFigures | None]) -> NodeFigures | None:
    """How nodes differed at the end; None where no run has kept its nodes' figures."""
    last = [each.accuracy[-1].astype(np.float64) for each in runs if each is not None and len(each.accuracy)]
    judged = [row[np.isfinite(row)] for row in last]
    accuracy = np.concatenate(judged) if judged else np.empty(0)
    if not len(accuracy):
        return None
    return NodeFigures(
        mean=float(accuracy.mean()),
        std=float(np.sqrt(np.mean([row.var() for row in judged if len(row)]))),
        least=float(accuracy.min()),
        greatest=float(accuracy.max()),
        nodes=tuple(len(row) for row in last),
    )


def graph_of(runs: Sequence[Run]) -> GraphFigures | None:
    """What these runs' graphs came to; None for a method without one."""
    edges = known(run.edges_per_node for run in runs)
    if not edges:
        return None
    messages = [known(record.messages for record in run.records) for run in runs]
    return GraphFigures(
        edges_per_node=edges,
        messages_per_node=tuple(fmean(sent) for sent in messages if sent),
        gini=known(run.gini for run in runs),
    )


def times_of(runs: Sequence[Rounds], *, reference: float | None) -> tuple[tuple[int | None, ...], ...]:
    """Rounds until the mean accuracy over nodes first was each of ``SHARES`` of a reference (DecDiff, Table IV).

    Args:
        runs: Finished ones.
        reference: The final accuracy of the reference, mean over its seeds; None where there is none yet.

    Returns:
        For each share a number for each run: None for one that never came there. Empty without runs or a reference.
    """
    if reference is None or not runs:
        return ()
    return tuple(tuple(_first(run, "accuracy", at_least=share * reference) for run in runs) for share in SHARES)


def plateau_rounds(run: Rounds, plan: Plateau) -> int | None:
    """Rounds from which on the mean test loss over nodes was below the threshold; None if it is not at the end.

    The first round below it would not do: a node that trains before anybody averages may be there once, and is then
    averaged back. A loss that is evaluated every k rounds is seen up to k - 1 rounds late.
    """
    evaluated = [(record.round + 1, record.loss) for record in run if record.loss is not None]
    at_the_end = takewhile(lambda each: each[1] < plan.threshold, reversed(evaluated))
    return min((rounds for rounds, _ in at_the_end), default=None)


def scaling_exponent(nodes: Sequence[int], rounds: Sequence[int | None]) -> float | None:
    """Mu of rounds ~ nodes^mu: the least-squares slope of logarithms; None for fewer than two different sizes."""
    points = np.array(
        [(size, count) for size, count in zip(nodes, rounds, strict=True) if count is not None], dtype=np.float64
    ).reshape(-1, 2)
    if len(np.unique(points[:, 0])) < 2:
        return None
    logs = np.log(points)
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])


def plateau_of(
    method: str,
    participation: float,
    runs: Mapping[str, Mapping[int, tuple[int, Rounds]]],
    plan: Plateau,
) -> PlateauFigures:
    """The plateau of one method's runs.

    Args:
        method: Whose.
        participation: Of all of them.
        runs: By setting and seed, how many nodes there were and the run's rounds.
        plan: What ends the plateau.
    """
    settings = [setting for setting, by_seed in runs.items() if by_seed]
    nodes = tuple(next(iter(runs[setting].values()))[0] for setting in settings)
    lengths = {
        setting: {seed: plateau_rounds(rounds, plan) for seed, (_, rounds) in sorted(runs[setting].items())}
        for setting in settings
    }
    seeds = sorted({seed for by_seed in lengths.values() for seed in by_seed})
    exponents = [scaling_exponent(nodes, [lengths[setting].get(seed) for setting in settings]) for seed in seeds]
    return PlateauFigures(
        method=method,
        participation=participation,
        settings=tuple(settings),
        nodes=nodes,
        rounds=tuple(tuple(lengths[setting].values()) for setting in settings),
        exponents=tuple(each for each in exponents if each is not None),
    )


def _first(run: Rounds, name: str, *, at_least: float) -> int | None:
    return next(
        (record.round + 1 for record in run if (value := getattr(record, name)) is not None and value >= at_least),
        None,
    )
