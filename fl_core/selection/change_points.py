"""Where a sequence changes: BEAST, the Bayesian estimator of abrupt change, through Rbeast.

Rbeast is exact about what it wants and silent about the rest, so this module is the only place that
calls it, and no call from here can fail:

* input is float64, one-dimensional, finite, at least 3 long and not constant; anything less is answered
  without a call (a failing call leaks, and some thousands of them end the process);
* values are standardised in float64 first, because BEAST computes in float32 and could not tell
  1 - 1e-5 from 1 - 3e-5;
* arguments are plain ints and lists: NumPy scalars and misspelt keywords are silently misread;
* ``cputype="sse"`` is the code path that repeats itself to the bit.

A call holds the GIL from begin to end: at the defaults about as long as the interpreter lets any thread have it
(5 ms) for the 128 values that a ledger's default bounds let it see, longer for more values or samples (ADR 59).
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Final, TypeAlias

import numpy as np

from fl_core.errors import ParameterError
from fl_core.parameters import parameter
from fl_core.types import Vector64

_HOOK_CHANGES = threading.Lock()

MIN_LENGTH: Final = 3
"""Two values have a difference but no change point; BEAST refuses them."""


@dataclass(frozen=True)
class BeastPriors:
    """What BEAST believes before it sees the sequence, and how long it samples.

    The defaults fit flat segments of any length down to one element, without margins: a cluster of one tip must be
    found too.
    """

    trend_order_min: int = parameter(
        0, at_least=0, at_most=3, doc="BEAST: lowest polynomial order of a segment; 0 is flat."
    )
    trend_order_max: int = parameter(0, at_least=0, at_most=3, doc="BEAST: highest polynomial order.")
    changepoints_min: int = parameter(0, at_least=0, at_most=100, doc="BEAST: fewest change points.")
    changepoints_max: int = parameter(
        4,
        at_least=1,
        at_most=100,
        doc="BEAST: most change points; with one fixed order Rbeast fits one fewer than it is given.",
    )
    min_segment_length: int = parameter(1, at_least=1, at_most=1000, doc="BEAST: shortest segment.")
    left_margin: int = parameter(0, at_least=0, at_most=1000, doc="BEAST: no change this near the start.")
    right_margin: int = parameter(0, at_least=0, at_most=1000, doc="BEAST: no change this near the end.")
    samples: int = parameter(1200, at_least=800, at_most=100_000, doc="BEAST: samples per chain; time grows with it.")
    chains: int = parameter(2, at_least=1, at_most=20, doc="BEAST: chains.")
    thin: int = parameter(1, at_least=1, at_most=100, doc="BEAST: keep one sample of so many.")
    burn_in: int = parameter(200, at_least=150, at_most=100_000, doc="BEAST: samples dropped at first.")
    seed: int = parameter(42, at_least=1, at_most=2**31 - 1, doc="BEAST: random seed; Rbeast reads 0 as the clock.")
    cpu_type: str = parameter(
        "sse", choices=("sse", "AVX2"), doc="BEAST: code path; Rbeast's others do not repeat themselves."
    )

    def __post_init__(self) -> None:
        if self.trend_order_min > self.trend_order_max:
            raise ParameterError("trend_order_min must not exceed trend_order_max")
        if self.changepoints_min > self.changepoints_max:
            raise ParameterError("changepoints_min must not exceed changepoints_max")


ChangePointDetector: TypeAlias = Callable[[Vector64, BeastPriors], Vector64]
"""Sequence ``(n,)`` to probabilities ``(n,)``: entry i is how likely a new segment starts at element i."""


def change_point_probabilities(sequence: Vector64, priors: BeastPriors) -> Vector64:
    """Probability that a new segment starts at each element (0-based: i elements lie before it).

    Args:
        sequence: Finite values, shape ``(n,)``, n >= 0.
        priors: BEAST's priors and sampling.

    Returns:
        Values in [0, 1], shape ``(n,)``; the first is 0. All 0 when n < 3 or all values are equal: such a
        sequence has no change to find.

    Raises:
        ValueError: not one-dimensional or not finite.

    Source: Zhao et al., BEAST (DAG-ACFL's [34]), as DAG-ACFL, Alg. 3, line 8 uses it.
    """
    values = np.asarray(sequence, dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise ValueError("a sequence is one-dimensional and finite")
    if len(values) < MIN_LENGTH or values.max() == values.min():
        return np.zeros(len(values))
    centred = values - values.mean()
    spread = float(centred.std())
    if spread <= np.finfo(np.float64).eps * float(np.abs(values).max()):
        return np.zeros(len(values))  # the differences are rounding
    with _without_attribute_errors():
        result = _rbeast().beast(
            centred / spread,
            season="none",
            start=0,
            quiet=True,
            cputype=priors.cpu_type,
            torder_minmax=[priors.trend_order_min, priors.trend_order_max],
            tcp_minmax=[priors.changepoints_min, priors.changepoints_max],
            tseg_minlength=priors.min_segment_length,
            tseg_leftmargin=priors.left_margin,
            tseg_rightmargin=priors.right_margin,
            mcmc_seed=priors.seed,
            mcmc_samples=priors.samples,
            mcmc_chains=priors.chains,
            mcmc_thin=priors.thin,
            mcmc_burbin=priors.burn_in,  # Rbeast's spelling
        )
    return np.nan_to_num(np.asarray(result.trend.cpOccPr, dtype=np.float64).reshape(len(values)))


def _rbeast() -> ModuleType:
    """Rbeast without its plots, which load matplotlib where there is one: 0.8 s and 36 MB in each process."""
    if "Rbeast" not in sys.modules:
        plots = ModuleType("Rbeast.plotbeast")
        vars(plots)["plot"] = None
        sys.modules["Rbeast.plotbeast"] = plots
    import Rbeast  # noqa: PLC0415 -- only for who calls

    return Rbeast  # type: ignore[no-any-return]


@contextmanager
def _without_attribute_errors() -> Iterator[None]:
    """Rbeast 0.1.25 looks for attributes while an error is pending; Python 3.13 tells each time on standard error."""
    with _HOOK_CHANGES:  # else one thread would put back the other's hook, for good
        told = sys.unraisablehook
        sys.unraisablehook = lambda event: None if "HasAttrString" in (event.err_msg or "") else told(event)
        try:
            yield
        finally:
            sys.unraisablehook = told
