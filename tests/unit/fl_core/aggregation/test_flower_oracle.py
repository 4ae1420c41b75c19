"""Our rules against Flower's strategies, whose answers ``tests/reference/flower_oracle.py`` has written down."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fl_core.aggregation import AGGREGATORS, ArraySource

GOLDEN = json.loads((Path(__file__).parents[3] / "reference" / "flower_oracle.json").read_text("utf-8"))


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: f"{len(case['models'])} models")
@pytest.mark.parametrize("name", ["median", "trimmed-mean", "krum", "multi-krum"])
def test_our_aggregate_is_flowers(case: dict[str, Any], name: str) -> None:
    sources = [ArraySource(np.array(model, dtype=np.float32)) for model in case["models"]]
    for answer in case["answers"]:
        if answer["aggregator"] == name:
            ours = AGGREGATORS.build(name, answer["params"]).aggregate(sources, [10.0] * len(sources))
            assert ours.tolist() == pytest.approx(answer["aggregate"], rel=1e-5, abs=1e-6), answer["params"]


def test_every_rule_was_asked_often_enough_to_tell_it_from_the_others() -> None:
    asked = [answer["aggregator"] for case in GOLDEN["cases"] for answer in case["answers"]]
    counts = {name: asked.count(name) for name in ("median", "trimmed-mean", "krum", "multi-krum")}
    assert counts["median"] == 7
    assert counts["trimmed-mean"] == 35
    assert counts["krum"] >= 9
    assert counts["multi-krum"] >= 50
