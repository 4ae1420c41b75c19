"""Coded models: the very bytes again, by the naive twin's rules as by ours, and no body that is not one passes."""

import struct
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fl_core.errors import ModelMalformedError
from fl_core.models import ModelLayout, TensorSpec, encode_flat, flat
from fl_core.step_coding import base_of, decode_step, encode_step, round_step
from fl_core.types import ZERO_ID, Digest, digest_of
from tests.reference.step_coding import decode as naive_decode

MIXED = ModelLayout.of(
    [
        TensorSpec("a", "F32", (5,)),
        TensorSpec("b", "F32", (2, 2)),
        TensorSpec("h", "F16", (3,)),
        TensorSpec("w", "BF16", (2,)),
    ]
)
WIDE = ModelLayout.of([TensorSpec("a", "F32", (40, 500)), TensorSpec("b", "F32", (500,))])
FINITE = st.floats(-(2.0**120), 2.0**120, width=32)
EMPTY = 3 * struct.pack("<BQ", 0, 0)
ON_A_GRID = st.integers(-(2**12), 2**12).map(lambda count: count * 2.0**-9)
MODELS = st.one_of(arrays(np.float32, 14, elements=FINITE), arrays(np.float32, 14, elements=ON_A_GRID))


def trained(seed: int = 1) -> tuple[bytes, bytes]:
    """A base, and a model that lies near to it."""
    rng = np.random.default_rng(seed)
    start = rng.standard_normal(WIDE.num_parameters, dtype=np.float32)
    step = np.float32(0.01) * rng.standard_normal(WIDE.num_parameters, dtype=np.float32)
    return encode_flat(WIDE, start), encode_flat(WIDE, start + step)


def rounded(model: bytes, base: bytes) -> bytes:
    return encode_flat(WIDE, round_step(WIDE, flat(WIDE, model), flat(WIDE, base)))


@given(MODELS, st.one_of(st.none(), MODELS))
def test_what_is_decoded_is_the_very_model_and_the_twin_agrees(
    values: np.ndarray, base_values: np.ndarray | None
) -> None:
    with np.errstate(over="ignore"):  # of what no 16-bit value holds
        model = encode_flat(MIXED, values)
        base = None if base_values is None else encode_flat(MIXED, base_values)
    coded = encode_step(MIXED, model, base, base_digest=Digest(ZERO_ID) if base is None else digest_of(base))
    assert bytes(decode_step(MIXED, coded, base)) == model == naive_decode(MIXED, coded, base)


def test_zeros_of_both_signs_subnormals_and_far_larger_bases_come_back() -> None:
    layout = ModelLayout.of([TensorSpec("a", "F32", (6,))])
    odd = encode_flat(layout, np.array([-0.0, 0.0, 1e-45, -1e-45, 1e38, 2.0**-126], np.float32))
    even = encode_flat(layout, np.array([1, -2, 0, 0.5, 3, 2], np.float32))
    for model in (odd, even):
        for base in (odd, even):
            coded = encode_step(layout, model, base, base_digest=digest_of(base))
            assert bytes(decode_step(layout, coded, base)) == model == naive_decode(layout, coded, base)


def test_a_coded_model_names_its_base() -> None:
    base, model = trained()
    assert base_of(encode_step(WIDE, model, base, base_digest=digest_of(base))) == digest_of(base)
    with pytest.raises(ModelMalformedError):
        base_of(model)


def test_a_model_that_was_rounded_takes_a_fifth_and_one_that_was_not_two_thirds() -> None:
    base, model = trained()
    short = encode_step(WIDE, rounded(model, base), base, base_digest=digest_of(base))
    exact = encode_step(WIDE, model, base, base_digest=digest_of(base))
    assert 0.15 < len(short) / len(model) < 0.21
    assert 0.50 < len(exact) / len(model) < 0.66


def test_rounding_moves_no_value_by_more_than_a_thirty_second_of_the_steps_size() -> None:
    base, model = trained()
    before, after = flat(WIDE, model), flat(WIDE, rounded(model, base))
    assert 0 < np.abs(before - after).max() <= 0.01 / 16 / 2 * 1.01
    start = flat(WIDE, base)
    cosine = float((before - start) @ (after - start) / np.linalg.norm(before - start) / np.linalg.norm(after - start))
    assert cosine > 0.999


def test_few_values_that_moved_far_take_hardly_any_bytes() -> None:
    base, _ = trained()
    values = flat(WIDE, base).copy()
    values[[3, 1500, 20_400]] += np.array([1e-3, 1e3, -5], np.float32)
    model = encode_flat(WIDE, values)
    coded = encode_step(WIDE, model, base, base_digest=digest_of(base))
    assert bytes(decode_step(WIDE, coded, base)) == model == naive_decode(WIDE, coded, base)
    assert len(coded) < 200


