"""What of a ledger is offered while something is quarantined: a graph of all the rest.

Withheld are a quarantined author's updates and those named themselves, what is tainted beyond the ledger's bound, and
an erased author's. The rest is a graph of its own, by which candidates are found: an author's newest update there is
its last clean one, which others are offered again and from which it is led back itself; and what only withheld updates
name as a parent is a tip. So the same updates and the same acts come to the same candidates in any order.
"""

from collections import Counter
from itertools import islice

from fl_core.dag.graph import Graph, Node
from fl_core.trust.lineage import Lineage
from fl_core.trust.quarantine import Quarantine
from fl_core.types import AuthorId


class Offering:
    """The part of a growing graph that is offered.

    Args:
        graph: All of it.
        quarantine: What is withheld by name.
        max_taint: From more than this share on, an update is withheld.

    Attributes:
        graph: What is offered; all of it, the very object, while nothing is withheld by name.
        lineage: Of every update, once something is quarantined.
        withheld: How many updates of each author are withheld.
        descendants: How many updates have a quarantined step in them, those steps' own included.
    """

    def __init__(self, graph: Graph, quarantine: Quarantine, *, max_taint: float) -> None:
        self.quarantine, self._max_taint = quarantine, max_taint
        suspects = quarantine.suspects
        self.lineage: Lineage | None = Lineage(graph.genesis.id, suspects) if suspects else None
        self.withheld: Counter[AuthorId] = Counter()
        self.descendants = 0
        self._all = self.graph = graph
        if quarantine:
            self.graph = Graph(graph.genesis, nodes=graph.nodes, members=graph.members)
            self.graph.author_list = graph.author_list
            for node in islice(graph, 1, None):
                self.admit(node)

    def take_if_same(self, quarantine: Quarantine) -> bool:
        """Put a quarantine in the present one's place if it withholds the same of all that is here; whether it did.

        It does where an author under quarantine goes on under a name that has not published.
        """
        before, named, erased = self.quarantine, quarantine.suspects, quarantine.erased
        others = (named.authors ^ before.suspects.authors) | (erased ^ before.erased)
        is_alike = (bool(named), bool(quarantine)) == (bool(before.suspects), bool(before))
        if not is_alike or named.updates != before.suspects.updates or any(map(self._all.has_update_of, others)):
            return False
        self.quarantine = quarantine
        if self.lineage is not None:
            self.lineage.suspects = named
        return True

    def admit(self, node: Node) -> bool:
        """Take in an update that has just been added to the whole graph; whether it may be offered."""
        if self.graph is self._all:
            return True
        if self.lineage is not None:
            self.descendants += self.lineage.add(node) > 0
        if self.withholds(node):
            self.withheld[node.author] += 1
            return False
        self.graph.include(node)
        return True

    def withholds(self, node: Node) -> bool:
        """Whether one of the whole graph is not offered."""
        quarantine = self.quarantine
        is_named = node in quarantine.suspects or node.author in quarantine.erased
        return bool(node.parents) and (is_named or self.taint(node) > self._max_taint)

    def taint(self, node: Node) -> float:
        """The share of its model that descends from quarantined steps, 0 to 1."""
        return 0.0 if self.lineage is None else self.lineage.taint(node.id)
