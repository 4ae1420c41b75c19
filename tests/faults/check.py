"""Judge histories of fault runs again, without their servers.

python -m tests.faults.check build/faults/kill/*.jsonl
"""

import argparse
import json
import sys
from pathlib import Path

from tests.faults.harness.history import judge


def main() -> int:
    """Print each history's judgement. Returns 1 when anything is lost, unexpected or partial."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("histories", nargs="+", type=Path, help="JSONL files that a run wrote")
    parser.add_argument(
        "--apart", action="store_true", help="servers had not converged: hold each to its own word only"
    )
    options = parser.parse_args()
    is_sound = True
    for path in options.histories:
        events = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        verdict = judge(events, everywhere=not options.apart)
        print(f"{path}: {json.dumps(verdict.figures())}")  # noqa: T201 -- a command
        for fault in verdict.faults[:20]:
            print(f"  {fault}")  # noqa: T201 -- a command
        is_sound &= not verdict.faults
    return 0 if is_sound else 1


if __name__ == "__main__":
    sys.exit(main())
