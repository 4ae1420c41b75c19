"""Cosines from one product: by hand, against the twins, the same to the bit, and as tips come and go."""

import math
import os
import subprocess
import sys
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fl_core.errors import ShapeMismatchError
from fl_core.similarity import CandidateVectors, Similarities, _on_grid, _product
from fl_core.sketch import Sketch
from fl_core.types import Matrix32, TxId, Vector32
from tests.reference import similarities_digest
from tests.reference import similarity as twin

CLOSE = 1e-7
"""Values are rounded to 2^-27 of their vector's norm, and the vectors here are short."""


def vector(*values: float) -> Vector32:
    return np.array(values, dtype=np.float32)


def compare(tips: CandidateVectors, model: Vector32, candidates: list[TxId]) -> Similarities:
    """One model alone."""
    return tips.compare(model[None], [candidates])[0]


def cosine(left: Vector32, right: Vector32) -> float:
    tips = CandidateVectors(np.zeros_like(left))
    tips.add(TxId("right"), right)
    return float(compare(tips, left, [TxId("right")]).models[0])


def test_cosine_by_hand() -> None:
    assert cosine(vector(3, 4), vector(4, 3)) == pytest.approx(24 / 25, abs=1e-15)
    assert cosine(vector(1, 0), vector(-2, 0)) == -1.0
    assert cosine(vector(0, 0), vector(1, 0)) == 0.0


def test_models_and_updates_are_compared() -> None:
    tips = CandidateVectors(vector(1, 0))
    tips.add(TxId("a"), vector(1, 2))  # update (0, 2)
    tips.add(TxId("b"), vector(4, 0))  # update (3, 0)
    result = compare(tips, vector(1, 1), [TxId("b"), TxId("a")])  # update (0, 1)
    assert result.updates.tolist() == [0.0, 1.0]
    assert result.models == pytest.approx([1 / np.sqrt(2), 3 / np.sqrt(10)], abs=CLOSE)
    assert result.genesis == pytest.approx(1 / np.sqrt(2), abs=CLOSE)


def test_model_without_direction_scores_zero() -> None:
    tips = CandidateVectors(vector(1, 1))
    tips.add(TxId("genesis-again"), vector(1, 1))
    tips.add(TxId("zero"), vector(0, 0))
    result = compare(tips, vector(2, 1), [TxId("genesis-again"), TxId("zero")])
    assert result.updates[0] == 0.0
    assert result.models[1] == 0.0
    nothing = compare(tips, vector(0, 0), [TxId("genesis-again")])
    assert (nothing.models[0], nothing.genesis) == (0.0, 0.0)
    assert compare(tips, vector(1, 1), [TxId("zero")]).updates[0] == 0.0


def test_models_that_differ_by_little_from_genesis_are_told_apart() -> None:
    """Subtracting two float32 products would leave noise here; keeping updates leaves none."""
    rng = np.random.default_rng(5)
    genesis = rng.standard_normal(5000).astype(np.float32)
    direction = rng.standard_normal(5000).astype(np.float32) * np.float32(1e-4)
    other = rng.standard_normal(5000).astype(np.float32) * np.float32(1e-4)
    tips = CandidateVectors(genesis)
    tips.add(TxId("same"), genesis + 2 * direction)
    tips.add(TxId("other"), genesis + other)
    result = compare(tips, genesis + direction, [TxId("same"), TxId("other")])
    assert result.updates[0] > 0.999
    assert abs(result.updates[1]) < 0.1


@settings(deadline=None)
@given(
    st.integers(1, 6),
    st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=5, unique=True),
    st.integers(0, 2**32 - 1),
)
def test_agrees_with_the_naive_twin(dimension: int, seeds: list[int], asker: int) -> None:
    def draw(seed: int) -> Vector32:
        return np.random.default_rng(seed).standard_normal(dimension).astype(np.float32)

    genesis, mine = draw(99), draw(asker)
    tips = CandidateVectors(genesis)
    for seed in seeds:
        tips.add(TxId(str(seed)), draw(seed))
    result = compare(tips, mine, [TxId(str(seed)) for seed in seeds])
    for place, seed in enumerate(seeds):
        row = draw(seed).tolist()
        assert result.models[place] == pytest.approx(twin.cosine(mine.tolist(), row), abs=1e-5)
        expected = twin.update_cosine(mine.tolist(), row, genesis.tolist())
        assert result.updates[place] == pytest.approx(expected, abs=CLOSE)
    assert result.genesis == pytest.approx(twin.cosine(mine.tolist(), genesis.tolist()), abs=1e-5)


