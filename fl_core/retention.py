"""Which models are kept when a ledger is pruned, and which may go.

Kept, and docs/adr/0052 says why:

* genesis: everything is compared with it;
* each author's newest update inside the freshness window: it can be offered, and its author is compared by it;
* what was received lately, as long back as the operator of the server wants, in ledger time.

All else is history: nobody can be offered it. An author who comes back after the window brings its model. Once a
transaction may be pruned, it may for ever: ledger time and newer transactions only ever grow. Headers, signatures and
evidence are never pruned. A model that several transactions carry goes when all of them let it go, which is the
caller's to see.
"""

from dataclasses import dataclass
from typing import Self

from fl_core.dag.genesis import Genesis
from fl_core.dag.graph import Graph, Node
from fl_core.errors import ParameterError
from fl_core.types import TxId


@dataclass(frozen=True, slots=True)
class Retention:
    """What a ledger keeps: as of one time, and it holds for ever after.

    Attributes:
        after_ms: What was received after this ledger time is kept.
        singled_out: What is kept however old it is.
    """

    after_ms: int
    singled_out: frozenset[TxId]

    @classmethod
    def of(cls, graph: Graph, genesis: Genesis, *, keep_ms: int) -> Self:
        """What is kept as of now.

        Args:
            graph: The ledger's transactions.
            genesis: Its rules.
            keep_ms: For how long superseded updates keep their models, in ledger time; at least 0.

        Raises:
            ParameterError: ``keep_ms`` is below 0.
        """
        if keep_ms < 0:
            raise ParameterError(f"models are kept for at least 0 ms, not {keep_ms}")
        oldest_fresh_ms = graph.now_ms - genesis.window_ms
        fresh = (node.id for node in graph.newest_nodes() if node.received_at_ms >= oldest_fresh_ms)
        return cls(graph.now_ms - keep_ms, frozenset((graph.genesis.id, *fresh)))

    def keeps(self, node: Node) -> bool:
        """Whether this transaction keeps its model; one that came later does."""
        return node.received_at_ms > self.after_ms or node.id in self.singled_out
