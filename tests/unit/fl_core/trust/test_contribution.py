"""What models contribute to averages, as askers say, and what that comes to for each author."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_core.dag.building import build_update
from fl_core.dag.transaction import Header
from fl_core.trust.contribution import (
    MOST_MEASURED,
    contributions_in,
    contributions_of,
    measured,
    metrics_of,
    to_measure,
)
from fl_core.trust.refusal import refused_extension
from fl_core.types import AuthorId, Digest, TxId
from tests.builders import author_of, key_from_seed

ANN, BOB, CAT, DAN = (author_of(key_from_seed(number)) for number in range(11, 15))
UPDATES = {TxId(f"{number:064x}"): author for number, author in enumerate((ANN, BOB, CAT, DAN), start=1)}
A, B, C, D = UPDATES


def header(
    author: AuthorId, contributions: dict[TxId, float], *, refused: tuple[TxId, ...] = (), has_evidence: bool = True
) -> Header:
    parents = (TxId("f" * 64),) if refused else tuple(UPDATES)
    return build_update(
        ledger=TxId("9" * 64),
        author=author,
        sequence=0,
        created_at_ms=0,
        num_examples=1,
        start=Digest("2" * 64),
        model_digest=Digest("3" * 64),
        model_size=4,
        parents=parents,
        evidence=Digest("4" * 64) if refused and has_evidence else None,
        metrics={"accuracy": 0.5, **metrics_of(refused or parents, contributions)},
        extensions=refused_extension(refused),
    ).header


def test_contribution_is_what_leaving_a_model_out_costs_by_loss_else_by_accuracy() -> None:
    assert measured({"loss": 0.5, "accuracy": 0.8}, {"loss": 0.6, "accuracy": 0.9}) == pytest.approx(0.2)
    assert measured({"accuracy": 0.8}, {"accuracy": 0.9}) == pytest.approx(-0.1)
    assert measured({"mae": 1.0}, {"mae": 2.0}) is None


def test_a_header_names_models_by_their_place_among_its_parents_or_among_those_that_it_refused() -> None:
    said = header(ANN, {B: 0.25, D: -0.5})
    assert said.metrics == {"accuracy": 0.5, "_loo_1": 0.25, "_loo_3": -0.5}
    assert contributions_in(said) == {B: 0.25, D: -0.5}
    assert contributions_in(header(ANN, {C: -1.0}, refused=(B, C))) == {C: -1.0}
    assert contributions_in(header(ANN, {C: -1.0}, refused=(B, C), has_evidence=False)) == {}, "it was not given them"


def test_each_asker_counts_once_and_nobody_for_itself() -> None:
    headers = [header(ANN, {B: 0.1, C: -0.2, A: 9.0}), header(ANN, {B: 0.3}), header(DAN, {B: 0.4})]
    bob, cat = contributions_of(headers, UPDATES.get)
    # ann's 0.1 and 0.3 are one voice, 0.2; dan's is 0.4: mean 0.3, deviation 0.141, by √2
    assert (bob.author, bob.askers, bob.measurements) == (BOB, 2, 3)
    assert (bob.mean, bob.error) == (pytest.approx(0.3), pytest.approx(0.1))
    assert (cat.author, cat.mean) == (CAT, pytest.approx(-0.2))
    assert math.isnan(cat.error)


def test_metrics_beyond_the_parents_and_other_names_say_nothing() -> None:
    strange = build_update(
        ledger=TxId("9" * 64), author=ANN, sequence=0, created_at_ms=0, num_examples=1, start=Digest("2" * 64),
        model_digest=Digest("3" * 64), model_size=4, parents=(B,), metrics={"_loo_1": 1.0, "_loo_x": 1.0, "loo_0": 1.0},
    ).header  # fmt: skip
    assert contributions_in(strange) == {}
    assert contributions_of([strange], UPDATES.get) == ()


@given(st.integers(0, 12), st.integers(0, 2**64))
def test_at_most_four_are_measured_and_another_selection_draws_anew(count: int, selection: int) -> None:
    others = [TxId(f"{number:064x}") for number in range(count)]
    own = TxId("f" * 64)
    drawn = to_measure(Digest(f"{selection:064x}"), [own, *others], own=own)
    assert len(drawn) == min(count, MOST_MEASURED) == len(set(drawn) & set(others))
    assert drawn == to_measure(Digest(f"{selection:064x}"), [*others[::-1], own], own=own)


def test_of_one_model_nothing_is_left_to_measure() -> None:
    assert to_measure(Digest("0" * 64), [A], own=None) == ()
