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

from tests.faults.harness.history import History, Verdict

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

    def judge(
        self, history: History, folder: Path, name: str | None = None, *, everywhere: bool = True, **figures: Any
    ) -> Verdict:
        """Judge a history, and keep what it came to and its file, in ``folder``.

        Args:
            history: Of the whole part, or of what ``name`` says.
            folder: Where the history is written.
            name: Under which the figures are kept, and which begins each sentence of what was broken.
            everywhere: As ``history.judge`` has it.
            figures: Further ones.
        """
        verdict = history.verdict(everywhere=everywhere)
        figures |= verdict.figures()
        if name is None:
            self.figures |= figures
            self.broken += verdict.faults
        else:
            self.figures[name] = figures
            self.broken += [f"{name}: {fault}" for fault in verdict.faults]
        words = self.part if name is None else f"{self.part}-{file_name(name)}"
        self.histories.append(history.write(folder / f"{words}.jsonl").name)
        return verdict

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


def file_name(name: str) -> str:
    """A name of something as a file or folder may have it."""
    return name.replace(", ", "-").replace(" ", "-")


def quantiles(values: Sequence[float], *, digits: int = 2) -> Mapping[str, float]:
    """Median, 95th percentile and maximum, rounded; empty for no values."""
    if not values:
        return {}
    ascending = sorted(values)
    last = len(ascending) - 1
    found = {"p50": ascending[round(last * 0.5)], "p95": ascending[round(last * 0.95)], "max": ascending[-1]}
    return {name: round(value, digits) for name, value in found.items()}


def _commit() -> str:
    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":!benchmarks/results")
    return (git("rev-parse", "HEAD") or "unknown") + ("+changes" if changed else "")
