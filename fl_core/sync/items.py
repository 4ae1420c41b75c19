"""What a ledger holds, as an ordered set whose ranges can be compared with a peer's in a few bytes.

The order is that of DAG depth and then of the id's bytes. Depth is fixed by a transaction's ancestors, so every
server orders alike, and what servers lack of one another is mostly new and lies at the end.

Kept is one key of 36 bytes per item (depth as 4 bytes big-endian ‖ id), packed into blocks of at most 256 keys with
the sum of each block's ids. Adding near the end touches one block; a range's sum needs at most two partial ones.

    items = ItemSet([(0, genesis), (1, a)])
    items.add(1, b)
    items.fingerprint(0, len(items))
"""

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, TypeAlias

from fl_core.types import TxId

Item: TypeAlias = tuple[int, TxId]
"""A transaction's depth in the DAG (0 to 2^32 - 1) and its id."""

DEPTH_BYTES: Final = 4
ID_BYTES: Final = 32
KEY_BYTES: Final = DEPTH_BYTES + ID_BYTES
FINGERPRINT_BYTES: Final = 16

_BLOCK: Final = 256
"""Keys in a full block. Half of one is summed per end of a range, so a larger one makes fingerprints slower."""
_MODULUS: Final = 1 << 256


def varint(value: int) -> bytes:
    """A count as base-128 digits, the most significant first, in as few bytes as possible."""
    digits = [value & 0x7F]
    while value := value >> 7:
        digits.append(value & 0x7F | 0x80)
    return bytes(reversed(digits))


