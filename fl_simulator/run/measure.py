"""What is measured of a run: a round's figures, every client's, and the run's costs beside DAG-ACFL's formulas.

True clusters and test samples judge here; they decide nothing.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import Any, cast

import numpy as np

from fl_simulator.config.scenario import Scenario
from fl_simulator.engine.evaluation import Interval
from fl_simulator.engine.world import World
from fl_simulator.metrics import (
    ClusterSummary,
    RoundSizes,
    StorageSizes,
    judge_approvals,
    judge_groups,
    judge_selections,
    label_gini,
    summarise_accuracy,
    summarise_costs,
)
from fl_simulator.run.peak_memory import PeakMemory
from fl_simulator.run.record import ClientFigures, CostSummary, RoundRecord
from fl_simulator.strategies import Reporting, Strategy
from fl_simulator.strategies.asynchronous import AsynchronousStrategy

Method = Strategy | AsynchronousStrategy


def record_of(
    interval: Interval, world: World, strategy: Method, scenario: Scenario, memory: PeakMemory
) -> RoundRecord:
    """A round's figures.

    Args:
        interval: What happened.
        world: Whose true clusters judge.
        strategy: As it stands after the round.
        scenario: Says whether Louvain's communities are looked for at an evaluated round.
        memory: Of the run, from its beginning.
    """
    accuracy = None if interval.evaluation is None else summarise_accuracy(interval.evaluation, interval.evaluated)
    clusters = None if accuracy is None else _clusters(world, strategy, communities=scenario.run.communities)
    truth = world.population.clusters
    selections = None if strategy.ledger is None else judge_selections(strategy.choices, truth)
    return RoundRecord(
        round=interval.number,
        virtual_time_s=interval.virtual_time_s,
        participants=len(interval.participants),
        up_bytes=interval.traffic.up,
        down_bytes=interval.traffic.down,
        between_servers_bytes=interval.traffic.between_servers,
        seconds=world.stopwatch.take(),
        results=None if scenario.asynchronous is None else interval.results,
        lost=None if scenario.asynchronous is None else interval.lost,
        accuracy=None if accuracy is None else accuracy.mean,
        worst_decile=None if accuracy is None else accuracy.worst_decile,
        worst_client=None if accuracy is None else accuracy.worst,
        best_client=None if accuracy is None else accuracy.best,
        loss=None if accuracy is None else accuracy.loss,
        modularity=None if clusters is None else clusters.modularity,
        communities=None if clusters is None else clusters.communities,
        purity=None if clusters is None else clusters.purity,
        misclassified=None if clusters is None else clusters.misclassified,
        satisfaction=None if selections is None else selections.mean,
        satisfaction_min=None if selections is None else selections.minimum,
        cross_cluster_rate=None if selections is None else selections.foreign,
        peak_memory_bytes=memory.read_bytes(),
        **cast("dict[str, Any]", strategy.figures(evaluated=accuracy is not None)),
    )


def summary_of(world: World) -> dict[str, Any]:
    """What a run's summary tells beside its rounds: how unequal the clients' data are, and the graph's size."""
    about: dict[str, Any] = {"gini": label_gini(world.population.train_label_counts)}
    if world.graph is not None:
        about |= {"edges": world.graph.num_edges, "edges_per_node": world.graph.edges_per_node}
    return about


def _clusters(world: World, strategy: Reporting, *, communities: bool) -> ClusterSummary | None:
    if strategy.ledger is not None:
        approvals = strategy.approvals() if communities else None
        truth = dict(zip(strategy.ledger.authors, world.population.clusters.tolist(), strict=True))
        return None if approvals is None else judge_approvals(approvals, truth)
    groups = strategy.groups()
    return None if groups is None else judge_groups(groups, world.population.clusters)


def costs_of(world: World, strategy: Method, records: Sequence[RoundRecord]) -> CostSummary | None:
    """The run beside Tables III and IV: |C| is the mean of participants, |σ| that of transactions, and a client's data
    are as large as they are here, with four bytes a pixel.
    """
    servers = strategy.ledger
    transactions = 0 if servers is None else len(servers.record)
    extra = 0 if servers is None else servers.record.ledger_bytes // transactions - world.model_bytes
    return summarise_costs(
        strategy.name,
        records,
        moved=RoundSizes(
            clients=world.num_clients,
            participants=round(fmean(record.participants for record in records)),
            model_bytes=world.model_bytes,
            servers=1 if servers is None else len(servers.nodes),
            groups=strategy.num_groups,
            extra_bytes=extra,
        ),
        stored=StorageSizes(
            clients=world.num_clients,
            model_bytes=world.model_bytes,
            data_bytes=world.population.images.nbytes // world.num_clients,
            extra_bytes=extra,
            transactions=transactions,
        ),
    )


def client_figures_of(interval: Interval, world: World) -> ClientFigures | None:
    if interval.evaluation is None:
        return None
    accuracy, loss = np.full((2, world.num_clients), np.nan, dtype=np.float32)
    accuracy[interval.evaluated] = interval.evaluation.accuracy
    loss[interval.evaluated] = interval.evaluation.loss
    return ClientFigures(accuracy, loss)
