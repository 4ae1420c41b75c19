"""The model gate: one canonical file per layout, finite values, and a named fault for everything else."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from fl_core.errors import (
    ModelError,
    ModelLayoutError,
    ModelNotCanonicalError,
    ModelNotFiniteError,
)
from fl_core.models import (
    ModelLayout,
    TensorSpec,
    check_model,
    decode_any_order,
    decode_model,
    encode_flat,
    encode_model,
    flat,
    model_norm,
    read_layout,
    similarity_vector,
)
from tests.bad_models import REFUSED, file_of
from tests.builders import LAYOUT, model

names = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_/:-]{0,12}", fullmatch=True)
shapes = st.lists(st.integers(1, 4), max_size=3).map(tuple)


def layouts_of(*dtypes: str) -> st.SearchStrategy[ModelLayout]:
    tensors = st.dictionaries(names, st.tuples(st.sampled_from(dtypes), shapes), min_size=1, max_size=5)
    return tensors.map(
        lambda specs: ModelLayout.of(TensorSpec(name, dtype, shape) for name, (dtype, shape) in specs.items())
    )


layouts = layouts_of("F32", "F16", "BF16")


@given(layouts_of("F32"), st.integers(0, 2**32 - 1))
def test_float32_files_are_those_of_the_safetensors_library(layout: ModelLayout, seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = {t.name: rng.standard_normal(t.shape, np.float32) for t in layout.tensors}
    assert encode_model(layout, arrays) == safetensors.numpy.save(arrays)


@given(layouts, st.integers(0, 2**32 - 1))
def test_encoding_a_flat_vector_and_reading_it_back_is_the_identity(layout: ModelLayout, seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = encode_flat(layout, rng.standard_normal(layout.num_parameters, np.float32))
    assert len(data) == layout.nbytes
    assert encode_flat(layout, check_model(layout, data)) == data
    assert encode_model(layout, decode_model(layout, data)) == data
    assert read_layout(data) == layout


def test_half_precision_files_are_those_of_the_safetensors_library() -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import save

    tensors = {
        "w": torch.tensor([1.0, -2.5]),
        "a": torch.tensor([1.0, 3.14159]).bfloat16(),
        "h": torch.tensor([0.1, 65504.0]).half(),
        "b": torch.tensor([[0.3]]).bfloat16(),
    }
    data = save(tensors)
    layout = read_layout(data)
    assert encode_flat(layout, check_model(layout, data)) == data
    assert encode_model(layout, {name: t.float().numpy() for name, t in tensors.items()}) == data


def test_a_flat_float32_vector_is_a_view_of_the_bytes() -> None:
    data = model(1, 2, 3, 4)
    assert np.shares_memory(flat(LAYOUT, data), np.frombuffer(data, np.uint8))


def test_the_similarity_vector_joins_the_named_layers_only() -> None:
    layout = ModelLayout.of([TensorSpec(name, "F32", (2,)) for name in ("a", "b", "c")])
    vector = np.arange(6, dtype=np.float32)
    assert similarity_vector(layout, vector, ["c", "a"]).tolist() == [0, 1, 4, 5]
    assert similarity_vector(layout, vector, ["b", "a"]).tolist() == [0, 1, 2, 3]
    with pytest.raises(ModelLayoutError):
        layout.slices(["z"])


def test_tensors_lie_one_after_another_in_the_flat_vector() -> None:
    layout = ModelLayout.of([TensorSpec("b", "F32", (2, 3)), TensorSpec("a", "F32", (4,)), TensorSpec("c", "F32", ())])
    assert layout.tensor_slices == (slice(0, 4), slice(4, 10), slice(10, 11))


def test_the_norm_is_the_euclidean_one() -> None:
    assert model_norm(np.array([3, 4], np.float32)) == 5.0
    assert model_norm(np.full(2**20, 1e30, np.float32)) == pytest.approx(1e30 * 2**10, rel=1e-6)
    assert model_norm(np.array([], np.float32)) == 0.0


@pytest.mark.parametrize("size", [1, 2, 3, 65_535, 65_537, 150_001])
def test_no_value_is_left_out_of_a_norm(size: int) -> None:
    values = np.arange(1, size + 1, dtype=np.float32)
    squares = size * (size + 1) * (2 * size + 1) // 6
    assert model_norm(values) == pytest.approx(math.sqrt(squares), rel=1e-15)


def replace_value(value: float) -> bytes:
    vector = flat(LAYOUT, model(1, 2, 3, 4)).copy()
    vector[2] = value
    return encode_flat(LAYOUT, vector)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 2e38, -2e38])
def test_values_that_are_not_finite_or_too_large_are_refused(value: float) -> None:
    with pytest.raises(ModelNotFiniteError) as refused:
        check_model(LAYOUT, replace_value(value))
    # Canonical order: fc.bias has one value, the third one is fc.weight's.
    assert str(refused.value) == f"tensor 'fc.weight' holds {value:g}; values must be finite and within ±1e+38"


def test_the_largest_allowed_value_passes() -> None:
    assert check_model(LAYOUT, replace_value(1e38))[2] == np.float32(1e38)


@pytest.mark.parametrize(("build", "error"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_a_bad_file_is_refused_with_the_fault_by_name(build: Callable[[], bytes], error: type[ModelError]) -> None:
    with pytest.raises(error):
        check_model(LAYOUT, build())


@given(st.binary(max_size=400))
def test_random_bytes_are_refused_and_never_crash(data: bytes) -> None:
    with pytest.raises(ModelError):
        check_model(LAYOUT, data)


@given(st.integers(0, len(LAYOUT.prefix) - 1), st.integers(1, 255))
def test_every_change_of_the_header_is_refused(at: int, flip: int) -> None:
    data = bytearray(model(1, 2, 3, 4))
    data[at] ^= flip
    with pytest.raises(ModelError):
        check_model(LAYOUT, bytes(data))


def test_a_file_in_another_order_is_read_for_its_arrays_but_not_admitted() -> None:
    other = {
        "fc.weight": {"dtype": "F32", "shape": [1, 3], "data_offsets": [0, 12]},
        "fc.bias": {"dtype": "F32", "shape": [1], "data_offsets": [12, 16]},
    }
    data = file_of(other, np.array([1, 2, 3, 9], "<f4").tobytes())
    assert decode_any_order(data)["fc.bias"].tolist() == [9]
    with pytest.raises(ModelNotCanonicalError):
        check_model(LAYOUT, data)


def test_a_file_with_metadata_is_read_for_its_arrays_and_the_refusal_says_how_to_write_it_without() -> None:
    layout = ModelLayout.of([TensorSpec("w", "F32", (2,))])
    data = safetensors.numpy.save({"w": np.array([1, 2], np.float32)}, metadata={"format": "pt"})
    assert read_layout(data) == layout
    assert decode_any_order(data)["w"].tolist() == [1, 2]
    with pytest.raises(ModelNotCanonicalError, match=r"save_file\(load_file\(FILE\), FILE\)"):
        check_model(layout, data)
    rewritten = safetensors.numpy.save(safetensors.numpy.load(data))
    assert check_model(layout, rewritten).tolist() == [1, 2]


def test_a_layout_refuses_doubled_names_and_wrong_order() -> None:
    spec = TensorSpec("a", "F32", (1,))
    with pytest.raises(ModelLayoutError):
        ModelLayout((spec, spec))
    with pytest.raises(ModelLayoutError):
        ModelLayout((TensorSpec("b", "F32", (1,)), spec))
    with pytest.raises(ModelLayoutError):
        ModelLayout(())
