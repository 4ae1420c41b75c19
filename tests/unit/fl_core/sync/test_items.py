"""The ordered set and its fingerprints."""

import hashlib
import random
from bisect import insort

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_core.sync.items import DEPTH_BYTES, Item, ItemSet, varint
from fl_core.types import TxId
from tests.reference import gossip as naive

A, B, C = (TxId(letter * 64) for letter in "abc")


def ids(held: ItemSet, start: int, stop: int) -> list[str]:
    return [raw.hex() for raw in held.raw_ids(start, stop)]


def place_of(held: ItemSet, depth: int, identity: TxId) -> int:
    return held.bisect_bound(depth.to_bytes(DEPTH_BYTES, "big") + bytes.fromhex(identity))


def few_ids() -> st.SearchStrategy[TxId]:
    """Ids that share long beginnings, and collide often enough for doubles."""
    return st.tuples(st.sampled_from([b"\x00", b"\x07", b"\xff"]), st.integers(0, 40)).map(
        lambda pair: TxId((pair[0] * 31 + bytes([pair[1]])).hex())
    )


items = st.tuples(st.sampled_from([0, 1, 2, 255, 256, 2**32 - 1]), few_ids())


def test_depth_comes_before_the_id() -> None:
    assert list(ItemSet([(2, A), (1, C), (1, B)])) == [(1, B), (1, C), (2, A)]


def test_adding_twice_changes_nothing() -> None:
    held = ItemSet()
    assert held.add(1, A)
    before = held.total_sum
    assert not held.add(1, A)
    assert (len(held), held.total_sum) == (1, before)


def test_an_item_is_found_under_its_depth_only() -> None:
    held = ItemSet([(1, A)])
    assert (1, A) in held
    assert (2, A) not in held
    assert (1, B) not in held
    assert (0, A) not in ItemSet()


def test_the_sum_of_one_id_is_that_id() -> None:
    assert ItemSet([(3, A)]).total_sum == A
    assert ItemSet().total_sum == "00" * 32


def test_the_sum_wraps_around_at_256_bits() -> None:
    one, largest = TxId("01" + "00" * 31), TxId("ff" * 32)
    assert ItemSet([(0, one), (1, largest)]).total_sum == "00" * 32


def test_a_fingerprint_hashes_sum_and_count() -> None:
    held = ItemSet([(0, A), (1, B)])
    assert held.fingerprint(0, 1) == hashlib.sha256(bytes.fromhex(A) + b"\x01").digest()[:16]
    assert held.fingerprint(2, 2) == hashlib.sha256(bytes(32) + b"\x00").digest()[:16]


def test_equal_sums_of_different_counts_have_different_fingerprints() -> None:
    one, two, three = (TxId(bytes([number, *bytes(31)]).hex()) for number in (1, 2, 3))
    both, single = ItemSet([(0, one), (0, two)]), ItemSet([(0, three)])
    assert both.total_sum == single.total_sum
    assert both.fingerprint(0, 2) != single.fingerprint(0, 1)


def test_a_separator_is_as_short_as_the_two_items_allow() -> None:
    held = ItemSet([(1, A), (2, A), (2, TxId("a" * 62 + "bb"))])
    assert held.separator(1) == bytes([0, 0, 0, 2])
    assert held.separator(2) == bytes([0, 0, 0, 2]) + bytes.fromhex("a" * 62 + "bb")


def test_ids_beyond_the_set_are_cut() -> None:
    held = ItemSet([(0, A), (1, B), (2, C)])
    assert ids(held, 1, 99) == [B, C]
    assert ids(held, -5, 1) == [A]
    assert ids(held, 3, 9) == ids(held, 2, 1) == []


def test_what_is_no_item_is_refused() -> None:
    held = ItemSet()
    with pytest.raises(OverflowError):
        held.add(2**32, A)
    with pytest.raises(OverflowError):
        held.add(-1, A)
    with pytest.raises(ValueError, match="32 bytes"):
        held.add(0, TxId("ab"))
    assert len(held) == 0


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, "00"), (127, "7f"), (128, "8100"), (300, "822c"), (2**32, "9080808000")]
)
def test_a_varint_has_its_most_significant_digit_first(value: int, encoded: str) -> None:
    assert varint(value).hex() == encoded


@given(st.lists(items, max_size=60), st.lists(items, max_size=60), st.integers(0, 120), st.integers(0, 120))
def test_agrees_with_a_sorted_list(
    first: list[tuple[int, TxId]], later: list[tuple[int, TxId]], start: int, stop: int
) -> None:
    held, twin = ItemSet(first), naive.in_order([*first, *later])
    for item in later:
        held.add(*item)
    assert list(held) == twin
    assert len(held) == len(twin)
    assert held.total_sum == naive.sum_of_ids(twin).hex()
    assert held.fingerprint(start, stop) == naive.fingerprint(twin[start:stop])
    assert ids(held, start, stop) == [identity for _, identity in twin[start:stop]]
    assert all(item in held and place_of(held, *item) == place for place, item in enumerate(twin))
    for place in range(1, len(twin)):
        assert held.bisect_bound(held.separator(place)) == place


@pytest.mark.parametrize("kept", ["all in memory", "three blocks", "three blocks, and resumed"])
def test_many_blocks_that_were_filled_in_any_order_agree_with_a_sorted_list(kept: str) -> None:
    rng = random.Random(len(kept))
    drawn = [(rng.randrange(20), TxId(rng.randbytes(32).hex())) for _ in range(3000)]
    journal, twin = naive.in_order(drawn[:500]), naive.in_order(drawn)

    def load(after: Item | None, last: Item) -> list[Item]:
        return [item for item in journal if (after is None or item > after) and item <= last]

    held = ItemSet(journal) if kept == "all in memory" else ItemSet(journal, load=load, held=3)
    for place, item in enumerate(drawn[500:]):
        insort(journal, item)
        held.add(*item)
        if place == 1200 and kept.endswith("resumed"):
            held = ItemSet.resumed(held.blocks(), load=load)
        # Asking in between keeps places that a later insertion moves.
        if place % 50 == 0:
            assert place_of(held, 99, A) == len(held) == 501 + place
    assert list(held) == twin
    assert held.total_sum == naive.sum_of_ids(twin).hex()
    for _ in range(200):
        start = rng.randrange(3000)
        stop = rng.randrange(start, min(3000, start + 128))
        assert held.fingerprint(start, stop) == naive.fingerprint(twin[start:stop])
        assert place_of(held, *twin[start]) == start
    whole = naive.sum_of_ids(twin[10:2900])
    assert held.fingerprint(10, 2900) == hashlib.sha256(whole + varint(2890)).digest()[:16]
