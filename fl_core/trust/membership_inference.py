"""Membership inference: how well somebody with the models tells the examples that they were trained on from others.

Two attacks give each example a score, more being more like a training example:

* the *loss threshold*: the newest model's confidence in the example's label [Yeom et al. 2018];
* the *likelihood ratio*: by how much the author's models are more confident than models of others that its training
  began from, over its history, in units of how much that differs [Carlini et al. 2022, offline, one variance for all].

Confidence is log p / (1 - p) of p = exp(-loss): about normal where the loss is a cross-entropy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from fl_core.errors import ShapeMismatchError
from fl_core.types import Vector64

FALSE_ALARMS: Final = 0.01
_LEAST_LOSS: Final = 1e-12
_REPEATS: Final = 1000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and its 95 % interval, by bootstrap over the examples."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class AttackResult:
    """How well an attack does.

    Attributes:
        auc: Chance that a training example scores above another one; 0.5 is guessing.
        found: Share of the training examples that score above all but 1 % of the others.
    """

    auc: Estimate
    found: Estimate


def confidence(losses: Vector64) -> Vector64:
    """The logit log p / (1 - p) of p = exp(-loss); of any shape. A loss below 1e-12 counts as that."""
    bounded = np.maximum(losses, _LEAST_LOSS)
    return -bounded - np.log(-np.expm1(-bounded))


def likelihood_ratio(own: Sequence[Vector64], others: Sequence[Vector64]) -> Vector64:
    """Scores of the likelihood ratio, shape ``(n,)``.

    Args:
        own: Losses of n examples by each of the author's models, shape ``(n,)`` each; at least one.
        others: For each of them, losses by models of others, shape ``(m, n)``, m >= 1.
    """
    gains = [confidence(mine) - confidence(theirs).mean(axis=0) for mine, theirs in zip(own, others, strict=True)]
    scores: Vector64 = np.mean([gain / (gain.std() or 1.0) for gain in gains], axis=0)
    return scores


def judged(members: Vector64, others: Vector64, *, seed: int = 0) -> AttackResult:
    """How well scores tell members from others.

    Args:
        members: Scores of training examples, shape ``(n,)``.
        others: Scores of others, shape ``(m,)``.
        seed: Of the bootstrap.

    Raises:
        ShapeMismatchError: One of them is empty.
    """
    if not len(members) or not len(others):
        raise ShapeMismatchError("an attack is judged by at least one training example and one other")
    rng = np.random.default_rng(seed)
    aucs, found = np.empty(_REPEATS), np.empty(_REPEATS)
    for repeat in range(_REPEATS):
        ins, outs = (rng.choice(scores, len(scores)) for scores in (members, others))
        aucs[repeat], found[repeat] = auc(ins, outs), found_at(ins, outs)
    return AttackResult(_estimate(auc(members, others), aucs), _estimate(found_at(members, others), found))


def auc(members: Vector64, others: Vector64) -> float:
    """Area under the ROC curve: the share of pairs in which the member scores higher, ties counting half."""
    ordered = np.sort(others)
    below = np.searchsorted(ordered, members, side="left")
    at_most = np.searchsorted(ordered, members, side="right")
    return float((below + at_most).sum() / (2 * len(members) * len(others)))


def found_at(members: Vector64, others: Vector64) -> float:
    """Share of members above a threshold that at most 1 % of the others exceed."""
    threshold = np.sort(others)[::-1][int(FALSE_ALARMS * len(others))]
    return float((members > threshold).mean())


def _estimate(value: float, repeats: Vector64) -> Estimate:
    low, high = np.quantile(repeats, [0.025, 0.975])
    return Estimate(value, float(low), float(high))
