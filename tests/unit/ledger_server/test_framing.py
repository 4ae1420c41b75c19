"""Transactions and announcements as bytes."""

import pytest

from fl_core.errors import GossipFrameError
from fl_core.sync.messages import MAX_ANNOUNCED_MODEL_BYTES, Announcement, TransactionBundle, Transactions
from fl_core.types import TxId
from ledger_server.gossip.framing import (
    decode_announcement,
    decode_transactions,
    encode_announcement,
    encode_transactions,
)
from tests.builders import TinyLedger, model

SOME_ID = TxId("f" * 64)


def bundle() -> TransactionBundle:
    tiny = TinyLedger()
    return TransactionBundle(tiny.transactions[tiny.publish("ann", [tiny.genesis_id], model(1.0))])


def test_an_announcement_is_read_back() -> None:
    sent = Announcement((bundle(),), (SOME_ID,), (model(1.0), model(2.0)))
    assert decode_announcement(encode_announcement(sent)) == sent


def test_an_answer_is_read_back() -> None:
    sent = Transactions((bundle(),), (SOME_ID,))
    assert decode_transactions(encode_transactions(sent.found, sent.unknown)) == sent


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_cut_announcement_is_refused(cut: int) -> None:
    with pytest.raises(GossipFrameError):
        decode_announcement(encode_announcement(Announcement((bundle(),), models=(model(1.0),)))[:-cut])


def test_bytes_behind_the_end_are_refused() -> None:
    with pytest.raises(GossipFrameError, match="follow"):
        decode_announcement(encode_announcement(Announcement()) + b"x")


def test_a_model_beyond_its_bound_is_refused() -> None:
    with pytest.raises(GossipFrameError, match="bound"):
        decode_announcement(encode_announcement(Announcement(models=(bytes(MAX_ANNOUNCED_MODEL_BYTES + 1),))))
