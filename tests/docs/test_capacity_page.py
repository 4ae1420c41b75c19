"""What `dag-acfl capacity` reckons with says where it comes from, and docs/capacity.md shows every case."""

import json
import re
from pathlib import Path

from docs.parts.measured_costs import FILE, measured_costs

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "capacity.md").read_text("utf-8")


def test_costs_are_those_of_the_committed_results() -> None:
    assert FILE.read_text("utf-8") == measured_costs(), "run: make docs"


def test_each_cost_has_a_command_and_a_day() -> None:
    sources = json.loads(measured_costs())["sources"]
    for name, source in sources.items():
        result = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text("utf-8"))
        assert (source["command"], source["date"]) == (result["command"], result["date"])
        assert f"`{source['command']}`" in PAGE
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", source["date"])


def test_rounds_were_measured_at_each_size_with_few_and_with_many_averaged() -> None:
    points = json.loads(measured_costs())["rounds"]
    sizes, numbers = {point["model_bytes"] for point in points}, {point["averaged"] for point in points}
    assert {(point["model_bytes"], point["averaged"]) for point in points} == {(a, b) for a in sizes for b in numbers}
    assert (len(sizes), max(numbers)) == (3, 64)


def test_the_page_shows_each_size_at_each_pace_for_hospitals_and_devices() -> None:
    for name in ("capacity-hospitals", "capacity-devices"):
        block = PAGE.partition(f"<!-- generated: {name} -->")[2].partition("<!-- end -->")[0]
        cases = re.findall(r"^\| ([\d.]+ MB(?:, rounded)?) \| (\w+) \|", block, re.MULTILINE)
        assert cases == [
            (model, pace) for pace in ("1m", "1h") for model in ("0.1 MB", "1 MB", "13 MB", "13 MB, rounded")
        ]
