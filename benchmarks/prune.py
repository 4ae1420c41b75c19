"""Pruning: what it gives back, what it takes, and what a publication meanwhile feels of it.

A ledger of 1,000 models by one author in a chain, in SQLite's rows (100 KB each), in files (400 KB), and with
``--postgresql URL`` (an empty database) in that one's rows. All but the newest go. Meanwhile another author publishes
through the same service, one after another; its times are held against those of the same publications beforehand.
Space is what the store says of itself: the database's files or tables, and the size of the models that lie in files.

    python benchmarks/prune.py
"""

import statistics
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import harness
import numpy as np
from built_ledger import CACHE_BYTES, KEY, STARTED_MS, now_ms

from fl_core.dag.genesis import Component, Genesis, compare_layers
from fl_core.models import ModelLayout, TensorSpec, encode_flat
from fl_core.node import Publication
from fl_core.types import TxId
from ledger_server.founding import create_ledger
from ledger_server.pruning import prune
from ledger_server.publishing import LedgerService
from ledger_server.store import open_store, schema
from ledger_server.store.journal import Store

MODELS = 1_000
PUBLICATIONS = 200
TARGET_GIVEN_BACK, TARGET_SLOWER = 0.95, 2.0
MB = 1_000_000


class Author:
    """Publishes a chain of models, no two alike."""

    def __init__(self, service: LedgerService, layout: ModelLayout, *, letter: str, seed: int) -> None:
        self.service, self.layout, self.name = service, layout, letter * 64
        self.rng, self.newest = np.random.default_rng(seed), service.id

    def publish(self) -> float:
        """Seconds of one publication."""
        model = encode_flat(self.layout, self.rng.standard_normal(self.layout.num_parameters, dtype=np.float32))
        publication = Publication(num_examples=1, parents=(self.newest,), secret=self.name)
        start = time.perf_counter()
        self.newest = TxId(self.service.publish(publication, model).transaction)
        return time.perf_counter() - start


def measured(store: Store, *, values: int) -> tuple[dict[str, Any], list[float], list[float]]:
    """Figures of one place, and a publication's seconds before and during the pruning."""
    layout = ModelLayout.of([TensorSpec("w", "F32", (values,))])
    genesis = Genesis(
        name="benchmark",
        layout=layout,
        comparison=compare_layers(["w"]),
        selector=Component("top-k"),
        aggregator=Component("fedavg"),
    )
    first = encode_flat(layout, np.random.default_rng(0).standard_normal(values, dtype=np.float32))
    create_ledger(store, genesis, first, key=KEY, now_ms=STARTED_MS)
    with ExitStack() as stack:
        service = LedgerService(store, key=KEY, now_ms=now_ms, cache_bytes=CACHE_BYTES)
        stack.callback(service.close)
        author, other = (Author(service, layout, letter=letter, seed=seed) for letter, seed in (("a", 1), ("b", 2)))
        for _ in range(MODELS):
            author.publish()
        quiet = [other.publish() for _ in range(PUBLICATIONS)]
        store.database.compact()
        before = store.storage_bytes()
        snapshot = service.snapshot(keep_ms=0)
        start = time.perf_counter()
        prune(store, snapshot, now_ms=now_ms, dry_run=True)
        dry_s = time.perf_counter() - start
        busy, ended = [], threading.Event()

        def keep_publishing() -> None:
            while not ended.is_set():
                busy.append(other.publish())

        thread = threading.Thread(target=keep_publishing)
        thread.start()
        start = time.perf_counter()
        report = prune(store, snapshot, now_ms=now_ms)
        took_s = time.perf_counter() - start
        ended.set()
        thread.join()
        added = len(busy) * layout.nbytes
        after = store.storage_bytes()
        start = time.perf_counter()
        store.database.compact()
        compact_s = time.perf_counter() - start
        compacted = store.storage_bytes()
    figures = {
        "model_bytes": layout.nbytes,
        "pruned": report.models,
        "pruned_MB": round(report.nbytes / MB, 1),
        "storage_before_MB": round(before / MB, 1),
        "storage_after_MB": round(after / MB, 1),
        "storage_compacted_MB": round(compacted / MB, 1),
        "published_meanwhile_MB": round(added / MB, 1),
        "given_back": round((before + added - compacted) / report.nbytes, 3),
        "given_back_without_compacting": round((before + added - after) / report.nbytes, 3),
        "prune_s": round(took_s, 3),
        "dry_run_s": round(dry_s, 3),
        "compact_s": round(compact_s, 3),
    }
    return figures, quiet, busy


def main() -> None:
    parser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the databases go")
    parser.add_argument("--postgresql", help="URL of an empty database, to measure its rows too")
    options = parser.parse_args()
    # The result names its command, and a URL may hold a password.
    sys.argv = ["URL" if each == options.postgresql else each for each in sys.argv]
    result = harness.Result("prune", f"Pruning {MODELS:,} models and more beside a client that publishes", options.date)
    places: list[tuple[str, str, Literal["database", "directory"], int]] = [
        ("SQLite rows", "", "database", 25_000),
        ("files", "", "directory", 100_000),
    ]
    if options.postgresql:
        places.append(("PostgreSQL rows", options.postgresql, "database", 25_000))
    for name, url, blobs, values in places:
        with tempfile.TemporaryDirectory(dir=options.folder) as held:
            address = url or f"sqlite:///{held}/ledger.sqlite3"
            schema.upgrade(address)
            with open_store(address, data_dir=Path(held), blobs=blobs) as store:
                figures, quiet, busy = measured(store, values=values)
        result.facts[name] = figures
        result.timings[f"{name}: publish, quiet"] = harness.Timing(tuple(quiet))
        result.timings[f"{name}: publish while pruning"] = harness.Timing(tuple(busy))
        result.ratios += [
            harness.Ratio(
                f"{name}: given back",
                figures["given_back"],
                TARGET_GIVEN_BACK,
                "at least",
                "(storage before + published - after compacting) / size of the pruned models",
            ),
            harness.Ratio(
                f"{name}: publishing while pruning",
                statistics.median(busy) / statistics.median(quiet),
                TARGET_SLOWER,
                "at most",
                "p50 while / p50 before",
            ),
        ]
    print(result.write())


if __name__ == "__main__":
    main()
