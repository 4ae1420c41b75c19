"""What is measured of a run: a round's figures, every client's, and the run's costs beside DAG-ACFL's formulas.

True clusters and test samples judge here; they decide nothing.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import Any, Final

import numpy as np

from fl_simulator.config.scenario import Scenario
from fl_simulator.engine.evaluation import Interval
from fl_simulator.engine.world import World
from fl_simulator.metrics.accuracy import summarise_accuracy
from fl_simulator.metrics.allocation import label_gini
from fl_simulator.metrics.attacks import accuracy_of_cluster_means, judge_attack
from fl_simulator.metrics.clustering import judge_approvals, judge_groups, judge_selections
from fl_simulator.metrics.costs import Sizes, summarise_costs
from fl_simulator.run.peak_memory import PeakMemory
from fl_simulator.run.record import RoundRecord
from fl_simulator.strategies.asynchronous.protocol import AsynchronousStrategy
from fl_simulator.strategies.protocol import Figures, Reporting, Strategy

_BY_TRUE_CLUSTERS: Final = (
    *("purity", "misclassified", "adjusted_rand"),
    *("satisfaction", "satisfaction_min", "cross_cluster_rate"),
)


def record_of(
    interval: Interval,
    world: World,
    strategy: Strategy | AsynchronousStrategy,
    scenario: Scenario,
    memory: PeakMemory,
) -> RoundRecord:
    """A round's figures."""
    figures: dict[str, Any] = {**strategy.figures(evaluated=interval.evaluation is not None)}
    if interval.evaluation is not None:
        figures |= summarise_accuracy(interval.evaluation)
        figures |= _cluster_figures(world, strategy, communities=scenario.run.communities)
    if strategy.ledger is not None:
        figures |= selection_figures(world, strategy)
    if world.attack is not None and interval.evaluation is not None:
        figures |= judge_attack(interval, world.attack)
        figures |= {"cluster_mean": accuracy_of_cluster_means(world, strategy, interval.evaluated)}
    if not world.population.clusters_known:
        figures = {name: value for name, value in figures.items() if name not in _BY_TRUE_CLUSTERS}
    if scenario.asynchronous is not None:
        figures |= {"results": interval.results, "lost": interval.lost}
    return RoundRecord(
        round=interval.number,
        virtual_time_s=interval.virtual_time_s,
        participants=len(interval.participants),
        up_bytes=interval.traffic.up,
        down_bytes=interval.traffic.down,
        between_servers_bytes=interval.traffic.between_servers,
        seconds=world.stopwatch.take(),
        peak_memory_bytes=memory.read_bytes(),
        **figures,
    )


def selection_figures(world: World, strategy: Reporting) -> Figures:
    """Of honest clients' selections, and of what their ledger has refused."""
    assert strategy.ledger is not None
    attackers = frozenset() if world.attack is None else world.attack.clients
    choices = [choice for choice in strategy.choices if choice.client not in attackers]
    refused, theirs = strategy.ledger.refused, sorted(attackers)
    return {
        **judge_selections(choices, world.population.clusters),
        "averaged": fmean(choice.averaged for choice in choices) if choices else None,
        "own_model": fmean(not choice.taken.size for choice in choices) if choices else None,
        "updates_refused": int(refused.sum() - refused[theirs].sum()),
        "attacks_refused": int(refused[theirs].sum()) if theirs else None,
    }


def _cluster_figures(world: World, strategy: Reporting, *, communities: bool) -> Figures:
    truth = world.population.clusters
    if strategy.ledger is None:
        groups = strategy.groups()
        return {} if groups is None else judge_groups(groups, truth)
    approvals = strategy.approvals() if communities else None
    authors = dict(zip(strategy.ledger.authors, truth.tolist(), strict=True))
    return {} if approvals is None else judge_approvals(approvals, authors)


def client_rows(interval: Interval) -> list[tuple[object, ...]]:
    """Every client that was evaluated and has test samples: its number, accuracy, loss, and 1 if it was ever heard."""
    if interval.evaluation is None:
        return []
    accuracy, loss = interval.evaluation.accuracy.astype(np.float32), interval.evaluation.loss.astype(np.float32)
    heard = np.isin(interval.evaluated, interval.heard).astype(int)
    rows = zip(interval.evaluated.tolist(), accuracy, loss, heard, strict=True)
    return [row for row in rows if np.isfinite(row[1])]


def summary_of(
    world: World, strategy: Strategy | AsynchronousStrategy, scenario: Scenario, records: Sequence[RoundRecord]
) -> dict[str, Any]:
    """What a run's summary tells beside its rounds: how unequal the clients' data are, the graph's size, and costs.

    Costs stand beside [DAG-ACFL] Tables III and IV, for a method that they have, in rounds. There |C| is the mean of
    participants, |σ| that of transactions, and a client's data are as large as they are here, with four bytes a pixel.
    """
    about: dict[str, Any] = {"gini": label_gini(world.population.train_label_counts)}
    if world.graph is not None:
        about |= {"edges": world.graph.num_edges, "edges_per_node": world.graph.edges_per_node}
    servers = strategy.ledger
    transactions = 0 if servers is None else len(servers.record)
    sizes = Sizes(
        clients=world.num_clients,
        participants=round(fmean(record.participants for record in records)),
        model_bytes=world.model_bytes,
        data_bytes=world.population.images.nbytes // world.num_clients,
        servers=1 if servers is None else len(servers.nodes),
        groups=strategy.num_groups,
        extra_bytes=0 if servers is None else servers.record.ledger_bytes // transactions - world.model_bytes,
        transactions=transactions,
    )
    costs = None if scenario.asynchronous or scenario.client else summarise_costs(strategy.name, records, sizes)
    return about if costs is None else {**about, "costs": costs}
