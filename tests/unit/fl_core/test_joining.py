"""A checkpoint stands for updates whose models are gone, and for no others; a false one is refused."""

from dataclasses import replace

import pytest

from fl_core.dag.checkpoint import Checkpoint, Entry, below, open_checkpoint, sign_checkpoint
from fl_core.dag.signature import public_key_of
from fl_core.errors import CheckpointMalformedError, CheckpointRefusedError, SignatureError
from fl_core.joining import ServedCheckpoint, check_checkpoint
from fl_core.types import PublicKey, TxId
from tests.builders import ISSUER, TinyLedger, key_from_seed, model
from tests.checkpoints import checkpoint_of

FIRST, SECOND, THIRD = (TxId(digit * 64) for digit in "123")


class Chain:
    """Ann's updates, each on the one before; bob's first on her third."""

    def __init__(self) -> None:
        self.tiny = TinyLedger()
        parent = self.tiny.genesis_id
        self.ann: list[TxId] = []
        for value in range(1, 6):
            parent = self.tiny.publish("ann", [parent], model(1, value))
            self.ann.append(parent)
        self.bob = self.tiny.publish("bob", [self.ann[2]], model(2, 1))


def entries_in(served: ServedCheckpoint) -> tuple[Entry, ...]:
    size = int.from_bytes(served.data[:4], "big")
    return open_checkpoint(served.data[4 : 4 + size]).entries


def check(
    served: ServedCheckpoint,
    chain: Chain,
    *,
    members: tuple[PublicKey, ...] = (),
    acts: tuple[tuple[int, TxId], ...] = (),
    earlier: Checkpoint | None = None,
) -> None:
    check_checkpoint(served, ledger=chain.tiny.genesis_id, members=members, acts=acts, earlier=earlier)


def test_the_horizon_lies_behind_the_newest_update_that_lost_its_model() -> None:
    chain = Chain()
    served = checkpoint_of(chain.tiny, chain.ann[:3])
    assert served.checkpoint.below == below([chain.tiny.genesis_id, *chain.ann[:3]])
    assert [served.stands_for(each) for each in (*chain.ann, chain.bob)] == [True] * 3 + [False] * 3
    assert served.checkpoint.entries == (), "they are not kept in memory"
    assert {each.id for each in entries_in(served)} == {chain.ann[4], chain.bob}


def test_nothing_stands_for_what_can_still_be_chosen() -> None:
    chain = Chain()
    served = checkpoint_of(chain.tiny, [chain.bob])
    assert chain.bob in served
    assert not served.stands_for(chain.bob), "an author's newest comes with its model or not at all"


def test_a_ledger_that_was_not_pruned_has_its_horizon_before_genesis() -> None:
    chain = Chain()
    served = checkpoint_of(chain.tiny, [])
    assert (served.checkpoint.below.count, served.checkpoint.horizon_ms) == (0, 0)
    assert chain.tiny.genesis_id not in served


def test_it_reads_back_and_no_byte_of_it_can_change() -> None:
    served = checkpoint_of(Chain().tiny, Chain().ann[:2])
    assert ServedCheckpoint(served.data).checkpoint == served.checkpoint
    for at in range(0, len(served.data), 7):
        altered = bytearray(served.data)
        altered[at] ^= 1
        with pytest.raises((CheckpointMalformedError, SignatureError)):
            ServedCheckpoint(bytes(altered))
    for data in (b"", served.data[:-1], served.data[:-32], served.data + bytes(32)):
        with pytest.raises((CheckpointMalformedError, SignatureError)):
            ServedCheckpoint(data)


def test_an_unsigned_one_and_one_that_another_signed_are_refused() -> None:
    chain = Chain()
    served = checkpoint_of(chain.tiny, chain.ann[:2])
    ids = [chain.tiny.genesis_id, *chain.ann[:2]]
    for signature in (b"", bytes(64)):
        with pytest.raises((SignatureError, CheckpointMalformedError)):
            ServedCheckpoint.of(served.checkpoint.encode() + signature, ids)
    stranger = key_from_seed(77)
    own = replace(served.checkpoint, member=public_key_of(stranger))
    signed = own.encode() + sign_checkpoint(served.checkpoint, ISSUER)[-64:]
    with pytest.raises(SignatureError):
        ServedCheckpoint.of(signed, ids)


def test_nothing_of_its_lists_is_read_before_the_maker_has_signed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    served = checkpoint_of(Chain().tiny, [], acts=[(1, FIRST)])
    altered = served.data[:-1] + bytes([served.data[-1] ^ 1])

    def decode(_: bytes) -> Checkpoint:
        raise AssertionError("read before its signature was checked")

    monkeypatch.setattr("fl_core.dag.checkpoint.decode_checkpoint", decode)
    with pytest.raises(SignatureError):
        ServedCheckpoint(altered)
    with pytest.raises(CheckpointMalformedError, match="another server"):
        ServedCheckpoint(served.data, maker=public_key_of(key_from_seed(77)))


@pytest.mark.parametrize("most", ["MAX_ACTS", "MAX_ENTRIES"])
def test_its_lists_are_bounded(most: str, monkeypatch: pytest.MonkeyPatch) -> None:
    served = checkpoint_of(Chain().tiny, Chain().ann[:2], acts=[(1, FIRST), (1, SECOND)])
    monkeypatch.setattr(f"fl_core.dag.checkpoint.{most}", 1)
    with pytest.raises(CheckpointMalformedError, match="at most 1"):
        ServedCheckpoint(served.data)


def test_one_of_another_ledger_or_of_no_member_is_refused() -> None:
    chain = Chain()
    served = checkpoint_of(chain.tiny, chain.ann[:2])
    member = public_key_of(ISSUER)
    check(served, chain, members=(member,))
    with pytest.raises(CheckpointRefusedError, match="not of a member"):
        check(served, chain, members=(public_key_of(key_from_seed(77)),))
    foreign = replace(served.checkpoint, ledger=TxId("0" * 64))
    ids = [chain.tiny.genesis_id, *chain.ann[:2]]
    served = ServedCheckpoint.of(sign_checkpoint(foreign, ISSUER), ids)
    with pytest.raises(CheckpointRefusedError, match="another ledger"):
        check(served, chain)


def test_one_that_is_older_than_the_member_s_last_is_refused() -> None:
    chain = Chain()
    old, new = (checkpoint_of(chain.tiny, chain.ann[:count]) for count in (2, 3))
    check(new, chain, earlier=old.checkpoint)
    check(new, chain, earlier=new.checkpoint)
    with pytest.raises(CheckpointRefusedError, match="older"):
        check(old, chain, earlier=new.checkpoint)


def test_acts_are_settled_but_for_the_newest_number_and_none_in_effect_can_be_denied() -> None:
    chain = Chain()
    served = checkpoint_of(chain.tiny, chain.ann[:2], acts=((1, FIRST), (2, SECOND)))
    assert served.settled == {FIRST}
    check(served, chain, acts=((1, FIRST), (2, THIRD)))
    with pytest.raises(CheckpointRefusedError, match="denies"):
        check(served, chain, acts=((1, THIRD),))
