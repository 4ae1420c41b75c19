"""A finished run's bytes, beside the formulas of the paper's Tables III and IV."""

import json
from pathlib import Path
from typing import Any

import pytest

from fl_simulator.config.experiment import PlannedRun, read_experiment
from fl_simulator.run.folder import SUMMARY
from fl_simulator.run.play import open_folder, run

pytest.importorskip("torch")

EXPERIMENT = """
name = "costs"
[base]
data.pixels = "unit"
run = { rounds = 2, evaluate_every = 2 }
partition = { name = "iid", clients = 6, samples = 20 }
[[methods]]
label = "fedavg"
strategy.name = "fedavg"
[[methods]]
label = "ifca"
strategy = { name = "ifca", clusters = 2 }
[[methods]]
label = "dag-acfl"
strategy = { name = "dag-acfl", selector = { name = "top-k", k = 2 } }
[[methods]]
label = "sdagfl"
strategy.name = "sdagfl"
[[methods]]
label = "local-only"
strategy.name = "local-only"
"""


def planned_runs(folder: Path) -> dict[str, PlannedRun]:
    file = folder / "costs.toml"
    file.write_text(EXPERIMENT)
    return {planned.label.method: planned for planned in read_experiment(file).runs}


def costs_of(folder: Path, method: str) -> Any:
    planned = planned_runs(folder)[method]
    with open_folder(planned, folder / method, overwrite=False) as opened:
        assert run(planned, opened, workers=1)
    return json.loads((folder / method / SUMMARY).read_text("utf-8")).get("costs")


@pytest.mark.parametrize("method", ["fedavg", "ifca"])
def test_methods_with_one_server_move_what_table_iii_says(tmp_path: Path, method: str) -> None:
    costs = costs_of(tmp_path, method)
    assert costs["measured_round_bytes"] == costs["expected_round_bytes"] == costs["formula_round_bytes"]
    assert "measured_ledger_bytes" not in costs


def test_sdagfl_moves_half_of_what_table_iii_counts_twice(tmp_path: Path) -> None:
    costs = costs_of(tmp_path, "sdagfl")
    assert costs["formula_round_bytes"] == 2 * costs["expected_round_bytes"]
    # |sigma| of the formula is the mean, genesis included, and a header is a hundredth of a model or so.
    assert costs["measured_round_bytes"] == pytest.approx(costs["expected_round_bytes"], rel=0.05)


def test_dag_acfl_moves_what_table_iii_says_and_a_model_for_each_that_joins(tmp_path: Path) -> None:
    costs = costs_of(tmp_path, "dag-acfl")
    model_bytes = costs["formula_round_bytes"] / 12 - 32  # 2·|C|·(|hash| + |w|) for six clients and one server
    assert costs["measured_round_bytes"] == costs["formula_round_bytes"] + 6 * model_bytes / 2  # six join in two rounds
    # 13 transactions; the formula rounds the mean |sigma| down.
    assert 0 <= costs["measured_ledger_bytes"] - costs["formula_server_bytes"] < 13


def test_method_that_the_paper_has_not_has_no_costs(tmp_path: Path) -> None:
    assert costs_of(tmp_path, "local-only") is None
