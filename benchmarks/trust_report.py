"""What a quarantine costs on a ledger of 100,000 updates: to take in, to report, to ask what one would withhold.

The ledger is ``ledger_age.py``'s old one: 100 authors whose updates each average two, so that within a few generations
everything descends from everybody. One author is quarantined. Beside it stands what it costs to read the same journal.

    python benchmarks/trust_report.py
"""

import tempfile
import time
from pathlib import Path

import harness
from built_ledger import Models, grow, new_ledger

from fl_core.trust.lineage import Suspects
from fl_core.trust.quarantine import NO_QUARANTINE, Quarantine
from fl_core.trust.report import descents
from ledger_server.api.serializers import quarantine_out
from ledger_server.reading import LedgerView
from ledger_server.store import open_store

AUTHORS = 100
UPDATES = 100_000
TARGET_S = 1.0


def main() -> None:
    parser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the database goes")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    result = harness.Result("trust_report", f"A quarantine on a ledger of {UPDATES:,} updates", options.date)
    with tempfile.TemporaryDirectory(dir=options.folder) as held:
        file = new_ledger(Path(held) / "ledger", Models.of(1, clusters=1), selector="top-k")
        grow(file, authors=AUTHORS, generations=UPDATES // AUTHORS)
        with open_store(f"sqlite:///{file}", data_dir=file.parent) as store:
            start = time.perf_counter()
            view = LedgerView(store, cache_bytes=0)
            read_s = time.perf_counter() - start
            assert len(view.ledger) == UPDATES + 1, "genesis and all that was written"
            suspects = Suspects(authors=frozenset({view.node.graph.authors()[0]}))

            def take_in() -> None:
                view.node.go_by(view.acts.effect, view.acts.authors, NO_QUARANTINE)
                view.node.go_by(view.acts.effect, view.acts.authors, Quarantine(suspects))

            work = {
                "take a quarantine in": take_in,
                "report": lambda: quarantine_out(view).model_dump_json(),
                "what would be withheld": lambda: list(descents(view.node.graph, suspects, max_taint=0.2)),
            }
            for name, each in work.items():
                result.timings[name] = harness.measure(each, repeats=options.repeats)
            found = quarantine_out(view)
            result.facts["ledger"] = {
                "read_the_journal_s": round(read_s, 3),
                "descendants": found.descendants,
                "withheld": found.withheld,
                "clients": len(found.clients),
            }
    for name, timing in result.timings.items():
        note = f"median of {options.repeats}; reading the same journal takes {read_s:.1f} s"
        result.ratios.append(harness.Ratio(f"{name}, s", timing.median_s, TARGET_S, "at most", note))
    print(result.write())


if __name__ == "__main__":
    main()
