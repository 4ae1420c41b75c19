"""A replica that keeps every model and looks at everything again for every answer."""

from dataclasses import dataclass, field

import numpy as np

from fl_core.dag.graph import Node
from tests.reference import graph
from tests.reference.similarity import cosine, on_grid, update_cosine
from tests.reference.sketch import nearest


@dataclass
class Update:
    """One admitted transaction and its model's values."""

    parents: tuple[str, ...]
    author: str
    sequence: int
    model: list[float]
    received_at_ms: int
    issuer: str


@dataclass
class NaiveNode:
    """Everything that was admitted, and what follows from it."""

    genesis: str
    genesis_model: list[float]
    rule: str
    window_ms: int
    most: int
    most_compared: int
    updates: dict[str, Update] = field(default_factory=dict)
    waiting: dict[str, Update] = field(default_factory=dict)

    def receive(self, transaction: str, update: Update) -> None:
        """Admit it and all that has waited for it, or let it wait."""
        self.waiting[transaction] = update
        while ready := [
            each for each, late in self.waiting.items() if {*late.parents} <= {*self.updates, self.genesis}
        ]:
            for each in ready:
                self.updates[each] = self.waiting.pop(each)

    def question(self, author: str | None, model: list[float]) -> tuple[object, ...]:
        """Candidates, similarities of models and of updates, that to genesis, own one to average, own newest."""
        parents_of = {self.genesis: (), **{each: update.parents for each, update in self.updates.items()}}
        nodes = [
            Node(
                *(each, update.parents, update.author, update.sequence),  # type: ignore[arg-type]
                *(1, b"", graph.depth(parents_of, each), ""),  # type: ignore[arg-type]
                received_at_ms=update.received_at_ms,
                issuer=update.issuer,  # type: ignore[arg-type]
            )
            for each, update in self.updates.items()
        ]
        candidates = graph.candidates(nodes, asker=author, rule=self.rule, window_ms=self.window_ms, most=self.most)
        if len(candidates) > self.most_compared:
            updates = {each: self._update(self.updates[each].model) for each in candidates}
            ranked = nearest(self._update(model), updates, seed=int(self.genesis[:16], 16))
            candidates = sorted(ranked[: (self.most_compared + 1) // 2])
        others = [self.updates[each].model for each in candidates]
        own = [each for each in graph.newest_of_each_author(nodes) if self.updates[each].author == author]
        newest = own[0] if own else None
        return (
            candidates,
            [cosine(model, other) for other in others],
            [update_cosine(model, other, self.genesis_model) for other in others],
            cosine(model, self.genesis_model),
            newest if self.rule == "newest" or newest in graph.tips(parents_of) else None,
            newest,
        )

    def _update(self, model: list[float]) -> list[float]:
        """A float32 model less genesis's, on its grid."""
        update = [
            float(np.float32(value) - np.float32(first)) for value, first in zip(model, self.genesis_model, strict=True)
        ]
        return [*map(float, on_grid(update))]
