"""When to end a training that goes on for as long as one likes: when it has not become better for a while."""

import logging
from collections.abc import Mapping

from fl_client.metrics import figure_of
from fl_core.errors import ParameterError

logger: logging.Logger = logging.getLogger(__name__)


class EarlyStop:
    """Watches updates, of each what it began from and what came out.

    Args:
        after: Updates in a row without a better figure that are enough, at least 1; None: never.
    """

    def __init__(self, after: int | None) -> None:
        if after is not None and after < 1:
            raise ParameterError(f"early stop takes a number of updates of at least 1, not {after}")
        self._after, self._in_vain = after, 0
        self._best: tuple[float, float] | None = None

    def is_enough(self, *measured: Mapping[str, float]) -> bool:
        """Whether this update, as measured before and after its training, is the last that is worth making.

        Raises:
            ParameterError: Neither accuracy nor loss was measured.
        """
        if self._after is None:
            return False
        figures = [figure for each in measured if (figure := figure_of(each)) is not None]
        if not figures:
            names = ", ".join(measured[0]) or "nothing"
            raise ParameterError(f"an early stop looks at accuracy or loss; evaluate() gives {names}")
        is_better = self._best is None or max(figures) > self._best
        self._best = max(figures) if is_better else self._best
        self._in_vain = 0 if is_better else self._in_vain + 1
        if self._in_vain < self._after:
            return False
        logger.info("no better on the own test data for %d updates: that is enough", self._after)
        return True
