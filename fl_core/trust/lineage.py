"""Taint: the share of a model that descends from quarantined steps.

An update's model is the ledger's average of its parents plus its author's step (``fl_core.dag.figures``). Where the
average is a mean, unrolling that to genesis makes a model genesis's plus a sum of steps, each weighted by what is left
of it in the averages since:

    model = genesis + Σ c · step        with c = 1 for the own step, and c = Σ share · (c in that parent) for others

Two numbers follow each update, both computed from its parents' and their shares in that average:

* ``steps``: Σ c, how much training went into the model, in steps;
* ``quarantined``: the same sum over the quarantined steps alone.

Taint is their ratio, 0 to 1. A step counts as one however long it is: so its author cannot make it count less by
keeping it short, and every server comes to the same, whether or not it could measure the step.

For means both sums are exact. Other rules take each value of a model from few parents, and not the same ones for every
value: there a share is the largest that a parent can have, and taint is an estimate by their parts of the
shares' sum, as if each were taken as often as the next. A bound of every single value comes to 1 within a few updates,
whatever was averaged, and would tell nothing apart (docs/adr/0054).

What lineage does not see: a model that was copied without naming its update as a parent. That is its author's step.
"""

from dataclasses import dataclass

from fl_core.dag.graph import Node
from fl_core.types import AuthorId, TxId


@dataclass(frozen=True, slots=True)
class Suspects:
    """Whose steps count: all of these authors', and those of these updates."""

    authors: frozenset[AuthorId] = frozenset()
    updates: frozenset[TxId] = frozenset()

    def __contains__(self, node: Node) -> bool:
        return node.author in self.authors or node.id in self.updates

    def __bool__(self) -> bool:
        return bool(self.authors or self.updates)


class Lineage:
    """Follows a growing ledger; parents before children.

    Args:
        genesis: Its first transaction, which descends from nothing.
        suspects: Whose steps are quarantined.
    """

    def __init__(self, genesis: TxId, suspects: Suspects) -> None:
        self.suspects = suspects
        self._steps: dict[TxId, float] = {genesis: 0.0}
        self._quarantined: dict[TxId, float] = {}  # where it is not 0

    def add(self, node: Node) -> float:
        """Take in an update whose parents are here; its taint."""
        parents, shares = node.parents, node.figures.shares
        if len(shares) != len(parents):
            shares = (1.0,) * len(parents)
        whole = steps = quarantined = 0.0
        for parent, share in zip(parents, shares, strict=True):  # sum() rounds otherwise from Python 3.12 on
            whole += share
            steps += share * self._steps[parent]
            if parent in self._quarantined:
                quarantined += share * self._quarantined[parent]
        whole = whole or 1.0
        self._steps[node.id] = steps / whole + 1.0
        quarantined = quarantined / whole + (node in self.suspects)
        if quarantined:
            self._quarantined[node.id] = quarantined
        return self.taint(node.id)

    def tainted(self) -> tuple[TxId, ...]:
        """The updates that have a quarantined step in them."""
        return tuple(self._quarantined)

    def taint(self, transaction: TxId) -> float:
        """The share of an update's model that descends from quarantined steps, 0 to 1.

        Raises:
            KeyError: It has not been added.
        """
        return min(1.0, self._quarantined.get(transaction, 0.0) / (self._steps[transaction] or 1.0))
