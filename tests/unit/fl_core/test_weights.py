"""The model gate: one canonical file per layout, finite values, and a named fault for everything else."""

import json
import struct
from collections.abc import Callable

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from fl_core.errors import (
    ModelError,
    ModelLayoutError,
    ModelMalformedError,
    ModelNotCanonicalError,
    ModelNotFiniteError,
    ModelTooLargeError,
)
from fl_core.weights import (
    MAX_HEADER_BYTES,
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
from tests.builders import LAYOUT, model

names = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_/:-]{0,12}", fullmatch=True)
shapes = st.lists(st.integers(1, 4), max_size=3).map(tuple)
layouts = st.dictionaries(
    names, st.tuples(st.sampled_from(["F32", "F16", "BF16"]), shapes), min_size=1, max_size=5
).map(lambda specs: ModelLayout.of(TensorSpec(name, dtype, shape) for name, (dtype, shape) in specs.items()))


def file_of(header: object, body: bytes = b"") -> bytes:
    """A safetensors file with any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


@given(layouts.filter(lambda layout: layout.is_float32), st.integers(0, 2**32 - 1))
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


def test_the_norm_is_the_euclidean_one() -> None:
    assert model_norm(np.array([3, 4], np.float32)) == 5.0
    assert model_norm(np.full(2**20, 1e30, np.float32)) == pytest.approx(1e30 * 2**10, rel=1e-6)


def replace_value(value: float) -> bytes:
    vector = flat(LAYOUT, model(1, 2, 3, 4)).copy()
    vector[2] = value
    return encode_flat(LAYOUT, vector)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 2e38, -2e38])
def test_values_that_are_not_finite_or_too_large_are_refused(value: float) -> None:
    with pytest.raises(ModelNotFiniteError):
        check_model(LAYOUT, replace_value(value))


def test_the_largest_allowed_value_passes() -> None:
    assert check_model(LAYOUT, replace_value(1e38))[2] == np.float32(1e38)


GOOD = {
    "fc.bias": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
    "fc.weight": {"dtype": "F32", "shape": [1, 3], "data_offsets": [4, 16]},
}
BODY = b"\x00" * 16


def changed(name: str, **fields: object) -> dict[str, dict[str, object]]:
    return {**GOOD, name: {**GOOD[name], **fields}}


def nested(depth: int) -> bytes:
    return b'{"a":' + b"[" * depth + b"]" * depth + b"}"


REFUSED: list[tuple[str, Callable[[], bytes], type[ModelError]]] = [
    ("empty", lambda: b"", ModelMalformedError),
    ("seven bytes", lambda: b"\x00" * 7, ModelMalformedError),
    ("length word of zero", lambda: b"\x00" * 8, ModelMalformedError),
    ("length 2^64-1", lambda: b"\xff" * 8 + BODY, ModelTooLargeError),
    ("length 2^63", lambda: struct.pack("<Q", 2**63) + BODY, ModelTooLargeError),
    ("length beyond the file", lambda: struct.pack("<Q", 1000) + b"{}", ModelMalformedError),
    ("header over 1 MiB", lambda: struct.pack("<Q", MAX_HEADER_BYTES + 1) + b" " * (MAX_HEADER_BYTES + 1), ModelTooLargeError),
    (
        "5,000 tensors",
        lambda: file_of({f"t{i}": {"dtype": "F32", "shape": [1], "data_offsets": [4 * i, 4 * i + 4]} for i in range(5000)}, b"\x00" * 20000),
        ModelTooLargeError,
    ),
    ("not UTF-8", lambda: file_of(b"\xff\xfe{}"), ModelMalformedError),
    ("not JSON", lambda: file_of(b"{nope}"), ModelMalformedError),
    ("a list", lambda: file_of([]), ModelMalformedError),
    ("null", lambda: file_of(None), ModelMalformedError),
    ("100,000 deep", lambda: file_of(nested(100_000)), ModelMalformedError),
    ("no tensors", lambda: file_of({}), ModelLayoutError),
    ("overlap", lambda: file_of(changed("fc.weight", data_offsets=[0, 12]), BODY), ModelMalformedError),
    ("hole", lambda: file_of(changed("fc.weight", data_offsets=[8, 20]), BODY + b"\x00" * 4), ModelMalformedError),
    ("reversed offsets", lambda: file_of(changed("fc.weight", data_offsets=[16, 4]), BODY), ModelMalformedError),
    ("offsets past the end", lambda: file_of(GOOD, BODY[:-1]), ModelMalformedError),
    ("trailing bytes", lambda: file_of(GOOD, BODY + b"PK\x03\x04"), ModelMalformedError),
    ("negative shape", lambda: file_of(changed("fc.bias", shape=[-1]), BODY), ModelMalformedError),
    ("float shape", lambda: file_of(changed("fc.bias", shape=[1.0]), BODY), ModelMalformedError),
    ("boolean shape", lambda: file_of(changed("fc.bias", shape=[True]), BODY), ModelMalformedError),
    ("overflowing shape", lambda: file_of(changed("fc.bias", shape=[2**32, 2**32]), BODY), ModelMalformedError),
    ("shape [0, 2^62]", lambda: file_of(changed("fc.bias", shape=[0, 2**62], data_offsets=[0, 0]), BODY), ModelLayoutError),
    ("rank 9", lambda: file_of(changed("fc.bias", shape=[1] * 9), BODY), ModelLayoutError),
    ("unknown dtype", lambda: file_of(changed("fc.bias", dtype="X9"), BODY), ModelLayoutError),
    ("F64", lambda: file_of(changed("fc.bias", dtype="F64"), BODY), ModelLayoutError),
    ("F8", lambda: file_of(changed("fc.bias", dtype="F8_E4M3"), BODY), ModelLayoutError),
    ("BF16 where genesis says F32", lambda: file_of({**changed("fc.bias", dtype="BF16", shape=[2])}, BODY), ModelLayoutError),
    ("another shape", lambda: file_of(changed("fc.weight", shape=[3, 1]), BODY), ModelLayoutError),
    ("a tensor missing", lambda: file_of({"fc.bias": GOOD["fc.bias"]}, BODY[:4]), ModelLayoutError),
    ("a tensor too many", lambda: file_of({**GOOD, "z": {"dtype": "F32", "shape": [1], "data_offsets": [16, 20]}}, BODY + b"\x00" * 4), ModelLayoutError),
    ("a key twice", lambda: file_of(b'{"a":1,"a":1}'), ModelMalformedError),
    ("an unknown field", lambda: file_of(changed("fc.bias", extra=1), BODY), ModelMalformedError),
    ("dtype a number", lambda: file_of(changed("fc.bias", dtype=32), BODY), ModelMalformedError),
    ("NaN in the header", lambda: file_of(b'{"a":NaN}'), ModelMalformedError),
    ("padding spaces", lambda: file_of(json.dumps(GOOD, separators=(",", ":")).encode() + b" " * 64, BODY), ModelNotCanonicalError),
    ("spaces in the JSON", lambda: file_of(GOOD, BODY), ModelNotCanonicalError),
    ("metadata", lambda: file_of({"__metadata__": {"format": "pt"}, **GOOD}, BODY), ModelNotCanonicalError),
    ("tensor name empty", lambda: file_of({"": GOOD["fc.bias"]}, BODY[:4]), ModelLayoutError),
    ("tensor name climbs", lambda: file_of({"../../etc/passwd": GOOD["fc.bias"]}, BODY[:4]), ModelLayoutError),
    ("tensor name with NUL", lambda: file_of({"a\0b": GOOD["fc.bias"]}, BODY[:4]), ModelLayoutError),
    ("tensor name of 300 bytes", lambda: file_of({"n" * 300: GOOD["fc.bias"]}, BODY[:4]), ModelLayoutError),
    ("a pickle", lambda: b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x07builtins", ModelError),
    ("a zip", lambda: b"PK\x03\x04" + b"\x00" * 200, ModelError),
    ("GGUF", lambda: b"GGUF\x03\x00\x00\x00" + b"\x00" * 200, ModelError),
]  # fmt: skip


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


def test_a_layout_refuses_doubled_names_and_wrong_order() -> None:
    spec = TensorSpec("a", "F32", (1,))
    with pytest.raises(ModelLayoutError):
        ModelLayout((spec, spec))
    with pytest.raises(ModelLayoutError):
        ModelLayout((TensorSpec("b", "F32", (1,)), spec))
    with pytest.raises(ModelLayoutError):
        ModelLayout(())
