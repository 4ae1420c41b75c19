"""What a benchmark writes can be read back, and its verdicts follow from its figures; no time is asserted."""

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def harness() -> Iterator[ModuleType]:
    """The module, from where it lies: the benchmarks are programs, not a package."""
    spec = importlib.util.spec_from_file_location("harness", BENCHMARKS / "harness.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["harness"] = module
    with pytest.MonkeyPatch.context() as patched:
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"):
            patched.setenv(name, "1")
        spec.loader.exec_module(module)
        yield module
    del sys.modules["harness"]


def test_result_file_has_every_repeat_the_ratios_and_the_machine(harness: ModuleType, tmp_path: Path) -> None:
    result = harness.Result("example", "An example", "2026-01-02")
    result.timings["fast"] = harness.Timing((0.2, 0.1, 0.4))
    result.ratios.append(harness.Ratio("share", 0.5, 0.6, "at least", "p50 of slow / of fast"))
    result.facts["bytes"] = 12
    document = json.loads(result.write(folder=tmp_path).read_text(encoding="utf-8"))
    assert (document["name"], document["date"], document["facts"]) == ("example", "2026-01-02", {"bytes": 12})
    assert document["timings"]["fast"] == {"min_s": 0.1, "median_s": 0.2, "max_s": 0.4, "all_s": [0.2, 0.1, 0.4]}
    assert document["ratios"] == [
        {
            "name": "share",
            "value": 0.5,
            "target": 0.6,
            "direction": "at least",
            "is_met": False,
            "basis": "p50 of slow / of fast",
        }
    ]
    assert document["machine"]["cores"] >= 1
    assert len(document["before"]["load_average"]) == len(document["after"]["load_average"]) == 3


@pytest.mark.parametrize(
    ("value", "target", "direction", "is_met"),
    [
        (1.0, 1.0, "at least", True),
        (0.99, 1.0, "at least", False),
        (1.2, 1.2, "at most", True),
        (1.3, 1.2, "at most", False),
    ],
)
def test_target_itself_is_met(
    harness: ModuleType, value: float, target: float, direction: str, *, is_met: bool
) -> None:
    assert harness.Ratio("x", value, target, direction, "").is_met is is_met


def test_interleaved_work_runs_in_turn_and_warm_ups_do_not_count(harness: ModuleType) -> None:
    calls: list[str] = []
    times = harness.interleave({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, repeats=2, warmup=1)
    assert "".join(calls) == "ababab"
    assert [len(each.all_s) for each in times.values()] == [2, 2]


def test_committed_results_name_a_target_and_a_verdict_for_each_ratio() -> None:
    for path in (BENCHMARKS / "results").glob("*.json"):
        for ratio in json.loads(path.read_text(encoding="utf-8")).get("ratios", []):
            meets = (
                ratio["value"] >= ratio["target"]
                if ratio["direction"] == "at least"
                else ratio["value"] <= ratio["target"]
            )
            assert ratio["is_met"] == meets, path.name
