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

from fl_core.dag.graph import Node
from fl_core.types import TxId


@dataclass(frozen=True, slots=True)
class Retention:
    """What a ledger keeps, as of one time; ``Ledger.retention`` makes it.

    Attributes:
        oldest_depth: From this depth on, everything is kept.
        singled_out: What is kept whatever its depth.
    """

    oldest_depth: int
    singled_out: frozenset[TxId]

    def keeps(self, node: Node) -> bool:
        """Whether this transaction keeps its model; one that came later does."""
        return node.depth >= self.oldest_depth or node.id in self.singled_out
