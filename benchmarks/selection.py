"""One selection among 1,000 tips of 20,000 values, without BEAST and with, against one NumPy product.

The limit is the float64 product, which reads its matrix as float64 already: similarities are exact sums
(docs/adr/0023), and float32 cannot hold them. Beside it stands the float32 product, two to three times as fast,
whose last bits depend on the processor.

The service's own path in this process: ``SelectionService.select_for`` over a SQLite ledger in which 1,000 authors have
one transaction each. It includes the candidates, the comparison, the ranking, the average of the chosen models, the
evidence and its row in the database; HTTP is left out. Every repeat asks for another author, so nothing is answered
from a memory of the same question; what a running server has in memory (tips' vectors, recent models) is in memory.

The tips lie in ten clusters, so BEAST is asked each time, about a ranking of 128 in which there is a change to
find.

    python benchmarks/selection.py
"""

import itertools
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import harness
import numpy as np
from built_ledger import DIMENSIONS, Models, new_ledger, publish_all, serving
from limits import matrix_vector

from fl_core.types import TxId
from ledger_server.publishing import LedgerService

TIPS = 1_000
CLUSTERS = 10
WITHOUT, WITH = "top-k (no BEAST)", "BEAST"
PRODUCT, PRODUCT32 = "one NumPy matrix-vector product, float64", "one NumPy matrix-vector product, float32"
TARGET_PRODUCTS = 2.0
TARGET_PRODUCTS32 = 3.0
TARGET_BEAST_MS = 20.0


def _select(service: LedgerService, updates: Iterator[TxId]) -> object:
    """One selection for the author of the next update in turn."""
    return service.selections.select_for(next(updates))


def main() -> None:
    parser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the databases go")
    parser.add_argument("--repeats", type=int, default=200)
    options = parser.parse_args()
    result = harness.Result(
        "selection", f"One selection among {TIPS:,} tips of {DIMENSIONS:,} values, in process", options.date
    )
    models = Models.of(TIPS + 1, clusters=CLUSTERS)
    work: dict[str, Callable[[], object]] = {}
    with ExitStack() as stack:
        held = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.folder)))
        for name, selector in ((WITHOUT, "top-k"), (WITH, "beast")):
            service = stack.enter_context(serving(new_ledger(held / selector, models, selector=selector)))
            updates = itertools.cycle(publish_all(service, models))
            work[name] = partial(_select, service, updates)
            record, _ = service.selections.select_for(next(updates))
            result.facts[name] = {
                "tips": len(service.tips()[1]),
                "cut": record.evidence.selection.cut,
                "rule": record.evidence.selection.rule,
                "asked_beast": any(each.probability is not None for each in record.evidence.selection.candidates),
            }
        work[PRODUCT] = matrix_vector(TIPS, DIMENSIONS, dtype=np.float64)
        work[PRODUCT32] = matrix_vector(TIPS, DIMENSIONS)
        result.timings = harness.interleave(work, repeats=options.repeats, warmup=5)
    median = {name: timing.median_s for name, timing in result.timings.items()}
    result.ratios += [
        harness.Ratio(
            "selection without BEAST, in products",
            median[WITHOUT] / median[PRODUCT],
            TARGET_PRODUCTS,
            "at most",
            "p50 of select_for with top-k / p50 of one float64 product",
        ),
        harness.Ratio(
            "selection without BEAST, in float32 products",
            median[WITHOUT] / median[PRODUCT32],
            TARGET_PRODUCTS32,
            "at most",
            "p50 of select_for with top-k / p50 of one float32 product",
        ),
        harness.Ratio(
            "what BEAST adds, ms",
            (median[WITH] - median[WITHOUT]) * 1e3,
            TARGET_BEAST_MS,
            "at most",
            "p50 with BEAST - p50 without, milliseconds",
        ),
    ]
    result.facts["p99_ms"] = {
        name: round(statistics.quantiles(timing.all_s, n=100)[98] * 1e3, 3) for name, timing in result.timings.items()
    }
    print(result.write())


if __name__ == "__main__":
    main()