any_noise = st.just(0.0) | st.floats(0, 1) | st.floats(0, allow_infinity=False)


# -- declared noise -----------------------------------------------------------------------------------------


def declared(update: Vector32, other: Vector32, *, std: float, other_std: float) -> float:
    """Cosine of two updates with their declared noise."""
    tips = CandidateVectors(np.zeros_like(update))
    tips.add(TxId("other"), other, noise_std=other_std)
    (found,) = tips.compare(update[None], [[TxId("other")]], noise_stds=[std])
    return float(found.updates[0])


def test_declared_noise_is_taken_off_the_squares_by_hand() -> None:
    """Products 8; squares 16 and 8; noise of 1 in each of four values has a square of 4."""
    u, v = vector(2, 2, 2, 2), vector(2, 2, 0, 0)
    assert declared(u, v, std=0, other_std=0) == pytest.approx(8 / np.sqrt(16 * 8))
    assert declared(u, v, std=1, other_std=0) == pytest.approx(8 / np.sqrt(12 * 8))
    assert declared(u, v, std=1, other_std=0.5) == pytest.approx(8 / np.sqrt(12 * 7))
    assert declared(u, u, std=1, other_std=0) == 1.0  # cut: two that are alike without noise


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), any_noise)
def test_a_false_claim_makes_a_cosine_at_most_five_times_as_large(seed: int, claim: float) -> None:
    u, v = np.random.default_rng(seed).standard_normal((2, 50)).astype(np.float32)
    honest, liar = (abs(declared(v, u, std=0, other_std=std)) for std in (0.0, claim))
    assert honest <= liar <= 5 * honest * (1 + 1e-12)


def test_models_are_as_alike_with_noise_as_without_also_folded() -> None:
    """Four fifths of each square are noise: what a fifth says is found again, of a sketch less exactly."""
    rng = np.random.default_rng(3)
    shared, mine, theirs = rng.standard_normal((3, 100_000))
    clean = [(shared + own).astype(np.float32) for own in (mine, theirs)]  # cosine 1/2
    noisy = [(each + rng.normal(0, 8**0.5, 100_000)).astype(np.float32) for each in clean]
    fold = Sketch(100_000, dimensions=8_192, seed=1)
    for what, tolerance in ((lambda values: values, 0.05), (fold.of, 0.15)):
        folded, other = map(what, noisy)
        tips = CandidateVectors(np.zeros_like(folded), num_values=100_000)
        tips.add(TxId("other"), other, noise_std=8**0.5)
        plain, corrected = (
            tips.compare(folded[None], [[TxId("other")]], noise_stds=[std])[0].updates[0] for std in (0, 8**0.5)
        )
        assert corrected == pytest.approx(0.5, abs=tolerance)
        assert plain < 0.3


# -- the same to the bit ---------------------------------------------------------------------------------


def bits(found: Similarities) -> tuple[bytes, bytes, str]:
    return found.models.tobytes(), found.updates.tobytes(), found.genesis.hex()


any_value = st.floats(-(2.0**126), 2.0**126, width=32) | st.integers(-4, 4).map(float)


@settings(deadline=None)
@given(st.data(), st.integers(1, 6), st.integers(1, 4))
def test_cosines_are_as_specified(data: st.DataObject, dimension: int, count: int) -> None:
    values = st.lists(any_value, min_size=dimension, max_size=dimension)
    genesis, mine, *models = (vector(*data.draw(values)) for _ in range(count + 2))
    own, *noise = (data.draw(any_noise) for _ in range(count + 1))
    tips = CandidateVectors(genesis)
    ids = [TxId(str(number)) for number in range(count)]
    for each, model, std in zip(ids, models, noise, strict=True):
        tips.add(each, model, noise_std=std)
    (found,) = tips.compare(mine[None], [ids], noise_stds=[own])
    base = genesis.tolist()
    for place, (model, std) in enumerate(zip(models, noise, strict=True)):
        expected = twin.specified(
            (mine - genesis).tolist(), (model - genesis).tolist(), base, noise_std=own, other_noise_std=std
        )
        told = (found.models[place], found.updates[place], found.genesis)
        assert [*map(float.hex, told)] == [*map(float.hex, (expected.models, expected.updates, expected.genesis))]
        assert cosine(mine, model) == twin.specified(mine.tolist(), model.tolist(), base).updates