def test_what_has_not_moved_is_not_rounded() -> None:
    base, _ = trained()
    assert rounded(base, base) == base


def test_the_bytes_of_a_decoded_model_are_the_same_on_every_machine() -> None:
    """Fixed once: what comes out of these bodies, which were made once, has these digests."""
    count = WIDE.num_parameters
    ramp = ((np.arange(count) * 7919) % 4001 - 2000).astype(np.float32)
    base = encode_flat(WIDE, ramp / np.float32(3.0))
    model = rounded(encode_flat(WIDE, ramp / np.float32(3.0) + ramp[::-1] / np.float32(1024.0)), base)
    assert digest_of(model) == "cbb0686e1dd78000c4296c60550ac13adf2f79f34b842abd8eeb47621b7c652e"
    planes = [(np.arange(count) * 31 % 256).astype(np.uint8).tobytes(), bytes(count)]
    packed = b"".join(struct.pack("<BQ", 2, len(z)) + z for z in map(zlib.compress, planes)) + 2 * struct.pack(
        "<BQ", 0, 0
    )
    coded = b"dag-acfl step 1\n" + bytes.fromhex(digest_of(base)) + struct.pack("<hh", -3, 0x7FFF) + packed
    assert (
        digest_of(decode_step(WIDE, coded, base)) == "6174d791c4241c8483e080fc2a93a9dcc195f95fd44bcf137c17c2397aa36a3c"
    )


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_body_is_refused_or_is_another_model_and_never_more(seed: int) -> None:
    base, model = trained()
    rng = np.random.default_rng(seed)
    coded = bytearray(encode_step(WIDE, rounded(model, base), base, base_digest=digest_of(base)))
    for place in rng.integers(0, len(coded) if seed % 2 else 100, 3):
        coded[place] ^= int(rng.integers(1, 256))
    try:
        found = decode_step(WIDE, coded, base)
    except ModelMalformedError:
        return
    assert len(found) == WIDE.nbytes


@pytest.mark.parametrize(
    "change",
    [
        lambda coded: coded[:-1],
        lambda coded: coded + b"\0",
        lambda coded: coded[:40],
        lambda coded: coded[:50],
        lambda coded: b"x" + coded[1:],
        lambda coded: coded[:48] + struct.pack("<h", 101) + coded[50:],
        lambda coded: coded[:52] + struct.pack("<BQ", 0, 1) + b"1" + EMPTY,
        lambda coded: coded[:52] + struct.pack("<BQIB", 0, 5, WIDE.num_parameters, 1) + EMPTY,
        lambda coded: coded[:52] + struct.pack("<BQIIBB", 0, 10, 7, 7, 1, 1) + EMPTY,
        lambda coded: coded[:52] + struct.pack("<BQ", 0, 500) + struct.pack("<100I", *range(100)) + bytes(100) + EMPTY,
        lambda coded: coded[:52] + struct.pack("<BQ", 3, 0) + EMPTY,
        lambda coded: coded[:52] + struct.pack("<BQ", 1, 5) + b"short" + EMPTY,
    ],
)
def test_what_is_no_coded_model_of_this_layout_is_refused(change: Callable[[bytes], bytes]) -> None:
    base, model = trained()
    coded = encode_step(WIDE, rounded(model, base), base, base_digest=digest_of(base))
    with pytest.raises(ModelMalformedError):
        decode_step(WIDE, change(coded), base)


@pytest.mark.parametrize("size", [WIDE.num_parameters - 1, WIDE.num_parameters + 1, 50_000_000])
def test_a_plane_that_inflates_to_more_or_less_than_a_model_has_is_refused(size: int) -> None:
    bomb = zlib.compress(bytes(size))
    coded = b"dag-acfl step 1\n" + bytes(32) + struct.pack("<hh", 0, 0)
    coded += struct.pack("<BQ", 2, len(bomb)) + bomb + EMPTY
    with pytest.raises(ModelMalformedError, match="does not inflate to"):
        decode_step(WIDE, coded, None)


def test_a_16_bit_tensor_lies_on_no_grid() -> None:
    zeros = 4 * struct.pack("<BQ", 0, 0)
    with pytest.raises(ModelMalformedError, match="grid"):
        decode_step(MIXED, b"dag-acfl step 1\n" + bytes(32) + struct.pack("<4h", 0, 0, 0, 0) + zeros, None)
