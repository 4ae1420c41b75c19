"""What a fault run leaves: one JSON file with its seed, its figures, and what was broken, if anything."""

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"


@dataclass(slots=True)
class Report:
    """One part's outcome.

    Attributes:
        part: Its name in the registry.
        what: The fault, in a sentence.
        must_hold: What the run asserts.
        size: How many points, seeds, seconds; the part says of what.
        seed: Decides everything that is random.
        figures: Counts and times.
        broken: Sentences; empty if all holds.
        histories: Files that ``python -m tests.faults.check`` judges again.
    """

    part: str
    what: str
    must_hold: str
    size: int
    seed: int
    figures: dict[str, Any] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    histories: list[str] = field(default_factory=list)

    def write(self, folder: Path = RESULTS) -> Path:
        """``faults_<part>.json``; returns its path."""
        document = {
            **asdict(self),
            "is_sound": not self.broken,
            "date": datetime.now(UTC).date().isoformat(),
            "command": f"python -m tests.faults {self.part} --size {self.size} --seed {self.seed}",
            "commit": _commit(),
            "machine": {"cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()},
        }
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"faults_{self.part}.json"
        path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        return path


def quantiles(values: Sequence[float]) -> Mapping[str, float]:
    """Median, 95th percentile and maximum; empty for no values."""
    if not values:
        return {}
    ascending = sorted(values)
    last = len(ascending) - 1
    return {"p50": ascending[round(last * 0.5)], "p95": ascending[round(last * 0.95)], "max": ascending[-1]}


def _commit() -> str:
    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no")
    return (git("rev-parse", "HEAD") or "unknown") + ("+changes" if changed else "")
