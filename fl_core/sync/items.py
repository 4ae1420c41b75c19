"""What a ledger holds, as an ordered set whose ranges can be compared with a peer's in a few bytes.

The order is that of DAG depth and then of the id's bytes. Depth is fixed by a transaction's ancestors, so every
server orders alike, and what servers lack of one another is mostly new and lies at the end.

An item's key has 36 bytes (depth as 4 bytes big-endian ‖ id). Keys are packed into blocks of at most 256, with the
number of each block's keys and the sum of its ids. Adding near the end touches one block; a range's sum needs at most
two partial ones. Where the same items lie elsewhere in order, as in a server's journal, only blocks that were needed
lately are in memory: of the others less than a byte per item.

    items = ItemSet([(0, genesis), (1, a)])
    items.add(1, b)
    items.fingerprint(0, len(items))
"""

import hashlib
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from itertools import pairwise
from typing import Final, Self, TypeAlias

from cachetools import LRUCache

from fl_core.types import TxId

Item: TypeAlias = tuple[int, TxId]
"""A transaction's depth in the DAG (0 to 2^32 - 1) and its id."""

DEPTH_BYTES: Final = 4
ID_BYTES: Final = 32
KEY_BYTES: Final = DEPTH_BYTES + ID_BYTES
FINGERPRINT_BYTES: Final = 16

_BLOCK: Final = 256
"""Keys in a full block. Half of one is summed per end of a range, so a larger one makes fingerprints slower."""
BLOCKS_HELD: Final = 256
"""In memory, of a set whose items lie elsewhere."""
_MODULUS: Final = 1 << 256