def test_ties_go_to_even() -> None:
    """The norm lies in [2^26, 2^27), so that the grid is 2."""
    assert _on_grid(vector(2**26, 1, 3, 5, -1, 1.5)).tolist() == [2**26, 0, 4, 4, 0, 2]


def unaligned(values: Vector32) -> Vector32:
    """The same values, beginning 4 bytes after where they would."""
    moved = np.empty(len(values) + 1, dtype=np.float32)[1:]
    moved[:] = values
    return moved


@cache
def drawn(dimension: int) -> Matrix32:
    return similarities_digest.vectors(100, dimension, seed=7)


@settings(deadline=None)
@given(
    st.sampled_from([1, 3, 17, 1290, 4099]),
    st.permutations(range(40)),
    st.integers(0, 57),
    st.lists(st.integers(0, 39), min_size=1, unique=True),
)
def test_layout_changes_no_bit(dimension: int, order: list[int], others: int, wanted: list[int]) -> None:
    """Neither the order of rows, nor others between them, nor where vectors begin, nor how many are asked at once."""
    genesis, *models = drawn(dimension)
    ids = [TxId(str(number)) for number in range(len(models))]
    plain, mixed = CandidateVectors(genesis), CandidateVectors(unaligned(genesis))
    for number in range(40):
        plain.add(ids[number], models[number])
    for number in range(40, 40 + others):
        mixed.add(ids[number], models[number])
    for number in order:
        mixed.add(ids[number], unaligned(models[number]))
    for number in range(40, 40 + others, 2):
        mixed.discard(ids[number])
    candidates = [ids[number] for number in wanted]
    alone = [compare(plain, model, candidates) for model in models[-2:]]
    together = mixed.compare(np.stack(models[-2:]), [candidates, candidates])
    apart = [compare(mixed, unaligned(model), candidates) for model in models[-2:]]
    assert [*map(bits, together)] == [*map(bits, apart)] == [*map(bits, alone)]


def test_no_sum_is_rounded() -> None:
    """What makes the rest true: float64 adds the products up without an error, whatever the order."""
    left, right = map(_on_grid, similarities_digest.vectors(2, 20_000, seed=5))
    exact = twin.product([*map(Fraction, left.tolist())], [*map(Fraction, right.tolist())])
    terms = left.astype(np.float64) * right
    for order in (terms, terms[::-1], np.sort(terms), terms[np.argsort(-np.abs(terms))]):
        assert np.cumsum(order)[-1] == exact


def test_norms_of_26_bits() -> None:
    """2^18 values of 2^17 - 1/2: a norm just below 2^26, hence a grid of 1, and all are rounded up."""
    values = _on_grid(np.full(2**18, 2**17 - 0.5, dtype=np.float32))
    assert set(values.tolist()) == {2**17}
    assert _product(values, values) == 2**52


