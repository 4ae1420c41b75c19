"""What is measured of a run: a round's figures, every client's, and the run's costs beside the paper's formulas.

True clusters and test samples judge here; they decide nothing.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np

from fl_core.clusters import Approvals, count_approvals
from fl_core.types import AuthorId, TxId
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
from fl_simulator.strategies import STRATEGIES, DecentralisedStrategy, LedgerStrategy, Strategy
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
    selections = ledger = None
    if isinstance(strategy, LedgerStrategy):
        selections = judge_selections(strategy.choices, world.population.clusters)
        ledger = strategy.servers
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
        worst=None if accuracy is None else accuracy.worst,
        best=None if accuracy is None else accuracy.best,
        loss=None if accuracy is None else accuracy.loss,
        modularity=None if clusters is None else clusters.modularity,
        communities=None if clusters is None else clusters.communities,
        purity=None if clusters is None else clusters.purity,
        misclassified=None if clusters is None else clusters.misclassified,
        satisfaction=None if selections is None else selections.mean,
        satisfaction_min=None if selections is None else selections.minimum,
        foreign=None if selections is None else selections.foreign,
        tips=None if ledger is None else max(each.graph.tip_count() for each in ledger.nodes),
        transactions=None if ledger is None else len(ledger.record),
        storage_bytes=None if ledger is None else ledger.record.ledger_bytes,
        peak_memory_bytes=memory.read_bytes(),
        **_graph_figures(strategy, evaluated=accuracy is not None),
    )


def _graph_figures(strategy: Method, *, evaluated: bool) -> dict[str, float | None]:
    if not isinstance(strategy, DecentralisedStrategy):
        return {}
    figures: dict[str, float | None] = {"messages": strategy.messages}
    return {**figures, **strategy.dynamics().figures()} if evaluated else figures


def summary_of(world: World) -> dict[str, Any]:
    """What a run's summary tells beside its rounds: how unequal the clients' data are, and the graph's size."""
    about: dict[str, Any] = {"gini": label_gini(world.population.train_label_counts)}
    if world.graph is not None:
        about |= {"edges": world.graph.num_edges, "edges_per_node": world.graph.edges_per_node}
    return about


def _clusters(world: World, strategy: Method, *, communities: bool) -> ClusterSummary | None:
    if isinstance(strategy, LedgerStrategy):
        if not communities:
            return None
        authors = strategy.servers.authors
        truth = dict(zip(authors, world.population.clusters.tolist(), strict=True))
        return judge_approvals(approvals(strategy), truth)
    groups = strategy.groups()
    return None if groups is None else judge_groups(groups, world.population.clusters)


def approvals(strategy: LedgerStrategy) -> Approvals:
    """Who approved whom so far (Sec. IV-C)."""
    graph = strategy.servers.nodes[0].graph

    def author(transaction: TxId) -> AuthorId | None:
        node = graph.get(transaction)
        return None if node is None or not node.parents else node.author

    return count_approvals((node.author, [author(parent) for parent in node.parents]) for node in graph if node.parents)


def costs_of(scenario: Scenario, world: World, strategy: Method, records: Sequence[RoundRecord]) -> CostSummary | None:
    """The run beside Tables III and IV: |C| is the mean of participants, |σ| that of transactions, and a client's data
    are as large as they are here, with four bytes a pixel.
    """
    chosen = scenario.strategy
    servers = strategy.servers if isinstance(strategy, LedgerStrategy) else None
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
            groups=getattr(STRATEGIES.read_params(chosen.name, chosen.params), "clusters", 1),
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
