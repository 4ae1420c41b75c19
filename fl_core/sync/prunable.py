"""Which transactions may come in without their model, because every peer says that it was pruned.

A peer's word is not enough: retention (``fl_core.retention``) must let the model go, given all that is going to be in
the ledger. What is going to be there is not only what is there now: the transactions above a pruned one, which prove
that it is no tip and not its author's newest, can only come in after it. So they are looked at together, as headers
whose signatures have been checked, each either with a model that is here and sound, or said to be pruned itself:

    the largest set of these that is closed under parents together with the ledger, in which no model is beyond the
    norm rule, and in which retention keeps nothing whose model is not here

There is one largest such set: what may go in a smaller ledger may go in a larger one. Whoever withholds a tip's model
therefore keeps the tip out of it, and with the tip its word for what lies below.

The norm of a pruned model is unknown, so for its children it counts as the largest that policy allows: their relative
bound becomes wider, never narrower than on a server that has seen the model, and the absolute one stays.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from fl_core.dag.admission import NORM_SLACK, check_norm
from fl_core.errors import ModelNormError
from fl_core.ledger import Ledger
from fl_core.types import AuthorId, TxId


@dataclass(frozen=True, slots=True)
class Coming:
    """A transaction that is not in the ledger yet; header and signatures have been checked.

    ``norm`` is that of its model, which is here and sound; None for one that is said to be pruned.
    """

    id: TxId
    parents: tuple[TxId, ...]
    author: AuthorId
    sequence: int
    norm: float | None


def admissible(ledger: Ledger, coming: Iterable[Coming], *, keep_generations: int) -> frozenset[TxId]:
    """The largest set of ``coming`` that may come in, those without models included (see the module's docstring).

    Args:
        ledger: What is here.
        coming: In any order; n of them cost O(n log n).
        keep_generations: As for ``Ledger.retention``: from how many of the deepest generations no model may lack.
    """
    return frozenset(_Set(ledger, coming, keep_generations).reduced())


class _Set:
    """The candidates for the set, which only become fewer."""

    def __init__(self, ledger: Ledger, coming: Iterable[Coming], keep_generations: int) -> None:
        self._ledger, self._keep_generations = ledger, keep_generations
        self._window = ledger.genesis.policy.freshness_window
        self._all = {each.id: each for each in coming if each.id not in ledger}
        self._children: defaultdict[TxId, list[TxId]] = defaultdict(list)
        for each in self._all.values():
            for parent in each.parents:
                if parent in self._all:
                    self._children[parent].append(each.id)
        self._depth: dict[TxId, int] = {}
        for identity in self._parents_first():
            self._enter(self._all[identity])
        self._approvals = Counter(
            parent for identity in self._depth for parent in self._all[identity].parents if parent in self._depth
        )
        self._by_author: defaultdict[AuthorId, list[tuple[int, TxId]]] = defaultdict(list)
        self._by_depth: defaultdict[int, list[TxId]] = defaultdict(list)
        for identity, depth in self._depth.items():
            self._by_author[self._all[identity].author].append((self._all[identity].sequence, identity))
            if self._all[identity].norm is None:
                self._by_depth[depth].append(identity)
        for sequence in self._by_author.values():
            sequence.sort()
        self._at_depth = Counter(self._depth.values())
        self._deepest = max([ledger.graph.deepest, *self._at_depth])

    def _parents_first(self) -> list[TxId]:
        lacking = {
            each.id: sum(parent in self._all for parent in each.parents)
            for each in self._all.values()
            if all(parent in self._all or parent in self._ledger for parent in each.parents)
        }
        order = [identity for identity, count in lacking.items() if count == 0]
        for identity in order:
            for child in self._children[identity]:
                if child in lacking:
                    lacking[child] -= 1
                    if lacking[child] == 0:
                        order.append(child)
        return order

    def _enter(self, each: Coming) -> None:
        """Into the set, if its parents are in it or in the ledger, and its norm fits theirs."""
        graph, policy = self._ledger.graph, self._ledger.genesis.policy
        depths: list[int] = []
        norms: list[float] = []
        for parent in each.parents:
            node = graph.get(parent)
            if node is not None:
                depths.append(node.depth)
                norms.append(node.norm)
            elif parent in self._depth:
                depths.append(self._depth[parent])
                norm = self._all[parent].norm
                norms.append(policy.max_norm if norm is None else norm)
            else:
                return
        if each.norm is not None:
            try:
                check_norm(
                    each.norm,
                    parent_norms=norms,
                    genesis_norm=graph.genesis.norm,
                    genesis=self._ledger.genesis,
                    slack=NORM_SLACK,
                )
            except ModelNormError:
                return
        self._depth[each.id] = 1 + max(depths)

    def reduced(self) -> Iterable[TxId]:
        """Take out what must have its model and has none, and what descends from it, until nothing of it is left."""
        suspects = [identity for identity in self._depth if self._all[identity].norm is None]
        while suspects:
            identity = suspects.pop()
            if identity in self._depth and self._is_kept(identity):
                suspects += self._take_out(identity)
        return self._depth

    def _oldest(self, deepest: int) -> int:
        return max(deepest - self._window, 1)

    def _is_kept(self, identity: TxId) -> bool:
        depth = self._depth[identity]
        if depth > self._deepest - self._keep_generations:
            return True
        if not self._approvals[identity] and depth >= self._oldest(self._deepest):
            return True
        return self._is_newest(self._all[identity])

    def _is_newest(self, each: Coming) -> bool:
        known = self._ledger.graph.newest_of(each.author)
        if known is not None and (known.sequence, known.id) > (each.sequence, each.id):
            return False
        return self._newest_here(each.author) == each.id

    def _newest_here(self, author: AuthorId) -> TxId | None:
        sequence = self._by_author[author]
        while sequence and sequence[-1][1] not in self._depth:
            sequence.pop()
        return sequence[-1][1] if sequence else None

    def _take_out(self, identity: TxId) -> list[TxId]:
        """Returns what may have to go for it: now a tip, its author's newest, or among the deepest generations."""
        suspects: list[TxId] = []
        going = [identity]
        for each in going:
            depth = self._depth.pop(each, None)
            if depth is None:
                continue
            self._at_depth[depth] -= 1
            going += self._children[each]
            for parent in self._all[each].parents:
                if parent in self._depth:
                    self._approvals[parent] -= 1
                    suspects.append(parent)
            if (newest := self._newest_here(self._all[each].author)) is not None:
                suspects.append(newest)
        before = self._deepest
        while self._deepest > self._ledger.graph.deepest and not self._at_depth[self._deepest]:
            self._deepest -= 1
        for new, old in (
            (self._deepest - self._keep_generations + 1, before - self._keep_generations + 1),
            (self._oldest(self._deepest), self._oldest(before)),
        ):
            for depth in range(max(new, 0), old):
                suspects += self._by_depth.get(depth, ())
        return [each for each in suspects if self._all[each].norm is None]
