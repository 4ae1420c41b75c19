"""Where results lie that were measured and kept."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
BENCHMARKS: Final = ROOT / "benchmarks" / "results"
EXPERIMENTS: Final = ROOT / "experiments" / "results"
