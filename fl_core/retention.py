"""Which models are kept when a ledger is pruned, and which may go.

Kept, and docs/adr/0016 says why:

* genesis: everything is compared with it;
* each author's newest transaction: its author comes back with that hash and is compared by that model;
* every tip within the freshness window: whoever publishes may still approve it;
* the last generations, as many as the operator of the server wants.

All else is history: nobody can be offered it, and nobody's average is made of it. Once a transaction may be pruned,
it may for ever: depth, approvals and newer transactions only ever grow. Headers, signatures and evidence are never
pruned. A model that several transactions carry goes when all of them let it go, which is the caller's to see.
"""

from dataclasses import dataclass
from typing import Self

from fl_core.candidates.tips import oldest_fresh_depth
from fl_core.dag.genesis import Genesis
from fl_core.dag.graph import Graph, Node
from fl_core.errors import ParameterError
from fl_core.types import TxId


@dataclass(frozen=True, slots=True)
class Retention:
    """What a ledger keeps: as of one time, and it holds for ever after.

    Attributes:
        oldest_depth: From this depth on, everything is kept.
        singled_out: What is kept whatever its depth.
    """

    oldest_depth: int
    singled_out: frozenset[TxId]

    @classmethod
    def of(cls, graph: Graph, genesis: Genesis, *, keep_generations: int) -> Self:
        """What is kept as of now.

        Args:
            graph: The ledger's transactions.
            genesis: Its rules.
            keep_generations: How many of the deepest generations keep all their models, at least 1.

        Raises:
            ParameterError: ``keep_generations`` is below 1.
        """
        if keep_generations < 1:
            raise ParameterError(f"keep_generations must be at least 1, not {keep_generations}")
        oldest_fresh = oldest_fresh_depth(graph, genesis)
        fresh = (tip.id for tip in graph.tip_nodes() if tip.depth >= oldest_fresh)
        newest = (node.id for node in graph.newest_nodes())
        return cls(graph.deepest - keep_generations + 1, frozenset((graph.genesis.id, *fresh, *newest)))

    def keeps(self, node: Node) -> bool:
        """Whether this transaction keeps its model; one that came later does."""
        return node.depth >= self.oldest_depth or node.id in self.singled_out
