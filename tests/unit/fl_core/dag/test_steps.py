"""How long a step may be: a function of an update's ancestors that no author moves by itself."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_core.dag.figures import Figures, Step, step_from
from fl_core.dag.genesis import NO_BOUND
from fl_core.dag.steps import NO_STEP_BOUND, StepBound, shortened
from fl_core.errors import StepTooLongError
from fl_core.ledger import Admitted
from fl_core.models import ModelLayout, TensorSpec, encode_flat, flat
from fl_core.types import TxId
from tests.builders import LAYOUT, TinyLedger, make_genesis, model
from tests.reference.steps import Update, bound

SMALL = {"max_first_step": 10.0, "max_step_growth": 4.0, "max_layer_growth": NO_BOUND}
"""With a genesis model of norm 2, the first step is at most 20."""


def ledger_with(*, genesis_model: bytes | None = None, **bounds: float) -> TinyLedger:
    first = model(1, 1, 1, 1) if genesis_model is None else genesis_model
    return TinyLedger(make_genesis(**{**SMALL, **bounds}), genesis_model=first)


def put(tiny: TinyLedger, name: str, parents: list[TxId], *steps: float, norm: float = 3.0, known: bool = True) -> TxId:
    """An update whose step is so long in each tensor; its model's bytes play no part."""
    transaction = tiny.draft(name, parents, model(*np.random.default_rng(len(tiny.transactions)).random(4)))
    step = Step(math.hypot(*steps), steps) if known else None
    answer = tiny.node.admit(transaction, None, figures=Figures(norm, step))
    assert isinstance(answer, Admitted)
    tiny.transactions[transaction.id] = transaction
    return transaction.id


def longest(tiny: TinyLedger, name: str, *parents: TxId) -> float:
    return tiny.ledger.step_bound(tiny.author(name), sorted(parents)).norm


def test_upon_genesis_a_step_is_measured_by_genesis_norm() -> None:
    tiny = ledger_with()
    assert longest(tiny, "ann", tiny.genesis_id) == 20
    put(tiny, "ann", [tiny.genesis_id], 20.0)
    with pytest.raises(StepTooLongError) as refused:
        put(tiny, "bob", [tiny.genesis_id], 20.1)
    assert (refused.value.norm, refused.value.bound) == (20.1, 20)


def test_upon_others_it_is_measured_by_the_median_of_theirs_and_never_beyond_the_first() -> None:
    tiny = ledger_with()
    short, middle, long = (
        put(tiny, name, [tiny.genesis_id], step) for name, step in (("ann", 0.5), ("bob", 2.0), ("cat", 19.0))
    )
    assert longest(tiny, "dan", short) == 2
    assert longest(tiny, "dan", short, middle) == 5, "4 times the mean of the two middle ones"
    assert longest(tiny, "dan", short, middle, long) == 8
    assert longest(tiny, "dan", long) == 20


def test_who_goes_on_alone_has_the_bound_that_it_had_before() -> None:
    tiny = ledger_with()
    first = put(tiny, "ann", [tiny.genesis_id], 1.0)
    own = put(tiny, "eve", [first], 4.0)
    for _ in range(3):
        assert longest(tiny, "eve", own) == 4, "not 16, nor 20"
        own = put(tiny, "eve", [own], 4.0)
    assert longest(tiny, "bob", own) == 16, "for others it is a step like any"


def test_a_liar_whose_step_is_nothing_leaves_others_a_share_of_their_norm() -> None:
    tiny = ledger_with()
    nothing = put(tiny, "eve", [tiny.genesis_id], 0.0, norm=50.0)
    assert longest(tiny, "ann", nothing) == 4 * 0.01 * 50


def test_a_genesis_of_zeros_says_nothing_about_scale() -> None:
    tiny = ledger_with(genesis_model=model(0))
    assert longest(tiny, "ann", tiny.genesis_id) == math.inf
    first = put(tiny, "ann", [tiny.genesis_id], 5.0)
    assert longest(tiny, "bob", first) == 20


def test_where_nothing_is_bounded_no_step_is_asked() -> None:
    tiny = ledger_with(max_first_step=NO_BOUND, max_step_growth=NO_BOUND)
    assert tiny.ledger.step_bound(None, [tiny.genesis_id]) == NO_STEP_BOUND


