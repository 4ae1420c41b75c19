"""A receipt binds update, time, and version of the member list; ledger time is nobody's alone."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_core.dag.receipt import RECEIPT_BYTES, Receipt, decode_receipt, issue_receipt, ledger_time_ms
from fl_core.errors import SignatureError
from fl_core.types import TxId
from tests.builders import key_from_seed

UPDATE = TxId("a" * 64)
RECEIPT = issue_receipt(key_from_seed(1), UPDATE, received_at_ms=1_700_000_000_000, members_version=3)
numbers = st.integers(0, 2**63 - 1)


@given(st.binary(min_size=32, max_size=32), numbers, numbers, st.binary(min_size=64, max_size=64))
def test_receipt_reads_back(issuer: bytes, time: int, version: int, signature: bytes) -> None:
    receipt = Receipt(issuer.hex(), time, version, signature)  # type: ignore[arg-type]
    data = receipt.encode()
    assert data == issuer + time.to_bytes(8, "big") + version.to_bytes(8, "big") + signature
    assert decode_receipt(data) == receipt


@given(st.integers(0, 8 * RECEIPT_BYTES - 1))
def test_flipped_bit_is_refused(bit: int) -> None:
    data = bytearray(RECEIPT.encode())
    data[bit // 8] ^= 1 << (bit % 8)
    with pytest.raises(SignatureError):
        decode_receipt(bytes(data)).verify(UPDATE)


def test_receipt_is_of_one_update() -> None:
    RECEIPT.verify(UPDATE)
    with pytest.raises(SignatureError):
        RECEIPT.verify(TxId("b" * 64))


@pytest.mark.parametrize("size", [0, 111, 113])
def test_wrong_length_is_refused(size: int) -> None:
    with pytest.raises(SignatureError):
        decode_receipt((RECEIPT.encode() + b"\0")[:size])


@pytest.mark.parametrize("changes", [{"received_at_ms": -1}, {"members_version": 2**63}, {"signature": b""}])
def test_number_out_of_range_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(SignatureError):
        replace(RECEIPT, **changes)  # type: ignore[arg-type]


def test_ledger_time_is_the_lower_median() -> None:
    assert ledger_time_ms([]) == 0
    assert ledger_time_ms([7]) == 7
    assert ledger_time_ms([9, 2**62, 5]) == 9
    assert ledger_time_ms([8, 2, 4, 6]) == 4