class ItemSet:
    """The ordered set. Indices count from 0 in the set's order; ranges are ``[start, stop)``.

    Args:
        items: What is in it from the beginning, in any order; sorting once is cheaper than adding one by one.
    """

    def __init__(self, items: Iterable[Item] = ()) -> None:
        keys = sorted({_key(depth, identity) for depth, identity in items})
        self._blocks = [bytearray().join(keys[at : at + _BLOCK]) for at in range(0, len(keys), _BLOCK)]
        self._sums = [_sum_of(block) for block in self._blocks]
        self._lasts = [bytes(block[-KEY_BYTES:]) for block in self._blocks]
        self._starts: list[int] = []
        """Index of the first item of each block; only a beginning of the list is kept, ``_start_of`` makes the rest."""
        self._count = len(keys)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, item: Item) -> bool:
        key = _key(*item)
        block = bisect_left(self._lasts, key)
        return block < len(self._blocks) and self._key_in(block, self._place_in(block, key)) == key

    def __iter__(self) -> Iterator[Item]:
        for key in self._keys(0, self._count):
            yield int.from_bytes(key[:DEPTH_BYTES], "big"), TxId(key[DEPTH_BYTES:].hex())

    def add(self, depth: int, identity: TxId) -> bool:
        """Put a transaction in. False when it was there already.

        Raises:
            OverflowError: ``depth`` is negative or above 2^32 - 1.
            ValueError: ``identity`` is not 64 hexadecimal digits.
        """
        key = _key(depth, identity)
        block = bisect_left(self._lasts, key)
        if block == len(self._blocks):
            self._append(key)
        else:
            place = self._place_in(block, key)
            if self._key_in(block, place) == key:
                return False
            self._insert(block, place, key)
        self._count += 1
        return True

    def _append(self, key: bytes) -> None:
        # A ledger grows here: blocks are filled to the brim instead of being halved.
        if not self._blocks or len(self._blocks[-1]) >= _BLOCK * KEY_BYTES:
            self._blocks.append(bytearray())
            self._sums.append(0)
            self._lasts.append(key)
        self._blocks[-1] += key
        self._sums[-1] = (self._sums[-1] + _id_value(key)) % _MODULUS
        self._lasts[-1] = key

    def _insert(self, block: int, place: int, key: bytes) -> None:
        packed = self._blocks[block]
        packed[place * KEY_BYTES : place * KEY_BYTES] = key
        self._sums[block] = (self._sums[block] + _id_value(key)) % _MODULUS
        del self._starts[block + 1 :]
        if len(packed) > _BLOCK * KEY_BYTES:
            middle = len(packed) // KEY_BYTES // 2 * KEY_BYTES
            upper = packed[middle:]
            del packed[middle:]
            self._blocks.insert(block + 1, upper)
            self._lasts[block : block + 1] = [bytes(packed[-KEY_BYTES:]), self._lasts[block]]
            upper_sum = _sum_of(upper)
            self._sums[block : block + 1] = [(self._sums[block] - upper_sum) % _MODULUS, upper_sum]

    # -- places -----------------------------------------------------------------------------------

    def bisect_bound(self, bound: bytes) -> int:
        """How many keys come before these bytes, a key or the beginning of one (or more than any key)."""
        block = bisect_left(self._lasts, bound)
        if block == len(self._blocks):
            return self._count
        return self._start_of(block) + self._place_in(block, bound)

    def separator(self, index: int) -> bytes:
        """The shortest bound with exactly the first ``index`` items before it; 0 < index < len.

        It is the beginning of the item's key, at least its depth.
        """
        before, after = self._key_at(index - 1), self._key_at(index)
        common = next(at for at in range(KEY_BYTES) if before[at] != after[at])
        return after[: max(DEPTH_BYTES, common + 1)]

    def raw_ids(self, start: int, stop: int) -> Iterator[bytes]:
        """The ids of a range as 32 bytes each, in order, cut to the set, which must not change meanwhile."""
        for key in self._keys(start, stop):
            yield key[DEPTH_BYTES:]

    # -- sums -------------------------------------------------------------------------------------

    def fingerprint(self, start: int, stop: int) -> bytes:
        """16 bytes that differ between different ranges, as good as surely unless someone searches for a pair.

        The first bytes of SHA-256 over the sum of the ids (as little-endian integers modulo 2^256, 32 bytes
        little-endian) and the count as varint.

        Who can make many transactions can find two sets of equal sums (Wagner 2002), so equality here is a
        reason to look no further, never a proof. The summary's digest of the tips is one.

        Source: negentropy protocol v1, "Fingerprint Algorithm".
        """
        start, stop = max(0, start), min(stop, self._count)
        total = self._sum_between(start, stop).to_bytes(ID_BYTES, "little")
        return hashlib.sha256(total + varint(max(0, stop - start))).digest()[:FINGERPRINT_BYTES]

    @property
    def total_sum(self) -> str:
        """The sum of all ids as it goes into a summary: 32 bytes little-endian, in hexadecimal."""
        return (sum(self._sums) % _MODULUS).to_bytes(ID_BYTES, "little").hex()

    def _sum_between(self, start: int, stop: int) -> int:
        if start >= stop:
            return 0
        first, from_place = self._locate(start)
        last, to_place = self._locate(stop)
        if first == last:
            return self._partial_sum(first, from_place, to_place)
        inner = sum(self._sums[first + 1 : last])
        upper = self._partial_sum(last, 0, to_place) if to_place else 0
        return (self._partial_sum(first, from_place, len(self._blocks[first]) // KEY_BYTES) + inner + upper) % _MODULUS

    def _partial_sum(self, block: int, start: int, stop: int) -> int:
        """The sum of some items of a block, by way of the smaller part."""
        packed = self._blocks[block]
        low, high = start * KEY_BYTES, stop * KEY_BYTES
        if 2 * (high - low) <= len(packed):
            return _sum_of(packed[low:high])
        return (self._sums[block] - _sum_of(packed[:low]) - _sum_of(packed[high:])) % _MODULUS

    # -- blocks -----------------------------------------------------------------------------------

    def _start_of(self, block: int) -> int:
        if not self._starts:
            self._starts.append(0)
        while len(self._starts) <= block:
            self._starts.append(self._starts[-1] + len(self._blocks[len(self._starts) - 1]) // KEY_BYTES)
        return self._starts[block]

    def _locate(self, index: int) -> tuple[int, int]:
        """Block and place of an item; the end of the set lies behind the last block."""
        if index >= self._count:
            return len(self._blocks), 0
        self._start_of(len(self._blocks) - 1)
        block = bisect_right(self._starts, index) - 1
        return block, index - self._starts[block]

    def _place_in(self, block: int, bound: bytes) -> int:
        return bisect_left(
            range(len(self._blocks[block]) // KEY_BYTES), bound, key=lambda place: self._key_in(block, place)
        )

    def _key_in(self, block: int, place: int) -> bytes:
        return bytes(self._blocks[block][place * KEY_BYTES : (place + 1) * KEY_BYTES])

    def _key_at(self, index: int) -> bytes:
        return self._key_in(*self._locate(index))

    def _keys(self, start: int, stop: int) -> Iterator[bytes]:
        start, stop = max(0, start), min(stop, self._count)
        block, place = self._locate(start)
        while start < stop:
            packed = self._blocks[block]
            take = min(stop - start, len(packed) // KEY_BYTES - place)
            for low, high in pairwise(range(place * KEY_BYTES, (place + take + 1) * KEY_BYTES, KEY_BYTES)):
                yield bytes(packed[low:high])
            start, block, place = start + take, block + 1, 0


def _key(depth: int, identity: TxId) -> bytes:
    key = depth.to_bytes(DEPTH_BYTES, "big") + bytes.fromhex(identity)
    if len(key) != KEY_BYTES:
        raise ValueError(f"an id has {ID_BYTES} bytes, this one {len(key) - DEPTH_BYTES}")
    return key


def _id_value(key: bytes) -> int:
    return int.from_bytes(key[DEPTH_BYTES:], "little")


def _sum_of(packed: bytearray) -> int:
    value = int.from_bytes
    return (
        sum(value(packed[at : at + ID_BYTES], "little") for at in range(DEPTH_BYTES, len(packed), KEY_BYTES)) % _MODULUS
    )
