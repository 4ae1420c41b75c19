"""When to end a training that goes on for as long as one likes: when it has not become better for a while."""

import logging
import math
from collections.abc import Mapping

from fl_core.errors import ParameterError

logger = logging.getLogger(__name__)


def figure_of(measured: Mapping[str, float]) -> float:
    """How good a model is on the own test data, the more the better: its accuracy, else its loss turned round.

    Raises:
        ParameterError: Neither is among what was measured.
    """
    if "accuracy" in measured:
        return measured["accuracy"]
    if "loss" in measured:
        return -measured["loss"]
    raise ParameterError(
        f"an early stop looks at accuracy or loss; evaluate() gives {', '.join(measured) or 'nothing'}"
    )


class EarlyStop:
    """Watches updates, of each what it began from and what came out.

    Args:
        after: Updates in a row without a better figure that are enough, at least 1; None: never.

    Raises:
        ParameterError: ``after`` is below 1.
    """

    def __init__(self, after: int | None) -> None:
        if after is not None and after < 1:
            raise ParameterError(f"early stop takes a number of updates of at least 1, not {after}")
        self._after, self._in_vain, self._best = after, 0, -math.inf

    def is_enough(self, *measured: Mapping[str, float]) -> bool:
        """Whether this update, as measured before and after its training, is the last that is worth making.

        Raises:
            ParameterError: As ``figure_of``.
        """
        if self._after is None:
            return False
        figure = max(map(figure_of, measured))
        self._in_vain = 0 if figure > self._best else self._in_vain + 1
        self._best = max(self._best, figure)
        if self._in_vain < self._after:
            return False
        logger.info("no better on the own test data for %d updates: that is enough", self._after)
        return True