def test_each_tensor_has_a_bound_where_the_ledger_says_so() -> None:
    tiny = ledger_with(max_layer_growth=2.0)
    parent = put(tiny, "ann", [tiny.genesis_id], 3.0, 0.1)
    found = tiny.ledger.step_bound(tiny.author("bob"), [parent])
    assert found.by_tensor == pytest.approx((6.0, 2 * 0.1 * math.hypot(3.0, 0.1)))
    with pytest.raises(StepTooLongError, match=r"fc\.weight") as refused:
        put(tiny, "bob", [parent], 1.0, 0.7)
    assert refused.value.tensor == "fc.weight"


def test_behind_a_checkpoint_a_bound_holds_for_publications_and_not_for_what_peers_admitted() -> None:
    tiny = ledger_with()
    unknown = put(tiny, "ann", [tiny.genesis_id], known=False)
    known = put(tiny, "bob", [tiny.genesis_id], 0.5)
    found = tiny.ledger.step_bound(tiny.author("cat"), sorted([unknown, known]))
    assert (found.norm, found.is_exact) == (1.0, False)  # four times the median of 0.5 and of what counts as none
    put(tiny, "cat", sorted([unknown, known]), 19.0)
    published = tiny.draft("dan", [unknown, known], model(1))
    with pytest.raises(StepTooLongError):
        tiny.ledger.review(published.id, published.header, figures=Figures(3.0, Step(19.0, ())), slack=0.0)


@given(st.data())
def test_bounds_are_the_naive_twins(data: st.DataObject) -> None:
    tiny = ledger_with()
    twin = {tiny.genesis_id: Update("", (), 2.0)}
    for _ in range(data.draw(st.integers(1, 8))):
        name = data.draw(st.sampled_from(["ann", "bob", "cat"]))
        newest = tiny.ledger.graph.newest_of(tiny.author(name))
        alone = [newest.id] if newest is not None and data.draw(st.booleans()) else None
        drawn = st.lists(st.sampled_from(sorted(twin)), min_size=1, max_size=3, unique=True)
        parents = sorted(alone or data.draw(drawn))
        expected = bound(twin, name, parents, first=10.0, growth=4.0, genesis=2.0)
        assert longest(tiny, name, *parents) == pytest.approx(expected)
        step = data.draw(st.floats(0, 1)) * expected
        made = put(tiny, name, parents, step)
        twin[made] = Update(name, parents, 3.0, step)


BOUNDED = st.builds(StepBound, st.floats(0.01, 5), st.sampled_from([(), (0.5, 0.25), (9.0, 0.01)]))
VALUES = st.lists(st.floats(-3, 3, width=32), min_size=4, max_size=4).map(lambda each: np.array(each, np.float32))


@given(VALUES, VALUES, BOUNDED, st.sampled_from(["F32", "F16", "BF16"]))
def test_a_shortened_step_is_within_its_bound_in_the_same_direction(
    average: np.ndarray, trained: np.ndarray, bound: StepBound, dtype: str
) -> None:
    layout = ModelLayout(tuple(replace(tensor, dtype=dtype) for tensor in LAYOUT.tensors))
    average, trained = (flat(layout, encode_flat(layout, each)) for each in (average, trained))
    kept = shortened(trained, average, bound, layout=layout)
    before, after = step_from(average, trained, layout=layout), step_from(average, kept, layout=layout)
    assert (flat(layout, encode_flat(layout, kept)) == kept).all(), "what the file holds"
    if before.norm <= bound.norm and all(a <= b for a, b in zip(before.by_tensor, bound.by_tensor, strict=False)):
        assert kept is trained
    if dtype == "F32":
        assert after.norm <= bound.norm
        assert all(a <= b for a, b in zip(after.by_tensor, bound.by_tensor, strict=False))
        assert ((kept - average) * (trained - average) >= 0).all()


def test_a_shortened_step_is_nearly_as_long_as_allowed() -> None:
    layout = ModelLayout.of([TensorSpec("w", "F32", (1000,))])
    average = np.zeros(1000, np.float32)
    kept = shortened(np.ones(1000, np.float32), average, StepBound(1.0), layout=layout)
    assert 0.99 < step_from(average, kept, layout=layout).norm <= 1


def test_what_is_only_about_to_come_in_bounds_nothing_afterwards() -> None:
    tiny = ledger_with()
    first = put(tiny, "ann", [tiny.genesis_id], 1.0)
    node = tiny.ledger.graph.get(first)
    assert node is not None
    longer = replace(node, recorded=Figures(3.0, Step(2.0, (2.0,))).pack())
    assert tiny.ledger.beside({first: longer}).step_bound(tiny.author("bob"), [first]).norm == 8
    assert longest(tiny, "bob", first) == longest(tiny, "bob", first) == 4
    assert tiny.ledger.beside({first: longer}).step_bound(tiny.author("bob"), [first]).norm == 8
