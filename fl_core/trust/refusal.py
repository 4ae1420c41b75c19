"""Whether a client refuses an average: one that does worse than its own model on the client's own test data.

Accuracy decides; the loss where no accuracy is measured. Few samples say little, so worse means worse by more than a
margin *and* by more than two standard errors of the difference:

* of accuracies p and q on n samples, √((p(1-p) + q(1-q)) / n), each from one sample more that is right and one more
  that is wrong (Agresti and Coull, 1998), without which one sample out of one would prove anything;
* of mean losses, whose spread is not told, √((p² + q²) / n): as if samples' losses deviated by as much as their mean.

Both take the two measurements for independent. They are of the same samples, on which related models err together, so
the true error is smaller and an honest average is refused more rarely than two standard errors say.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fl_core.dag.encoding import MAX_VALUE_BYTES
from fl_core.dag.transaction import Header
from fl_core.types import ZERO_ID, TxId

DEFAULT_MARGIN: Final = 0.05
"""Of accuracy, or as a share of the loss."""
EXTENSION: Final = "refused"
"""A header's extension with the updates of others in the average that was refused, 32 bytes each, ascending."""
_MOST_NAMED: Final = MAX_VALUE_BYTES // 32
_STANDARD_ERRORS: Final = 2.0
_UNSAID_SAMPLES: Final = 25
"""What ``num_examples`` is taken for where it is not measured: few, so that little is refused."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """An average beside the client's own model, on the same samples.

    Attributes:
        metric: ``accuracy`` or ``loss``.
        own: Of the own model.
        given: Of the average.
        allowed: By how much the average may be worse.
    """

    metric: str
    own: float
    given: float
    allowed: float

    @property
    def is_refused(self) -> bool:
        worse_by = self.own - self.given if self.metric == "accuracy" else self.given - self.own
        return worse_by > self.allowed


def compare(own: Mapping[str, float], given: Mapping[str, float], *, margin: float) -> Comparison | None:
    """Judge an average by what was measured; None where both have neither an accuracy nor a loss.

    Args:
        own: Figures of the own model by name; ``num_examples`` is the number of test samples.
        given: Those of the average, on the same samples.
        margin: Least worsening that is refused: of accuracy, or as a share of the loss.
    """
    samples = max(given.get("num_examples", _UNSAID_SAMPLES), 1.0)
    if "accuracy" in own and "accuracy" in given:
        pair = (own["accuracy"], given["accuracy"])
        error = math.sqrt(sum(_variance(value, samples) for value in pair) / samples)
        return Comparison("accuracy", *pair, max(margin, _STANDARD_ERRORS * error))
    if "loss" in own and "loss" in given:
        pair = (own["loss"], given["loss"])
        error = math.hypot(*pair) / math.sqrt(samples)
        return Comparison("loss", *pair, max(margin * abs(own["loss"]), _STANDARD_ERRORS * error))
    return None


def _variance(accuracy: float, samples: float) -> float:
    """Of one sample's being right, from a share that is drawn a little towards the middle."""
    share = (min(max(accuracy, 0.0), 1.0) * samples + 1) / (samples + 2)
    return share * (1 - share)


def named_as_refused(parents: Sequence[TxId]) -> tuple[TxId, ...]:
    """The updates of an average that a refusal names: of more than 16 those that chance chose, as ids are hashes."""
    return tuple(sorted(parents)[:_MOST_NAMED])


def refused_extension(parents: Sequence[TxId]) -> dict[str, bytes]:
    """The header's extension that names what was refused."""
    return {EXTENSION: b"".join(map(bytes.fromhex, named_as_refused(parents)))} if parents else {}


def refused_in(header: Header) -> tuple[TxId, ...]:
    """The updates whose average the author refused before this update; anything else says nothing.

    Only with the evidence that it was given them (``fl_core.selection.parents``): else anybody could judge anything.
    """
    named = header.extensions.get(EXTENSION, b"")
    if len(named) % 32 or header.attachment_digest == ZERO_ID:
        return ()
    return tuple(TxId(named[place : place + 32].hex()) for place in range(0, len(named), 32))
