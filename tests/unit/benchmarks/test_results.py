"""The verdicts of the benchmarks' committed results follow from their figures."""

import json
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


def test_committed_results_name_a_target_and_a_verdict_for_each_ratio() -> None:
    for path in (BENCHMARKS / "results").glob("*.json"):
        for ratio in json.loads(path.read_text(encoding="utf-8")).get("ratios", []):
            meets = (
                ratio["value"] >= ratio["target"]
                if ratio["direction"] == "at least"
                else ratio["value"] <= ratio["target"]
            )
            assert ratio["is_met"] == meets, path.name
