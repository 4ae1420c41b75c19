"""Sketches: as specified to the bit, true to angles, and small."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_core.dag.genesis import SKETCH, Component, compare_all
from fl_core.errors import ShapeMismatchError
from fl_core.models import ModelLayout, TensorSpec
from fl_core.node import LedgerNode
from fl_core.similarity import CandidateVectors
from fl_core.sketch import Sketch
from fl_core.types import Matrix32, TxId, Vector32
from tests.builders import genesis_transaction, make_genesis, model
from tests.reference.sketch import sketch as naive_sketch

any_value = st.floats(-(2.0**126), 2.0**126, width=32) | st.integers(-4, 4).map(float)


@settings(deadline=None)
@given(st.lists(any_value, min_size=1, max_size=40), st.integers(1, 50), st.integers(0, 2**31))
def test_a_sketch_is_as_specified(values: list[float], dimensions: int, seed: int) -> None:
    whole = np.array([0.0, *values], dtype=np.float32)  # begins 4 bytes after where it would
    found = Sketch(len(values), dimensions=dimensions, seed=seed).of(whole[1:])
    assert found.dtype == np.float32
    expected = naive_sketch(whole[1:].tolist(), dimensions=dimensions, seed=seed)
    assert [*map(float.hex, found.tolist())] == [*map(float.hex, expected)]


def test_values_of_one_chunk_never_meet() -> None:
    """So what fits into the sketch is kept whole: the same values in other places, with other signs."""
    values = np.arange(1, 9, dtype=np.float32)
    found = Sketch(8, dimensions=8, seed=3).of(values)
    assert sorted(np.abs(found)) == values.tolist()


def test_sums_are_cut_to_what_a_value_may_be() -> None:
    """100 chunks of one value: of the largest, whose signs do not cancel."""
    sketch = Sketch(100, dimensions=1, seed=1)
    signs = np.array([sketch.of(one)[0] for one in np.eye(100, dtype=np.float32)])
    assert sketch.of(np.float32(1e38) * signs).tolist() == [np.float32(1e38)]


def alike(kind: str, share: float, size: int) -> tuple[Vector32, Vector32]:
    """Two vectors that have ``share`` of their direction in common."""
    rng = np.random.default_rng(17)
    common, one, other = rng.standard_normal((3, size))
    if kind == "shifted":  # nothing but one sign throughout, as of a bias that all values follow
        common, one, other = np.abs(common), np.abs(one), np.abs(other)
    elif kind == "periodic":  # neurons whose weights are alike: a pattern as long as a row, again and again
        common, one, other = (np.tile(each[:784], -(-size // 784))[:size] for each in (common, one, other))
    elif kind == "in chunks":  # the same, in step with the sketch
        common, one, other = (np.tile(each[:4096], -(-size // 4096))[:size] for each in (common, one, other))
    elif kind == "sparse":
        common, one, other = (np.where(rng.random(size) < 0.01, each, 0) for each in (common, one, other))
    mixed = [np.sqrt(share) * common + np.sqrt(1 - share) * each for each in (one, other)]
    return mixed[0].astype(np.float32), mixed[1].astype(np.float32)


def cosine(left: Vector32, right: Vector32) -> float:
    a, b = left.astype(np.float64), right.astype(np.float64)
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


@pytest.mark.parametrize("share", [0.0, 0.5, 0.95])
@pytest.mark.parametrize("kind", ["plain", "shifted", "periodic", "in chunks", "sparse"])
def test_cosines_are_kept(kind: str, share: float) -> None:
    """Of 100,000 values in 4,096: 1/√4096 is 0.016, and no seed here is off by four times that."""
    left, right = alike(kind, share, 100_000)
    true = cosine(left, right)
    errors = []
    for seed in range(20):
        sketch = Sketch(len(left), dimensions=4096, seed=seed)
        errors.append(cosine(sketch.of(left), sketch.of(right)) - true)
    assert np.sqrt(np.mean(np.square(errors))) < 1.5 / 64
    assert np.max(np.abs(errors)) < 4 / 64
    assert abs(np.mean(errors)) < 1 / 64


def test_a_vector_of_another_size_is_refused() -> None:
    with pytest.raises(ShapeMismatchError):
        Sketch(5, dimensions=2, seed=1).of(np.zeros(4, np.float32))


# -- what a ledger makes of them -------------------------------------------------------------------------

CNN = ModelLayout.of([TensorSpec("fc1.weight", "F32", (2048, 1568)), TensorSpec("fc2.weight", "F32", (10, 2048))])
"""13 MB, nearly all of it in one layer."""


def test_models_above_65536_values_are_compared_by_a_sketch() -> None:
    def layout(count: int) -> ModelLayout:
        return ModelLayout.of([TensorSpec("bn.running_mean", "F32", (9,)), TensorSpec("w", "F32", (count,))])

    assert compare_all(layout(65_536), ["bn.running_mean"]) == Component("all")
    assert compare_all(layout(65_536)) == SKETCH
    assert compare_all(layout(65_537), ["bn.running_mean"]) == SKETCH


def test_a_thousand_authors_of_a_large_model_take_less_than_100_mib() -> None:
    """32 MiB of rows, and never more than that again while the matrix grows."""
    genesis = replace(make_genesis(layout=CNN), comparison=compare_all(CNN))
    first = model(1, layout=CNN)
    node = LedgerNode(genesis, genesis_transaction(genesis, first), np.zeros(CNN.num_parameters, np.float32))
    compared = node.compared(np.ones(CNN.num_parameters, np.float32))
    tracemalloc.start()
    held = CandidateVectors(np.zeros_like(compared))
    for number in range(1000):
        held.add(TxId(f"{number:064x}"), compared)
    size, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < peak < 100 * 2**20


def test_a_ledger_compares_sketches_of_what_is_trained() -> None:
    """Two opposite updates beside one's own; the buffer differs for all, and nobody sees it."""
    layout = ModelLayout.of([TensorSpec("bn.running_mean", "F32", (3,)), TensorSpec("w", "F32", (50,))])
    genesis = replace(
        make_genesis(layout=layout),
        comparison=Component("sketch", {"dimensions": 16, "seed": 7}),
        buffers=("bn.running_mean",),
    )
    node = LedgerNode(genesis, genesis_transaction(genesis, model(layout=layout)), np.zeros(53, np.float32))

    def trained(buffer: float, *values: float) -> Vector32:
        return np.array([buffer] * 3 + [*values] * 25, np.float32)

    models: Matrix32 = np.stack([trained(5, 1, 2), trained(-5, 1, 2), trained(9, -1, -2)])
    rows = [node.compared(each) for each in models]
    assert [row.shape for row in rows] == [(16,)] * 3
    assert rows[0].tolist() == rows[1].tolist() == (-rows[2]).tolist()
    assert rows[0].tolist() == naive_sketch([1.0, 2.0] * 25, dimensions=16, seed=7)
