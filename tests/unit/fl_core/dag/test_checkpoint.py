"""A checkpoint has one encoding; nothing in it can be altered without its signature."""

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_core.dag.author import AuthorKind
from fl_core.dag.checkpoint import (
    Below,
    Checkpoint,
    Entry,
    below,
    decode_checkpoint,
    open_checkpoint,
    sign_checkpoint,
)
from fl_core.dag.encoding import Reader
from fl_core.dag.figures import Figures, Step, read_figures
from fl_core.dag.receipt import issue_receipt
from fl_core.dag.signature import public_key_of
from fl_core.errors import CheckpointMalformedError, SignatureError
from fl_core.sync.items import ItemSet
from fl_core.types import AuthorId, Digest, TxId, digest_of
from tests.builders import key_from_seed

KEY = key_from_seed(1)
A, B = TxId("a" * 64), TxId("b" * 64)
PLAIN = Checkpoint(
    ledger=TxId("1e" * 32),
    member=public_key_of(KEY),
    created_at_ms=9,
    horizon_ms=5,
    below=below([A, B]),
    members_version=2,
    receipts=((A, issue_receipt(KEY, A, received_at_ms=4)),),
    acts=((1, A), (1, B), (2, A)),
    entries=(
        Entry(A, 3, AuthorKind.SECRET.author("5" * 64), 7, 60, Figures(1.5)),
        Entry(B, 4, AuthorId("key:" + "6" * 64), 0, 1, Figures(2.0, Step(0.5, (0.25, 0.125)), (0.5, 0))),
    ),
)

ids = st.binary(min_size=32, max_size=32).map(bytes.hex)
numbers = st.integers(0, 2**63 - 1)
lengths = st.floats(0, allow_infinity=False, allow_nan=False).map(abs)
figures = st.builds(
    Figures,
    lengths,
    st.none() | st.builds(Step, lengths, st.lists(lengths, max_size=3).map(tuple)),
    st.lists(st.floats(0, 1, width=32).map(abs), max_size=3).map(tuple),
)
entries = st.builds(
    Entry,
    ids,
    numbers,
    st.builds(lambda kind, text: kind.author(text), st.sampled_from(AuthorKind), ids),
    numbers,
    numbers,
    figures,
)
checkpoints = st.builds(
    Checkpoint,
    ledger=ids,
    member=ids,
    created_at_ms=numbers,
    horizon_ms=numbers,
    below=st.builds(Below, numbers, ids, ids),
    members_version=numbers,
    receipts=st.just(()) | st.just(PLAIN.receipts),
    acts=st.sets(st.tuples(numbers, ids), max_size=3).map(sorted).map(tuple),
    entries=st.lists(entries, max_size=3, unique_by=lambda each: each.id).map(
        lambda listed: tuple(sorted(listed, key=lambda each: each.id))
    ),
)


@given(checkpoints)
def test_checkpoint_reads_back(original: Checkpoint) -> None:
    assert decode_checkpoint(original.encode()) == original


@given(checkpoints, st.data())
def test_flipped_bit_is_another_checkpoint_or_none(original: Checkpoint, data: st.DataObject) -> None:
    flipped = bytearray(original.encode())
    bit = data.draw(st.integers(0, 8 * len(flipped) - 1))
    flipped[bit // 8] ^= 1 << (bit % 8)
    with contextlib.suppress(CheckpointMalformedError):
        found = decode_checkpoint(bytes(flipped))
        assert found.encode() == bytes(flipped)
        assert found.id != original.id


def decode_figures(data: bytes) -> Figures:
    reader = Reader(data, error=CheckpointMalformedError, what="figures")
    found = read_figures(reader)
    reader.end()
    return found


@given(figures)
def test_figures_read_back(original: Figures) -> None:
    data = original.encode()
    assert decode_figures(data) == original
    for wrong in (data[:-1], data + b"\0", b"\2" + data[1:]):
        with pytest.raises(CheckpointMalformedError):
            decode_figures(wrong)


@given(st.data())
def test_cut_checkpoint_is_refused(data: st.DataObject) -> None:
    encoded = PLAIN.encode()
    with pytest.raises(CheckpointMalformedError):
        decode_checkpoint(encoded[: data.draw(st.integers(0, len(encoded) - 1))])
    with pytest.raises(CheckpointMalformedError):
        decode_checkpoint(encoded + b"\0")


def test_signed_checkpoint_opens() -> None:
    data = sign_checkpoint(PLAIN, KEY)
    assert open_checkpoint(data) == PLAIN
    with pytest.raises(SignatureError):
        open_checkpoint(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises((SignatureError, CheckpointMalformedError)):
        open_checkpoint(data[:-64])


def test_receipts_in_it_must_verify() -> None:
    forged = replace(PLAIN, receipts=((B, PLAIN.receipts[0][1]),))
    with pytest.raises(SignatureError):
        open_checkpoint(sign_checkpoint(forged, KEY))


def test_below_is_a_digest_of_the_set() -> None:
    assert below([A, B]) == below([B, A])
    assert below([A, B]).digest == digest_of(bytes.fromhex(A + B))
    items = ItemSet()
    items.add(0, A)
    items.add(1, B)
    assert below([A, B]).total == items.total_sum, "the same as a summary's, so that one can be taken from the other"
    assert below([]) == Below(0, "0" * 64, digest_of(b""))


@pytest.mark.parametrize(
    "changes",
    [
        {"ledger": TxId("1E" * 32)},
        {"horizon_ms": -1},
        {"below": Below(2**63, "0" * 64, Digest("0" * 64))},
        {"below": Below(1, "0", Digest("0" * 64))},
        {"acts": ((2, A), (1, A))},
        {"acts": ((1, A), (1, A))},
        {"entries": PLAIN.entries[::-1]},
        {"entries": (replace(PLAIN.entries[0], depth=-1),)},
        {"receipts": PLAIN.receipts * 2},
    ],
)
def test_field_out_of_range_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(CheckpointMalformedError):
        replace(PLAIN, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        {"norm": -1.0},
        {"norm": float("nan")},
        {"norm": -0.0},
        {"step": Step(float("inf"), ())},
        {"shares": (0.1,)},
        {"shares": (1e300,)},
        {"shares": (0.5,) * 1025},
    ],
)
def test_figure_out_of_range_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(CheckpointMalformedError):
        Figures(**{"norm": 1.0, **wrong}).encode()  # type: ignore[arg-type]