Load: TypeAlias = Callable[[Item | None, Item], Iterable[Item]]
"""Reads the items beyond one (None: from the first on) up to another, that one included, in the set's order."""


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
        load: Reads items that are not in memory; None: all are. What it reads may be ahead of what was added.
        held: Blocks in memory, where items can be read.

    Attributes:
        lock: Hold it to ask several things of one state; whoever adds does.
    """

    def __init__(self, items: Iterable[Item] = (), *, load: Load | None = None, held: int = BLOCKS_HELD) -> None:
        self.lock: threading.RLock = threading.RLock()
        self._load = load
        self._packed: MutableMapping[bytes, bytearray] = {} if load is None else LRUCache(held)
        """Blocks in memory, by their last keys."""
        keys = sorted({_key(depth, identity) for depth, identity in items})
        self._lasts = [keys[min(at + _BLOCK, len(keys)) - 1] for at in range(0, len(keys), _BLOCK)]
        self._counts = [min(_BLOCK, len(keys) - at) for at in range(0, len(keys), _BLOCK)]
        self._sums: list[int] = []
        for block, last in enumerate(self._lasts):
            packed = bytearray().join(keys[block * _BLOCK : (block + 1) * _BLOCK])
            self._packed[last] = packed
            self._sums.append(_sum_of(packed))
        self._starts: list[int] = []
        """Index of the first item of each block; only a beginning of the list is kept, ``_start_of`` makes the rest."""
        self._count, self._total = len(keys), sum(self._sums) % _MODULUS

    def blocks(self) -> list[tuple[str, int, str]]:
        """Last key, number of keys and sum of ids of each block, from which ``resumed`` goes on."""
        with self.lock:
            found = zip(self._lasts, self._counts, self._sums, strict=True)
            return [(last.hex(), count, f"{total:x}") for last, count, total in found]

    @classmethod
    def resumed(cls, blocks: Iterable[tuple[str, int, str]], *, load: Load) -> Self:
        """The set that has these blocks, with none of them in memory."""
        found = cls(load=load)
        for last, count, total in blocks:
            found._lasts.append(bytes.fromhex(last))
            found._counts.append(count)
            found._sums.append(int(total, 16))
        found._count, found._total = sum(found._counts), sum(found._sums) % _MODULUS
        return found

    def __len__(self) -> int:
        return self._count

    def __contains__(self, item: Item) -> bool:
        key = _key(*item)
        block = bisect_left(self._lasts, key)
        return block < len(self._lasts) and self._key_in(block, self._place_in(block, key)) == key

    def __iter__(self) -> Iterator[Item]:
        for key in self._keys(0, self._count):
            yield _item(key)

    def add(self, depth: int, identity: TxId) -> bool:
        """Put a transaction in. False when it was there already.

        Raises:
            OverflowError: ``depth`` is negative or above 2^32 - 1.
            ValueError: ``identity`` is not 64 hexadecimal digits.
        """
        key = _key(depth, identity)
        with self.lock:
            block = bisect_left(self._lasts, key)
            if block == len(self._lasts):
                self._append(key)
            else:
                place = self._place_in(block, key)
                if self._key_in(block, place) == key:
                    return False
                self._insert(block, place, key)
        return True

    def _append(self, key: bytes) -> None:
        # A ledger grows here: blocks are filled to the brim instead of being halved.
        block = len(self._lasts) - 1
        if not self._lasts or self._counts[-1] >= _BLOCK:
            self._insert_block(block + 1, bytearray(key), _id_value(key))
        else:
            packed = self._block(block)
            del self._packed[self._lasts[block]]
            packed += key
            self._put(block, packed, self._sums[block] + _id_value(key))

    def _insert(self, block: int, place: int, key: bytes) -> None:
        packed, total = self._block(block), self._sums[block] + _id_value(key)
        packed[place * KEY_BYTES : place * KEY_BYTES] = key
        if len(packed) > _BLOCK * KEY_BYTES:
            middle = len(packed) // KEY_BYTES // 2 * KEY_BYTES
            lower, packed = packed[:middle], packed[middle:]
            total -= (lower_sum := _sum_of(lower))
            self._put(block, packed, total)
            self._insert_block(block, lower, lower_sum)
        else:
            self._put(block, packed, total)

    def _insert_block(self, block: int, packed: bytearray, total: int) -> None:
        self._lasts.insert(block, b"")
        self._counts.insert(block, 0)
        self._sums.insert(block, 0)
        self._put(block, packed, total)

    def _put(self, block: int, packed: bytearray, total: int) -> None:
        """Say what a block holds now, and the sum of its ids."""
        last, count, total = bytes(packed[-KEY_BYTES:]), len(packed) // KEY_BYTES, total % _MODULUS
        self._count += count - self._counts[block]
        self._total = (self._total + total - self._sums[block]) % _MODULUS
        self._lasts[block], self._counts[block], self._sums[block] = last, count, total
        self._packed[last] = packed
        del self._starts[block + 1 :]

    # -- places -----------------------------------------------------------------------------------

    def bisect_bound(self, bound: bytes) -> int:
        """How many keys come before these bytes, a key or the beginning of one (or more than any key)."""
        block = bisect_left(self._lasts, bound)
        if block == len(self._lasts):
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
        return self._total.to_bytes(ID_BYTES, "little").hex()

    def _sum_between(self, start: int, stop: int) -> int:
        if start >= stop:
            return 0
        first, from_place = self._locate(start)
        last, to_place = self._locate(stop)
        if first == last:
            return self._partial_sum(first, from_place, to_place)
        inner = sum(self._sums[first + 1 : last])
        upper = self._partial_sum(last, 0, to_place) if to_place else 0
        return (self._partial_sum(first, from_place, self._counts[first]) + inner + upper) % _MODULUS

    def _partial_sum(self, block: int, start: int, stop: int) -> int:
        """The sum of some items of a block, by way of the smaller part."""
        packed = self._block(block)
        low, high = start * KEY_BYTES, stop * KEY_BYTES
        if 2 * (high - low) <= len(packed):
            return _sum_of(packed[low:high])
        return (self._sums[block] - _sum_of(packed[:low]) - _sum_of(packed[high:])) % _MODULUS

    # -- blocks -----------------------------------------------------------------------------------

    def _block(self, block: int) -> bytearray:
        """A block's keys, read where they are not in memory."""
        last = self._lasts[block]
        packed = self._packed.get(last)
        if packed is None:
            assert self._load is not None, "else all are in memory"
            before = None if block == 0 else _item(self._lasts[block - 1])
            packed = bytearray().join(_key(*item) for item in self._load(before, _item(last)))
            self._put(block, packed, _sum_of(packed))  # it may be ahead: what is added later is here already
        return packed

    def _start_of(self, block: int) -> int:
        if not self._starts:
            self._starts.append(0)
        while len(self._starts) <= block:
            self._starts.append(self._starts[-1] + self._counts[len(self._starts) - 1])
        return self._starts[block]

    def _locate(self, index: int) -> tuple[int, int]:
        """Block and place of an item; the end of the set lies behind the last block."""
        if index >= self._count:
            return len(self._lasts), 0
        self._start_of(len(self._lasts) - 1)
        block = bisect_right(self._starts, index) - 1
        return block, index - self._starts[block]

    def _place_in(self, block: int, bound: bytes) -> int:
        places = range(len(self._block(block)) // KEY_BYTES)
        return bisect_left(places, bound, key=lambda place: self._key_in(block, place))

    def _key_in(self, block: int, place: int) -> bytes:
        return bytes(self._block(block)[place * KEY_BYTES : (place + 1) * KEY_BYTES])

    def _key_at(self, index: int) -> bytes:
        return self._key_in(*self._locate(index))

    def _keys(self, start: int, stop: int) -> Iterator[bytes]:
        start, stop = max(0, start), min(stop, self._count)
        block, place = self._locate(start)
        while start < stop:
            packed = self._block(block)
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


def _item(key: bytes) -> Item:
    return int.from_bytes(key[:DEPTH_BYTES], "big"), TxId(key[DEPTH_BYTES:].hex())


def _sum_of(packed: bytearray) -> int:
    value = int.from_bytes
    return (
        sum(value(packed[at : at + ID_BYTES], "little") for at in range(DEPTH_BYTES, len(packed), KEY_BYTES)) % _MODULUS
    )
