"""What of a ledger an attack on a client's training data is made of, and how well it does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dag_acfl.sources import genesis_and_headers
from fl_client.privacy import DELTA_METRIC, EPSILON_METRIC
from fl_client.training.protocol import Arrays
from fl_core.dag.transaction import Header, Kind
from fl_core.errors import ParameterError
from fl_core.models import ModelLayout, decode_model
from fl_core.trust.membership_inference import AttackResult, confidence, judged, likelihood_ratio
from fl_core.types import AuthorId, Digest, TxId, Vector64
from fl_core.verify import LedgerSource

_OTHERS: Final = 4
"""Models of others beside each update: more bring little, and each is measured on every example."""


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """One published model, and models of others that its training began from."""

    model: Arrays
    others: Sequence[Arrays]
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Exposure:
    """How well attacks tell a client's training examples from its test examples.

    Attributes:
        updates: How many of its models were looked at.
        others: How many comparisons with models of others.
        training: Training examples.
        test: Test examples.
        epsilon: As the newest update declares it, if it does; ``delta`` likewise.
        attacks: By name.
    """

    updates: int
    others: int
    training: int
    test: int
    epsilon: float | None
    delta: float | None
    attacks: Mapping[str, AttackResult]


def published_by(author: AuthorId, source: LedgerSource, *, most: int) -> list[Update]:
    """An author's newest updates whose models are there, the oldest first."""
    genesis, headers = genesis_and_headers(source)
    layout = genesis.layout
    own = sorted((each for each in headers.values() if each.author == author), key=lambda each: -each.sequence)
    own = [each for each in own if each.kind is Kind.UPDATE and source.model_size(each.model_digest)][:most]
    if not own:
        raise ParameterError(f"the ledger has no model of {author[:20]}… (any more)")
    return [
        Update(_arrays(source, layout, each), _others(source, layout, headers, each), each.metrics)
        for each in reversed(own)
    ]


def _others(source: LedgerSource, layout: ModelLayout, headers: Mapping[TxId, Header], update: Header) -> list[Arrays]:
    """Models of other authors among an update's parents; where there are none, others' newest; else genesis's."""
    by_others = {id_: each for id_, each in headers.items() if each.author != update.author}
    parents = [by_others[each] for each in update.parents if each in by_others]
    first = next(each for each in headers.values() if each.kind is Kind.GENESIS)
    newest = sorted((each for each in by_others.values() if each.kind is Kind.UPDATE), key=lambda each: -each.sequence)
    chosen = [each for each in parents if each.kind is Kind.UPDATE] or newest or [first]
    here = [each for each in chosen[: 2 * _OTHERS] if source.model_size(each.model_digest)]
    return [_arrays(source, layout, each) for each in here[:_OTHERS]]


def _arrays(source: LedgerSource, layout: ModelLayout, header: Header) -> Arrays:
    return decode_model(layout, source.read_model(Digest(header.model_digest), 0, layout.nbytes))


def attacked(trainer: Any, updates: Sequence[Update]) -> Exposure:
    """Try both attacks with a client's own data."""
    newest, scores, num_training = scores_of(trainer, updates)
    declared = updates[-1].metrics
    return Exposure(
        updates=len(updates),
        others=sum(len(each.others) for each in updates),
        training=num_training,
        test=len(newest) - num_training,
        epsilon=declared.get(EPSILON_METRIC),
        delta=declared.get(DELTA_METRIC),
        attacks={
            name: judged(each[:num_training], each[num_training:])
            for name, each in (("loss threshold", newest), ("likelihood ratio", scores))
        },
    )


def scores_of(trainer: Any, updates: Sequence[Update]) -> tuple[Vector64, Vector64, int]:
    """Scores of the training examples and, behind them, of the test examples: by the newest model's confidence, and by
    the likelihood ratio; and how many are training examples. Arguments and errors as ``attacked``.
    """
    own = [trainer.losses(each.model) for each in updates]
    beside = [[np.concatenate(trainer.losses(model)) for model in each.others] for each in updates]
    if not all(beside):
        raise ParameterError("the ledger has no model of others to compare with: look at fewer --updates")
    newest = confidence(np.concatenate(own[-1]))
    ratios = likelihood_ratio([np.concatenate(losses) for losses in own], [np.array(those) for those in beside])
    return newest, ratios, len(own[-1][0])
