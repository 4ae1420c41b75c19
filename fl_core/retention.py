"""Which models are kept when a ledger is pruned, and which may go.

Kept, and docs/adr/0016 says why:

* genesis: everything is compared with it;
* each author's newest update inside the freshness window: it can be offered, and its author is compared by it;
* likewise each author's newest update that is not withheld, while something is quarantined;
* what was received lately, as long back as the operator of the server wants, in ledger time.

Nothing is kept of an author whose models the members have erased.

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
from fl_core.trust.offering import Offering
from fl_core.types import AuthorId, TxId


@dataclass(frozen=True, slots=True)
class Retention:
    """What a ledger keeps: as of one time, and it holds for ever after.

    Attributes:
        after_ms: What was received after this ledger time is kept.
        singled_out: What is kept however old it is.
        erased: Authors of whom nothing is kept.
    """

    after_ms: int
    singled_out: frozenset[TxId]
    erased: frozenset[AuthorId]

    @classmethod
    def of(cls, graph: Graph, genesis: Genesis, *, keep_ms: int | None, offering: Offering) -> Self:
        """What is kept as of now.

        Args:
            graph: The ledger's transactions.
            genesis: Its rules.
            keep_ms: For how long superseded updates keep their models, in ledger time; at least 0. None: for ever.
            offering: What of the graph is offered.

        Raises:
            ParameterError: ``keep_ms`` is below 0.
        """
        if keep_ms is not None and keep_ms < 0:
            raise ParameterError(f"models are kept for at least 0 ms, not {keep_ms}")
        fresh = {graph.genesis.id}
        for those in (graph, offering.graph):
            oldest_fresh_ms = those.now_ms - genesis.window_ms
            fresh.update(node.id for node in those.newest_nodes() if node.received_at_ms >= oldest_fresh_ms)
        after_ms = -1 if keep_ms is None else graph.now_ms - keep_ms
        return cls(after_ms, frozenset(fresh), offering.quarantine.erased)

    def keeps(self, node: Node) -> bool:
        """Whether this transaction keeps its model; one that came later does."""
        return node.author not in self.erased and (node.received_at_ms > self.after_ms or node.id in self.singled_out)