@pytest.mark.parametrize(
    ("kernels", "feature", "threads"),
    [("Prescott", "SSE3", "1"), ("Haswell", "FMA3", "2"), ("SkylakeX", "AVX512_SKX", "2")],
)
def test_the_processor_changes_no_bit(kernels: str, feature: str, threads: str) -> None:
    """Vectors of 2, 4 and 8 float64 values, as far as this processor has them; NumPy's own loops without any."""
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    spared = " ".join(name for name in __cpu_dispatch__ if __cpu_features__[name])
    environment = {"OPENBLAS_NUM_THREADS": threads, "NPY_DISABLE_CPU_FEATURES": spared}
    if __cpu_features__[feature]:  # kernels that it has not would end the process; then OpenBLAS chooses
        environment["OPENBLAS_CORETYPE"] = kernels
    printed = subprocess.run(
        [sys.executable, "-m", "tests.reference.similarities_digest"],
        cwd=Path(__file__).parents[3],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout == f"{similarities_digest.KNOWN} {similarities_digest.KNOWN_SKETCHES}"


def test_another_processor_found_the_same() -> None:
    assert similarities_digest.digest() == similarities_digest.KNOWN
    assert similarities_digest.sketches_digest() == similarities_digest.KNOWN_SKETCHES


# -- how precise -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dimension", [1, 30, 100_000])
@pytest.mark.parametrize(
    ("scale", "update", "decades"),
    [(1, 1, 0), (1, 1e-6, 0), (1, 1e6, 0), (1e30, 1, 0), (1e-44, 1, 0), (1, 1, 12), (1, 1e-4, 6)],
    ids=["plain", "tiny updates", "large updates", "huge", "denormal", "wide", "wide and small"],
)
def test_cosines_are_precise(dimension: int, scale: float, update: float, decades: int) -> None:
    """Beside float64, whose sums of 100,000 products are good to 1e-13."""
    rng = np.random.default_rng(11)
    shape = (4, dimension)
    sizes = scale * 10.0 ** rng.uniform(-decades, 0, dimension)
    base, common, mine, theirs = rng.standard_normal(shape) * sizes
    genesis = base.astype(np.float32)
    model, other = ((base + update * (common + each)).astype(np.float32) for each in (mine, theirs))
    tips = CandidateVectors(genesis)
    tips.add(TxId("other"), other)
    found = compare(tips, model, [TxId("other")])
    wide = [(each - genesis).astype(np.float64) for each in (model, other)]
    assert found.updates[0] == pytest.approx(cosine64(*wide), abs=2e-7)
    assert found.models[0] == pytest.approx(cosine64(model.astype(np.float64), other.astype(np.float64)), abs=2e-7)


def cosine64(left: np.ndarray, right: np.ndarray) -> float:
    left, right = (each / max(np.abs(each).max(), 1e-300) for each in (left, right))
    return twin.cosine(left.tolist(), right.tolist())


def test_the_largest_values_do_not_overflow() -> None:
    largest = np.full(1000, 1e38, dtype=np.float32)
    tips = CandidateVectors(-largest)
    tips.add(TxId("a"), largest)
    found = compare(tips, largest, [TxId("a")])
    assert (found.models[0], found.updates[0], found.genesis) == pytest.approx((1, 1, -1), abs=1e-15)


# -- many, few and none ----------------------------------------------------------------------------------


def test_few_of_many_give_the_same_as_all() -> None:
    rng = np.random.default_rng(8)
    vectors = rng.standard_normal((50, 7)).astype(np.float32)
    tips = CandidateVectors(np.zeros(7, dtype=np.float32))
    ids = [TxId(f"{i:02}") for i in range(50)]
    for each, values in zip(ids, vectors, strict=True):
        tips.add(each, values)
    everything = compare(tips, vectors[3], ids)
    few = compare(tips, vectors[3], ids[40:43])
    assert few.models.tolist() == everything.models[40:43].tolist()


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 19), unique=True), max_size=6))
def test_many_clients_are_told_what_each_would_be_told_alone(wanted: list[list[int]]) -> None:
    rng = np.random.default_rng(9)
    tips = CandidateVectors(rng.standard_normal(7).astype(np.float32))
    for number, values in enumerate(rng.standard_normal((20, 7)).astype(np.float32)):
        tips.add(TxId(f"{number:02}"), values)
    clients = rng.standard_normal((len(wanted), 7)).astype(np.float32)
    candidates = [[TxId(f"{number:02}") for number in those] for those in wanted]
    together = tips.compare(clients, candidates)
    for client, those, found in zip(clients, candidates, together, strict=True):
        assert bits(found) == bits(compare(tips, client, those))


def test_distances_from_the_latest_and_again_from_one_whose_row_has_moved() -> None:
    a, b, c = (TxId(letter * 64) for letter in "abc")
    vectors = CandidateVectors(np.float32([1, 1]))
    for each, at in ((a, 1), (b, 4), (c, 10)):
        vectors.add(each, np.float32([at, 1]))
    model, latest = np.float32([4, 5]), vectors.latest(2)
    assert latest.ids == (b, c)
    assert latest.near(model, within=4.0) == {b: 4.0}
    assert [*latest.near(model, within=8.0).items()] == [(b, 4.0), (c, math.sqrt(52))]
    assert latest.near(model, within=3.9) == {}
    vectors.discard(b)
    assert [vectors.distance(model, each) for each in (a, b, c)] == [5.0, None, math.sqrt(52)]


