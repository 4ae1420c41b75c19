"""Signed summaries."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_core.dag.acts import acts_digest
from fl_core.dag.signature import Role, public_key_of, sign, verify
from fl_core.errors import GossipFrameError, SignatureError
from fl_core.sync.items import ItemSet
from fl_core.sync.summary import (
    SUMMARY_BYTES,
    StateSummary,
    is_rollback,
    open_summary,
    same_ledger_state,
    sign_summary,
)
from fl_core.types import Digest, PublicKey, TxId, digest_of
from tests.builders import CREATED_AT_MS, key_from_seed

KEY = key_from_seed(7)
ITEMS = ItemSet([(0, TxId("a1" * 32)), (1, TxId("b2" * 32))])
SUMMARY = StateSummary(
    ledger=TxId("a1" * 32),
    server=PublicKey(public_key_of(KEY)),
    epoch="e5" * 16,
    count=len(ITEMS),
    tips_digest=digest_of(bytes.fromhex("b2" * 32)),
    set_sum=ITEMS.total_sum,
    acts_digest=acts_digest(()),
    created_at_ms=CREATED_AT_MS,
)


def hexadecimal(size: int) -> st.SearchStrategy[str]:
    return st.binary(min_size=size, max_size=size).map(bytes.hex)


def test_the_bytes_lie_where_the_layout_says() -> None:
    encoded = SUMMARY.encode()
    assert len(encoded) == SUMMARY_BYTES == 200
    assert encoded[:8] == b"dagstat\x01"
    assert encoded[8:40] == b"\xa1" * 32
    assert encoded[72:88] == b"\xe5" * 16
    assert encoded[88:96] == bytes([0] * 7 + [2])
    assert encoded[128] == 0xA1 + 0xB2 - 256


@given(hexadecimal(32), hexadecimal(16), st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_what_was_encoded_is_read_back(identity: str, epoch: str, count: int, created_at_ms: int) -> None:
    summary = replace(
        SUMMARY,
        ledger=TxId(identity),
        epoch=epoch,
        count=count,
        tips_digest=Digest(identity),
        created_at_ms=created_at_ms,
    )
    assert open_summary(sign_summary(summary, KEY)) == summary


@given(st.binary(max_size=300))
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(GossipFrameError):
        open_summary(data)


@pytest.mark.parametrize("place", [0, 7, 88, 192], ids=["magic", "version", "count", "created at"])
def test_a_changed_field_beyond_its_range_is_refused(place: int) -> None:
    data = bytearray(sign_summary(SUMMARY, KEY))
    data[place] ^= 0x80
    with pytest.raises(GossipFrameError):
        open_summary(bytes(data))


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": "e5" * 32},
        {"ledger": "A1" * 32},
        {"set_sum": ""},
        {"server": "é" * 64},
        {"count": -1},
        {"created_at_ms": 2**63},
    ],
    ids=str,
)
def test_a_field_out_of_range_is_never_signed(change: dict[str, object]) -> None:
    (name,) = change
    with pytest.raises(GossipFrameError, match=name):
        sign_summary(replace(SUMMARY, **change), KEY)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        {"count": 3},
        {"epoch": "00" * 16},
        {"created_at_ms": 1},
        {"set_sum": "00" * 32},
        {"acts_digest": "00" * 32},
        {"server": public_key_of(key_from_seed(8))},
    ],
    ids=str,
)
def test_a_signature_is_for_every_field_of_one_summary(change: dict[str, object]) -> None:
    signature = sign_summary(SUMMARY, KEY)[SUMMARY_BYTES:]
    with pytest.raises(SignatureError):
        open_summary(replace(SUMMARY, **change).encode() + signature)  # type: ignore[arg-type]


def test_a_summary_that_another_signed_or_that_is_cut_is_refused() -> None:
    with pytest.raises(GossipFrameError):
        open_summary(sign_summary(SUMMARY, KEY)[:-1])
    with pytest.raises(SignatureError):
        open_summary(sign_summary(SUMMARY, key_from_seed(8)))


def test_a_summaries_signature_never_passes_for_a_transactions() -> None:
    signature = sign_summary(SUMMARY, KEY)[SUMMARY_BYTES:]
    identity = TxId(digest_of(SUMMARY.encode()))
    for role in (Role.AUTHOR, Role.RECEIPT):
        with pytest.raises(SignatureError):
            verify(SUMMARY.server, identity, signature, role=role)
        with pytest.raises(SignatureError):
            open_summary(SUMMARY.encode() + sign(KEY, identity, role=role))


def test_a_key_for_which_anyone_can_sign_is_refused() -> None:
    weak = replace(SUMMARY, server=PublicKey("01" + "00" * 31))
    with pytest.raises(SignatureError, match="small-order"):
        open_summary(weak.encode() + b"\x01" + bytes(63))


def test_servers_that_hold_the_same_are_equal_whoever_and_whenever() -> None:
    other = replace(SUMMARY, server=PublicKey("cc" * 32), epoch="00" * 16, created_at_ms=1)
    assert same_ledger_state(SUMMARY, other)


@pytest.mark.parametrize(
    "change", [{"ledger": "00" * 32}, {"count": 3}, {"tips_digest": "00" * 32}, {"set_sum": "00" * 32}], ids=str
)
def test_servers_that_differ_in_one_figure_are_not_equal(change: dict[str, object]) -> None:
    assert not same_ledger_state(SUMMARY, replace(SUMMARY, **change))  # type: ignore[arg-type]


def test_a_journal_that_shrank_was_rolled_back() -> None:
    assert is_rollback(SUMMARY, replace(SUMMARY, count=1))
    assert not is_rollback(SUMMARY, SUMMARY)
    assert not is_rollback(SUMMARY, replace(SUMMARY, count=3))


def test_a_new_journal_or_another_server_may_hold_less() -> None:
    assert not is_rollback(SUMMARY, replace(SUMMARY, count=1, epoch="00" * 16))
    assert not is_rollback(SUMMARY, replace(SUMMARY, count=1, server=PublicKey("cc" * 32)))
