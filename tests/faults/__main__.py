"""Run faults against real servers, keep their histories, and write benchmarks/results/faults_<part>.json.

    python -m tests.faults                      all parts, in full
    python -m tests.faults kill power_loss      some
    python -m tests.faults kill --size 100      shorter
    python -m tests.faults --list

Histories go to build/faults/<part>/ and can be judged again: python -m tests.faults.check build/faults/kill/*.jsonl
"""

import argparse
import shutil
import sys
import time
from pathlib import Path

from tests.faults.machine import missing
from tests.faults.registry import FAULTS
from tests.faults.report import RESULTS, ROOT

HISTORIES = ROOT / "build" / "faults"


def main() -> int:
    """Run, show, write. Returns 1 when anything was broken or could not run, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="which; default: all (see --list)")
    parser.add_argument("--list", action="store_true", help="name the parts, their size, and what they need")
    parser.add_argument("--size", type=int, help="instead of the full size")
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the figures go")
    options = parser.parse_args()
    if options.list:
        for name, fault in FAULTS.items():
            print(f"{name:<16} {fault.full:>6} {fault.unit:<12} {missing(fault) or ''}")  # noqa: T201 -- a command
        return 0
    if unknown := [part for part in options.parts if part not in FAULTS]:
        parser.error(f"no part {unknown[0]!r}; there are {', '.join(FAULTS)}")
    is_sound = True
    for part in options.parts or FAULTS:
        fault = FAULTS[part]
        if (why := missing(fault)) is not None:
            print(f"{part}: cannot run here: {why}", file=sys.stderr)  # noqa: T201 -- a command
            is_sound = False
            continue
        folder = HISTORIES / part
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        size = options.size or fault.full
        print(f"{part}: {size} {fault.unit} …", flush=True)  # noqa: T201 -- a command
        began = time.monotonic()
        report = fault.run(folder, size, options.seed)
        report.figures["took_s"] = round(time.monotonic() - began, 1)
        path = report.write(options.results)
        print(f"{part}: {'sound' if not report.broken else 'BROKEN'} {report.figures}")  # noqa: T201 -- a command
        for line in report.broken[:20]:
            print(f"  {line}")  # noqa: T201 -- a command
        print(f"  {path}")  # noqa: T201 -- a command
        is_sound &= not report.broken
    return 0 if is_sound else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
