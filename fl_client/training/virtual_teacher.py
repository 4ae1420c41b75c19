"""The virtual teacher: training towards soft labels that a good teacher would give (DecDiff+VT, Eq. 7 and 8).

A sample of class c is taught β for c and (1 - β) / (|L| - 1) for each other class, and the loss is the Kullback-Leibler
divergence from what is taught to what the model says, ``Σ p_t ln(p_t / p)``: 0 when the model says just that.

Eq. 8 writes the divergence with the model first, its text speaks of soft labels and of distillation, where the teacher
comes first; so it does here. The gradient is then that of cross-entropy with smoothed labels.
"""

import math
from typing import Final

from torch import Tensor, nn

from fl_client.training.errors import TrainingDataError
from fl_core.errors import ParameterError

NAME: Final = "virtual-teacher"
DEFAULT_BETA: Final = 0.95
"""DecDiff says that β ≥ 0.9 is reasonable, and not which it took."""


def checked_beta(beta: object) -> float:
    """β as a number above 0 and at most 1."""
    if isinstance(beta, bool) or not isinstance(beta, int | float) or not 0 < beta <= 1:
        raise ParameterError(f"beta must be above 0 and at most 1, not {beta!r}")
    return float(beta)


def virtual_teacher(outputs: Tensor, labels: Tensor, *, beta: float = DEFAULT_BETA) -> Tensor:
    """Mean loss of a batch.

    Args:
        outputs: Logits, shape ``(n, |L|)``; dimensions after these (an image's pixels) are as many labels.
        labels: Classes, shape ``(n,)`` or as ``outputs`` without its second dimension.
        beta: Probability of the right class, in (0, 1].

    Raises:
        TrainingDataError: The labels are no classes of the outputs, or there is only one class.
    """
    if outputs.ndim != labels.ndim + 1 or labels.is_floating_point() or outputs.shape[1] < 2:
        raise TrainingDataError(
            f"a virtual teacher needs class numbers as labels and two classes or more, not labels {labels.dtype} "
            f"{list(labels.shape)} for outputs {list(outputs.shape)}; train with loss='cross-entropy' or a loss of "
            "your own"
        )
    others = outputs.shape[1] - 1
    rest = (1 - beta) / others
    surprise = -nn.functional.log_softmax(outputs, dim=1)  # (n, |L|): -ln p
    of_right = surprise.gather(1, labels.unsqueeze(1)).squeeze(1)  # (n,)
    crossed = (beta - rest) * of_right + rest * surprise.sum(1)
    entropy = -beta * math.log(beta) - (others * rest * math.log(rest) if rest > 0 else 0.0)
    return crossed.mean() - entropy
