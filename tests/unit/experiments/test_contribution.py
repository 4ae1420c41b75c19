"""Exact Shapley values, by games whose values a person knows; and the committed figures."""

import json

import numpy as np
import pytest

from experiments import contribution
from experiments.contribution import CLIENTS, COALITIONS, HERE, shapley_values, spearman


def test_in_a_game_of_sums_everybody_gets_its_own() -> None:
    own = np.arange(CLIENTS, dtype=float)
    np.testing.assert_allclose(shapley_values(np.array([5 + own[those].sum() for those in COALITIONS])), own)


def test_two_who_help_only_together_share_it_and_the_others_get_nothing() -> None:
    values = np.array([float({0, 3} <= set(those)) for those in COALITIONS])
    np.testing.assert_allclose(shapley_values(values), [0.5, 0, 0, 0.5, 0, 0, 0, 0], atol=1e-12)


def test_the_committed_contribution_ranks_clients_as_shapley_values_do() -> None:
    found = json.loads((HERE / "results" / "contribution" / "figures.json").read_text("utf-8"))
    for every, said in found["spearman"].items():
        again = [spearman(row["contribution"][every], row["shapley"]) for row in found["seeds"]]
        assert len(again) == 5
        assert float(np.mean(again)) == pytest.approx(said["mean"], abs=0.01)  # the figures are rounded, ranks are not
        assert said["mean"] >= 0.8


def test_each_client_is_measured_by_others_when_a_round_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contribution, "ROUNDS", 1)
    monkeypatch.setattr(contribution, "EVERY", (1,))
    figures = contribution.play(0)
    assert len(figures.shapley) == CLIENTS
    assert all(figures.contribution[1])
