"""What a trainer measured, as figures that a transaction can carry and people can read.

``evaluate`` and ``train`` may return any numbers by any names. Finite ones reach the client's console and its trackers;
of those, a transaction takes 32, whose names the header allows. What is left out is said once, with the reason.
"""

import logging
import math
from collections.abc import Mapping
from typing import Any, Final

from fl_core.dag.encoding import NAME
from fl_core.dag.transaction import MAX_METRICS

NUM_EXAMPLES: Final = "num_examples"
"""How many test samples ``evaluate`` used: no figure of a model, so it is not published."""
_NAMES_TOLD: Final = 5

logger: logging.Logger = logging.getLogger(__name__)


class Measurements:
    """Of one participant: remembers what it has said already."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def finite(self, measured: Mapping[str, Any], *, of: str) -> dict[str, float]:
        """The finite numbers among what was measured, in its order.

        Args:
            measured: By name, numbers: Python's, NumPy's, or tensors with one element.
            of: Who returned it, ``evaluate`` or ``train``; for what is said.
        """
        found: dict[str, float] = {}
        for name, value in measured.items():
            number = _number(value)
            if number is None:
                self._tell(f"{of}() returned {name!r} as {type(value).__name__}, not as a number: it is left out")
            elif not math.isfinite(number):
                self._tell(f"{of}() returned {name!r} as {number}: it is left out where it is not finite")
            else:
                found[str(name)] = number + 0.0  # turns -0.0 into 0.0, which the header wants
        return found

    def published(
        self,
        evaluated: Mapping[str, float],
        trained: Mapping[str, float],
        *,
        systems: Mapping[str, float] | None = None,
    ) -> dict[str, float]:
        """What a transaction carries: the system's figures, and 32 of ``evaluate``'s, then ``train``'s.

        Args:
            evaluated: Figures of the model that training started from.
            trained: Figures of the training.
            systems: Figures whose names begin with ``_``.
        """
        kept: dict[str, float] = {}
        beyond: list[str] = []
        for name, value in {**evaluated, **beside(evaluated, trained)}.items():
            if name == NUM_EXAMPLES:
                continue
            if NAME.fullmatch(name) is None:
                self._tell(f"the metric {name!r} is not published: a name is made of a-z 0-9 _ . -, 1 to 64 of them")
            elif name.startswith("_"):
                self._tell(f"the metric {name!r} is not published: names that begin with _ are the system's")
            elif len(kept) == MAX_METRICS:
                beyond.append(name)
            else:
                kept[name] = value
        if beyond:
            names = ", ".join(beyond[:_NAMES_TOLD]) + (", …" if len(beyond) > _NAMES_TOLD else "")
            self._tell(f"a transaction has room for {MAX_METRICS} metrics, so {len(beyond)} are not published: {names}")
        return {**kept, **(systems or {})}

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            logger.warning("%s", text)


def beside(evaluated: Mapping[str, float], trained: Mapping[str, float]) -> dict[str, float]:
    """``train``'s figures beside ``evaluate``'s: under a name that both have it is ``train_NAME``."""
    return {f"train_{name}" if name in evaluated else name: value for name, value in trained.items()}


def figure_of(measured: Mapping[str, float]) -> tuple[float, float] | None:
    """What a model is judged by, more being better: accuracy, then loss; None where neither was measured."""
    accuracy, loss = measured.get("accuracy"), measured.get("loss")
    if accuracy is None and loss is None:
        return None
    return -math.inf if accuracy is None else accuracy, -math.inf if loss is None else -loss


def _number(value: Any) -> float | None:
    """A value as a number; None for what is none: text, a list, an array of several."""
    if isinstance(value, str | bytes):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None