def test_wrong_shapes_and_unknown_tips_are_refused() -> None:
    tips = CandidateVectors(vector(1, 0))
    with pytest.raises(ShapeMismatchError):
        tips.add(TxId("a"), vector(1, 2, 3))
    with pytest.raises(ShapeMismatchError):
        compare(tips, vector(1), [])
    with pytest.raises(ShapeMismatchError):
        tips.compare(np.zeros((2, 2), dtype=np.float32), [[]])
    with pytest.raises(ShapeMismatchError):
        CandidateVectors(np.zeros((2, 2), dtype=np.float32))
    with pytest.raises(KeyError):
        compare(tips, vector(1, 1), [TxId("a")])


def test_no_candidates_give_empty_similarities() -> None:
    result = compare(CandidateVectors(vector(1, 0)), vector(1, 1), [])
    assert (result.models.shape, result.updates.shape) == ((0,), (0,))


class CandidateVectorsAgainstADictionary(RuleBasedStateMachine):
    """Tips come and go in any order; every one keeps its own row."""

    def __init__(self) -> None:
        super().__init__()
        self.tips = CandidateVectors(vector(0, 0))
        self.kept: dict[TxId, Vector32] = {}

    @rule(start=st.integers(0, 40), count=st.integers(1, 30))
    def add(self, start: int, count: int) -> None:
        for number in range(start, start + count):
            angle = number / 20
            self.tips.add(TxId(str(number)), vector(np.cos(angle), np.sin(angle)))
            self.kept[TxId(str(number))] = vector(np.cos(angle), np.sin(angle))

    @rule(start=st.integers(0, 60), count=st.integers(1, 30))
    def discard(self, start: int, count: int) -> None:
        for number in range(start, start + count):
            self.tips.discard(TxId(str(number)))
            self.kept.pop(TxId(str(number)), None)

    @invariant()
    def rows_are_their_own(self) -> None:
        ids = sorted(self.kept)
        assert len(self.tips) == len(ids)
        assert all(each in self.tips for each in ids)
        result = compare(self.tips, vector(1, 0), ids)
        expected = [self.kept[each][0] for each in ids]
        assert result.models == pytest.approx(expected, abs=CLOSE)
        nbytes = self.tips._updates.nbytes + self.tips._scalars.nbytes
        assert nbytes <= 32 * max(16, 4 * len(ids))  # 2 float32 and 3 float64 a row


TestCandidateVectorsAgainstADictionary = CandidateVectorsAgainstADictionary.TestCase
TestCandidateVectorsAgainstADictionary.settings = settings(deadline=None, max_examples=30)


class Rows:
    """A file of rows, in memory."""

    def __init__(self) -> None:
        self.rows: dict[int, Vector32] = {}

    def write(self, row: int, values: Vector32) -> None:
        self.rows[row] = values.copy()

    def read(self, rows: Sequence[int]) -> Matrix32:
        return np.stack([self.rows[row] for row in rows])


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_rows_in_a_file_answer_as_rows_in_memory_do(seed: int) -> None:
    rng, names = np.random.default_rng(seed), [TxId(f"{number:02}") for number in range(12)]
    genesis, model = (rng.standard_normal(5, dtype=np.float32) for _ in range(2))
    file = Rows()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fl_core.similarity.IN_MEMORY", 3)
        both = CandidateVectors(genesis), CandidateVectors(genesis, file=file)
        for _ in range(40):
            name, vector = names[rng.integers(12)], rng.standard_normal(5, dtype=np.float32)
            for each in both:
                if name in each:
                    each.discard(name)
                else:
                    each.add(name, vector)
        wanted = [name for name in names if name in both[0]]
        some = [*rng.permutation(wanted)[: rng.integers(1, 13)]]
        for ask in (wanted, some):
            ours, theirs = (compare(each, model, ask) for each in both)
            assert bits(ours) == bits(theirs)
        assert both[0].nearest(model, 4) == both[1].nearest(model, 4)
        assert both[0].nearest(model, 40) == both[1].nearest(model, 40)
        held, filed = (each.latest(5) for each in both)
        assert held.ids == filed.ids
        assert [*held.near(model, within=9.0).items()] == [*filed.near(model, within=9.0).items()]
        assert [both[0].distance(model, name) for name in names] == [both[1].distance(model, name) for name in names]
    assert bool(file.rows) or len(wanted) <= 3
