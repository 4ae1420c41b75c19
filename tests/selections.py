"""Requests in one line: candidates by letter, similarities beside them."""

from collections.abc import Mapping, Sequence

import numpy as np

from fl_core.selection import Candidate, SelectionRequest
from fl_core.selection.change_points import BeastPriors
from fl_core.types import AuthorId, TxId, Vector64

GENESIS = TxId("0" * 64)


def tx(letter: str) -> TxId:
    """The id that a letter stands for: ascending letters give ascending ids."""
    return TxId(f"{ord(letter):064x}")


def letters(ids: Sequence[TxId]) -> str:
    """The letters of some ids, as one word; ``^`` is genesis."""
    return "".join("^" if each == GENESIS else chr(int(each, 16)) for each in ids)


def make_request(
    updates: Mapping[str, float],
    *,
    models: Mapping[str, float] | None = None,
    own_averaged: str | None = None,
    own_newest: str | None = None,
    max_selected: int = 30,
) -> SelectionRequest:
    """A question with one candidate per letter; model similarities are the updates' unless given."""
    names = sorted(updates)
    models = updates if models is None else models
    newest = own_newest or own_averaged
    return SelectionRequest(
        candidates=tuple(Candidate(tx(name), AuthorId(f"hash:{name}"), 1, 1) for name in names),
        similarities=np.array([models[name] for name in names], dtype=np.float64),
        update_similarities=np.array([updates[name] for name in names], dtype=np.float64),
        genesis_similarity=0.9,
        own_averaged=tx(own_averaged) if own_averaged else None,
        own_newest=tx(newest) if newest else None,
        genesis=GENESIS,
        max_selected=max_selected,
    )


class FixedDetector:
    """A change-point detector that says what the test tells it to, and remembers what it was asked."""

    def __init__(self, *probabilities: float) -> None:
        self.probabilities = probabilities
        self.asked: list[Vector64] = []

    def __call__(self, sequence: Vector64, priors: BeastPriors) -> Vector64:
        self.asked.append(sequence)
        return np.array(self.probabilities[: len(sequence)], dtype=np.float64)
