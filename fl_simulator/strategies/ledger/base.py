"""What strategies whose clients meet on a ledger have in common: its genesis, and how others look at it."""

from itertools import islice
from statistics import fmean
from typing import ClassVar, Final

from fl_core.clusters import Approvals, count_approvals
from fl_core.dag.genesis import FRESHNESS, NO_BOUND, Bounds, Component, Genesis, compare_all, compare_layers
from fl_core.types import AuthorId, TxId
from fl_simulator.engine.world import World
from fl_simulator.ledgers.network import VirtualServers
from fl_simulator.strategies.protocol import Edge, Figures, Reporting

ANY_EXAMPLES: Final = Component("examples", {"factor": 1_000_000})
"""Nor do the papers bound what an author claims to have trained on."""
ANY_STEP: Final = Bounds(max_first_step=NO_BOUND, max_step_growth=NO_BOUND, max_layer_growth=NO_BOUND)
"""Neither paper bounds steps; a real ledger does (``fl_core.dag.steps``)."""


class LedgerStrategy(Reporting):
    """A strategy whose clients meet on a ledger: what measuring asks of it."""

    servers: VirtualServers
    """The servers and all that was published."""
    weighs_examples: ClassVar = True
    """Whether averages weigh models by their examples; else all alike."""
    _traced: int = 1
    """Transactions whose edges were taken; genesis has none."""

    @property
    def ledger(self) -> VirtualServers:
        return self.servers

    def approvals(self) -> Approvals:
        graph = self.servers.nodes[0].graph

        def author(transaction: TxId) -> AuthorId | None:
            node = graph.get(transaction)
            return None if node is None or not node.parents else node.author

        return count_approvals(
            (node.author, [author(parent) for parent in node.parents]) for node in graph if node.parents
        )

    def take_edges(self) -> list[Edge]:
        """See ``Reporting.take_edges``; genesis, which is nobody's, is left out."""
        record, client_of = self.servers.record, self.servers.client_of
        edges: list[Edge] = []
        for identity in islice(record, self._traced, None):
            header = record.transaction(identity).header
            parents = [record.transaction(parent).header for parent in header.parents]
            weights = [parent.num_examples if self.weighs_examples else 1 for parent in parents]
            target = client_of(header.author)
            for parent, weight in zip(parents, weights, strict=True):
                source = client_of(parent.author)
                if source is not None and target is not None:
                    edges.append((source, target, weight / sum(weights)))
        self._traced = len(record)
        return edges

    def figures(self, *, evaluated: bool) -> Figures:  # noqa: ARG002 (they cost nothing)
        return {
            "tips": max(each.graph.tip_count() for each in self.servers.nodes),
            "transactions": len(self.servers.record),
            "parents": fmean([len(node.parents) for node in self.servers.nodes[0].graph if node.parents] or [0]),
            "storage_bytes": self.servers.record.ledger_bytes,
        }


def genesis_of(
    world: World,
    *,
    selector: Component,
    aggregator: Component,
    bounds: Bounds,
    candidates: str = "tips",
    freshness: Component = FRESHNESS,
    weights: Component | None = None,
) -> Genesis:
    """The rules of a simulated ledger."""
    layout = world.trainer.layout
    names = [tensor.name for tensor in layout.tensors]
    return Genesis(
        name="simulation",
        layout=layout,
        comparison=compare_layers(sorted(world.similarity_layers, key=names.index))
        if world.similarity_layers
        else compare_all(layout),
        selector=selector,
        aggregator=aggregator,
        training={"epochs": world.training.epochs, "initial_epochs": world.training.initial_epochs},
        bounds=bounds,
        candidates=Component(candidates),
        freshness=freshness,
        weights=weights or ANY_EXAMPLES,
    )
