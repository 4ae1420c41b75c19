"""Whose models help whom: leave-one-out averages, measured by the clients that averaged, and summed up per author.

A client that is given an average of several models evaluates, now and then, the average without one of them on its own
test data, and publishes what leaving it out would have cost (``measured``): its author's signed word. Over a ledger
these make each author's contribution: the mean over askers of what each asker found, with its standard error over
askers, so that no asker counts more than once however often it measures, and one that lies moves a mean of n by an
n-th.

It is the first term of a Shapley value, with respect to all others; ``experiments/contribution.py`` holds it beside
exact ones. It is measured and shown, and weighs nothing.
"""

import hashlib
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fl_core.dag.transaction import Header
from fl_core.trust.refusal import refused_in
from fl_core.types import AuthorId, Digest, TxId

MOST_MEASURED: Final = 4
"""Averages of one update that its author evaluates besides its own."""
_METRIC: Final = re.compile(r"_loo_([0-9]{1,4})")


def to_measure(selection: Digest, parents: Sequence[TxId], *, own: TxId | None) -> tuple[TxId, ...]:
    """Which of an average's models are left out in turn: at most 4, drawn by hashes that no author of them foresees.

    Args:
        selection: Its id, which names all that was compared.
        parents: Those that were averaged; of one, nothing is left.
        own: The update that stands for the asker, if it has one.
    """
    others = [each for each in parents if each != own] if len(parents) > 1 else []
    drawn = sorted(others, key=lambda each: hashlib.sha256(f"{selection}{each}".encode()).digest())
    return tuple(drawn[:MOST_MEASURED])


def measured(with_it: Mapping[str, float], without_it: Mapping[str, float]) -> float | None:
    """A model's contribution to an average, by what was measured with and without it; above 0: it helps.

    By the loss, as a share of the average's with it, since an accuracy moves in steps of one sample; by the accuracy
    where no loss is measured; None without both.
    """
    if with_it.get("loss") and "loss" in without_it:
        return (without_it["loss"] - with_it["loss"]) / abs(with_it["loss"])
    if "accuracy" in with_it and "accuracy" in without_it:
        return with_it["accuracy"] - without_it["accuracy"]
    return None


def metrics_of(averaged: Sequence[TxId], contributions: Mapping[TxId, float]) -> dict[str, float]:
    """A header's metrics of what was measured: ``_loo_2`` is of the third of the updates that were averaged.

    Args:
        averaged: The header's parents; after a refusal, those that its extension names (``averaged_in``).
        contributions: Of some of them.
    """
    found = enumerate(averaged)
    return {f"_loo_{place}": contributions[each] + 0.0 for place, each in found if each in contributions}


def without_contributions(metrics: Mapping[str, float]) -> dict[str, float]:
    """A header's metrics less those that refer to its parents: of a header that gets others."""
    return {name: value for name, value in metrics.items() if _METRIC.fullmatch(name) is None}


def averaged_in(header: Header) -> tuple[TxId, ...]:
    """The updates to which a header's ``_loo_`` metrics refer."""
    return refused_in(header) or header.parents


def contributions_in(header: Header) -> dict[TxId, float]:
    """What a header says that updates contributed to the average that its author was given; -1 to 1, cut there."""
    averaged = averaged_in(header)
    found: dict[TxId, float] = {}
    for name, value in header.metrics.items():
        if (match := _METRIC.fullmatch(name)) is not None and int(match[1]) < len(averaged):
            found[averaged[int(match[1])]] = max(-1.0, min(1.0, value))
    return found


@dataclass(frozen=True, slots=True)
class Contribution:
    """What an author's models contributed to others'.

    Attributes:
        mean: Over askers, of each asker's mean; as ``measured`` has it.
        error: Standard error of that mean; NaN for one asker.
        askers: How many have measured.
        measurements: How often, in all.
    """

    author: AuthorId
    mean: float
    error: float
    askers: int
    measurements: int


def contributions_of(
    headers: Iterable[Header], author_of: Callable[[TxId], AuthorId | None]
) -> tuple[Contribution, ...]:
    """Every measured author's contribution, the highest first.

    Args:
        headers: Of a ledger's updates, in any order.
        author_of: The author of an update; None of genesis, and of what is not known.
    """
    found: defaultdict[AuthorId, defaultdict[AuthorId, list[float]]] = defaultdict(lambda: defaultdict(list))
    for header in headers:
        for update, value in contributions_in(header).items():
            author = author_of(update)
            if author is not None and author != header.author:  # nobody's counts that it measured itself
                found[author][header.author].append(value)
    rows = [_contribution(author, list(by_asker.values())) for author, by_asker in found.items()]
    return tuple(sorted(rows, key=lambda row: (-row.mean, row.author)))


def _contribution(author: AuthorId, by_asker: Sequence[Sequence[float]]) -> Contribution:
    means = [statistics.fmean(values) for values in by_asker]
    error = statistics.stdev(means) / math.sqrt(len(means)) if len(means) > 1 else math.nan
    return Contribution(author, statistics.fmean(means), error, len(means), sum(map(len, by_asker)))
