"""Range-based set reconciliation: two servers find out what either lacks, in bytes that grow with the difference.

The asking side cuts its ordered set (``fl_core.sync.items``) into 16 ranges and sends a fingerprint of each. The
other side answers those that differ with fingerprints of 16 parts of its own, or with its ids once there are fewer
than 32; the asking side goes on with those that differ, and asks for ids where it has few itself. What is equal is
not mentioned again. Only the asking side keeps state, so the other can answer any number of peers.

    frame     = 0x01 range*
    range     = mode bound payload              modes and payloads below; the first range begins at the beginning
    bound     = 0x00                            the end of everything; or where the range ends, itself not in it:
                varint(1 + depth - the previous bound's depth), length, and as many bytes that the id begins with
    varint    = base-128 digits, the most significant first, as few as possible

    mode            payload              sent by
    0 skip          -                    both       nothing to say here: equal, or not asked
    1 fingerprint   16 bytes             both       of all that the sender holds here
    2 ids           varint(count) id*    answerer   all that it holds here
    3 list          -                    asker      which ids do you hold here?
    4 later         -                    answerer   the frame is full, ask again from here on

Bounds ascend strictly; after the last range all is skipped. A frame never exceeds the sender's limit: the asker keeps
what does not fit for its next frame, and the answerer cuts its ids or says "later". The lowest ranges come first, so
ancestors are known before their descendants.

What is bounded, whatever the peer sends: bytes of a frame, ranges that are open, ids that are kept, rounds. When a
bound is reached, the reconciliation ends with what it found (``is_complete`` is False) and the next one goes on from
there. An id in a peer's list is a claim; whoever fetches it finds out.

Source: the negentropy protocol v1 and Meyer, "Range-Based Set Reconciliation" (2022). Deviations: order by DAG
depth instead of a time stamp; the asker lists no ids; "later" keeps what was found out when a frame is full, where
negentropy begins anew with a fingerprint of all the rest. The frames are therefore not negentropy's.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from fl_core.dag.encoding import Reader
from fl_core.errors import GossipFrameError
from fl_core.sync.items import DEPTH_BYTES, FINGERPRINT_BYTES, ID_BYTES, KEY_BYTES, ItemSet, varint
from fl_core.types import TxId

VERSION: Final = 1
BUCKETS: Final = 16
"""Parts that a differing range is cut into."""

MIN_FRAME_BYTES: Final = 2048
"""Room for the 16 parts of a range with the longest bounds, so that every frame gets ahead."""

MAX_FRAME_BYTES: Final = 64 * 1024
"""No server sends a larger frame or reads one: its cost in time and memory is that of its ranges."""

MAX_ROUNDS: Final = 100
MAX_IDS: Final = 100_000
"""Ids that one reconciliation finds on either side."""

MAX_OPEN_RANGES: Final = 50_000
"""Differing ranges that wait to be looked into: two honest servers of 10^9 transactions have fewer."""

_LIST_BELOW: Final = 2 * BUCKETS
"""A range of fewer items is listed: 16 fingerprints with their bounds cost more than half of its ids."""
_START: Final = bytes(DEPTH_BYTES)
_END: Final = b"\xff" * (KEY_BYTES + 1)
"""Longer than any key, so that it comes after the last that is possible."""
_MAX_DEPTH: Final = 2 ** (8 * DEPTH_BYTES) - 1
_MAX_VARINT_BYTES: Final = 5
_HEAD_BYTES: Final = 1 + _MAX_VARINT_BYTES + 1 + ID_BYTES
"""A range's mode and bound at their longest."""
_TAIL_BYTES: Final = _HEAD_BYTES + 2
"""What stays free at a frame's end: a skip, and "later" with the end as its bound."""


class Mode(IntEnum):
    """What a range says."""

    SKIP = 0
    FINGERPRINT = 1
    IDS = 2
    LIST = 3
    LATER = 4


_ASKERS: Final = frozenset({Mode.SKIP, Mode.FINGERPRINT, Mode.LIST})
_ANSWERERS: Final = frozenset({Mode.SKIP, Mode.FINGERPRINT, Mode.IDS, Mode.LATER})


@dataclass(frozen=True, slots=True)
class _Range:
    """``[low, high)`` as beginnings of keys; ``payload`` is a fingerprint or ids one after another."""

    low: bytes
    high: bytes
    mode: Mode
    payload: bytes = b""


class Reconciliation:
    """The asking side.

    Args:
        items: Our set; it may grow between two frames.
        frame_limit: Bytes that a frame of ours may have, ``MIN_FRAME_BYTES`` to ``MAX_FRAME_BYTES``.

    Raises:
        ValueError: The limit is out of range.

    Attributes:
        is_complete: After the end: whether nothing was cut off by a bound.
        rounds: Answers read.
    """

    def __init__(self, items: ItemSet, frame_limit: int = MAX_FRAME_BYTES) -> None:
        _check_limit(frame_limit)
        self._items, self._frame_limit = items, frame_limit
        self._asked: list[tuple[bytes, bytes]] = []
        self._open = [(_START, _END)]
        self._have: dict[bytes, None] = {}
        self._need: dict[bytes, None] = {}
        self.is_complete = True
        self.rounds = 0

    @property
    def have(self) -> list[TxId]:
        """Ids that only we hold, ascending by (depth, id); ``MAX_IDS`` at most."""
        return [TxId(each.hex()) for each in self._have]

    @property
    def need(self) -> list[TxId]:
        """Ids that only the peer holds, in its order, so that parents come before children; ``MAX_IDS`` at most."""
        return [TxId(each.hex()) for each in self._need]

    def first(self) -> bytes:
        """The first frame to send."""
        with self._items.lock:
            return self._ask()

    def next(self, answer: bytes) -> bytes | None:
        """Read an answer. The next frame to send, or None at the end.

        Raises:
            GossipFrameError: The frame is malformed, says something about what was not asked, or 100 rounds
                brought nothing.
        """
        with self._items.lock:
            return self._next(answer)

    def _next(self, answer: bytes) -> bytes | None:
        self.rounds += 1
        self._open = self._read_answer(answer) + self._open
        if len(self._open) > MAX_OPEN_RANGES:
            del self._open[MAX_OPEN_RANGES:]
            self.is_complete = False
        if not self._open:
            return None
        if len(self._need) < MAX_IDS and self.rounds < MAX_ROUNDS:
            return self._ask()
        self.is_complete = False
        if not self._need and not self._have:
            raise GossipFrameError(f"{MAX_ROUNDS} rounds found neither a difference nor an end")
        return None

    def _ask(self) -> bytes:
        frame = _Frame(self._frame_limit)
        asked = 0
        for low, high in self._open:
            if not frame.add(_describe(self._items, low, high, few=Mode.LIST)):
                break
            asked += 1
        self._asked, self._open = self._open[:asked], self._open[asked:]
        return frame.to_bytes()

    def _read_answer(self, answer: bytes) -> list[tuple[bytes, bytes]]:
        """What is still open of what was asked."""
        still_open: list[tuple[bytes, bytes]] = []
        for part in _read(answer, allowed=_ANSWERERS):
            match part.mode:
                case Mode.LATER:
                    still_open += [
                        (max(low, part.low), min(high, part.high))
                        for low, high in self._asked
                        if low < part.high and part.low < high
                    ]
                case Mode.FINGERPRINT:
                    self._check_was_asked(part)
                    if self._items.fingerprint(*_indices(self._items, part)) != part.payload:
                        still_open.append((part.low, part.high))
                case Mode.IDS:
                    self._check_was_asked(part)
                    self._compare(part)
        return still_open

    def _check_was_asked(self, part: _Range) -> None:
        at = bisect_right(self._asked, part.low, key=lambda each: each[0]) - 1
        if at < 0 or part.high > self._asked[at][1]:
            raise GossipFrameError("the answer speaks about a range that was not asked for")

    def _compare(self, part: _Range) -> None:
        payload = part.payload
        theirs = dict.fromkeys(payload[at : at + ID_BYTES] for at in range(0, len(payload), ID_BYTES))
        if len(theirs) * ID_BYTES != len(payload):
            raise GossipFrameError("the answer lists an id twice")
        for ours in self._items.raw_ids(*_indices(self._items, part)):
            if ours in theirs:
                del theirs[ours]
            elif len(self._have) < MAX_IDS:
                self._have[ours] = None
            else:
                self.is_complete = False
        room = MAX_IDS - len(self._need)
        self.is_complete &= len(theirs) <= room
        self._need.update(dict.fromkeys(list(theirs)[:room]))


def answer(items: ItemSet, frame: bytes, frame_limit: int = MAX_FRAME_BYTES) -> bytes:
    """The answering side: what this server holds where the asker's frame differs.

    Args:
        items: Our set.
        frame: As ``Reconciliation`` made it.
        frame_limit: Bytes that the answer may have, ``MIN_FRAME_BYTES`` to ``MAX_FRAME_BYTES``.

    Raises:
        GossipFrameError: The frame is malformed.
        ValueError: The limit is out of range.
    """
    _check_limit(frame_limit)
    with items.lock:
        return _answer(items, frame, frame_limit)


def _answer(items: ItemSet, frame: bytes, frame_limit: int) -> bytes:
    reply = _Frame(frame_limit)
    for part in _read(frame, allowed=_ASKERS):
        start, stop = _indices(items, part)
        match part.mode:
            case Mode.FINGERPRINT:
                is_equal = items.fingerprint(start, stop) == part.payload
                if not is_equal and not reply.add(_describe(items, part.low, part.high, few=Mode.IDS)):
                    reply.later(part.low)
                    break
            case Mode.LIST:
                cut = min(stop, start + reply.room_for_ids)
                high = part.high if cut == stop else items.separator(cut)
                if cut == start < stop or not reply.add([_listing(items, part.low, high)]):
                    reply.later(part.low)
                    break
                if cut < stop:
                    reply.later(high)
                    break
    return reply.to_bytes()


def _describe(items: ItemSet, low: bytes, high: bytes, *, few: Mode) -> list[_Range]:
    """What to say about a range that differs: 16 fingerprints, or ``few`` where there is little in it."""
    start, stop = items.bisect_bound(low), items.bisect_bound(high)
    if stop - start < _LIST_BELOW:
        return [_Range(low, high, Mode.LIST) if few is Mode.LIST else _listing(items, low, high)]
    ends = [start + (stop - start) * part // BUCKETS for part in range(BUCKETS + 1)]
    bounds = [low, *map(items.separator, ends[1:-1]), high]
    return [
        _Range(bounds[part], bounds[part + 1], Mode.FINGERPRINT, items.fingerprint(ends[part], ends[part + 1]))
        for part in range(BUCKETS)
    ]


def _listing(items: ItemSet, low: bytes, high: bytes) -> _Range:
    ids = items.raw_ids(items.bisect_bound(low), items.bisect_bound(high))
    return _Range(low, high, Mode.IDS, b"".join(ids))


def _indices(items: ItemSet, part: _Range) -> tuple[int, int]:
    return items.bisect_bound(part.low), items.bisect_bound(part.high)


def _check_limit(frame_limit: int) -> None:
    if not MIN_FRAME_BYTES <= frame_limit <= MAX_FRAME_BYTES:
        raise ValueError(f"a frame's limit is {MIN_FRAME_BYTES} to {MAX_FRAME_BYTES} bytes, not {frame_limit}")


class _Frame:
    """Writes ranges in ascending order, gaps between them as skips, never more bytes than the limit."""

    def __init__(self, limit: int) -> None:
        self._bytes, self._limit = bytearray([VERSION]), limit
        self._end, self._depth = _START, 0

    @property
    def room_for_ids(self) -> int:
        """How many ids one more range may list."""
        overhead = 2 * _HEAD_BYTES + _MAX_VARINT_BYTES + _TAIL_BYTES
        return max(0, self._limit - len(self._bytes) - overhead) // ID_BYTES

    def add(self, parts: Sequence[_Range]) -> bool:
        """Append these ranges, all or none. Whether there was room."""
        added, end, depth = bytearray(), self._end, self._depth
        for part in parts:
            if part.low != end:
                skipped, depth = _encode_bound(part.low, depth)
                added += bytes([Mode.SKIP]) + skipped
            bound, depth = _encode_bound(part.high, depth)
            count = varint(len(part.payload) // ID_BYTES) if part.mode is Mode.IDS else b""
            added += bytes([part.mode]) + bound + count + part.payload
            end = part.high
        if len(self._bytes) + len(added) + _TAIL_BYTES > self._limit:
            return False
        self._bytes += added
        self._end, self._depth = end, depth
        return True

    def later(self, low: bytes) -> None:
        """Say that everything from here on is left for another frame; nothing follows."""
        if low != self._end:
            self._bytes += bytes([Mode.SKIP]) + _encode_bound(low, self._depth)[0]
        self._bytes += bytes([Mode.LATER]) + _encode_bound(_END, 0)[0]

    def to_bytes(self) -> bytes:
        return bytes(self._bytes)


def _encode_bound(bound: bytes, depth: int) -> tuple[bytes, int]:
    """A bound after one of this depth, and the depth that the next one counts from."""
    if bound == _END:
        return b"\x00", depth
    following, prefix = int.from_bytes(bound[:DEPTH_BYTES], "big"), bound[DEPTH_BYTES:]
    return varint(1 + following - depth) + bytes([len(prefix)]) + prefix, following


def _read(frame: bytes, *, allowed: frozenset[Mode]) -> list[_Range]:
    """A frame's ranges, the whole frame checked: all errors come before anything is done.

    Raises:
        GossipFrameError: The frame breaks a rule of the module's docstring.
    """
    if len(frame) > MAX_FRAME_BYTES:
        raise GossipFrameError(f"a frame has at most {MAX_FRAME_BYTES} bytes, this one {len(frame)}")
    reader = Reader(frame, error=GossipFrameError, what="the frame")
    if (version := reader.take(1)[0]) != VERSION:
        raise GossipFrameError(f"frames of version {VERSION} are understood here, this one has {version}")
    parts: list[_Range] = []
    low, depth = _START, 0
    while reader.rest:
        mode = reader.take(1)[0]
        if mode not in allowed:
            raise GossipFrameError(f"a range of mode {mode} does not belong into this direction's frames")
        high, depth = _read_bound(reader, depth)
        if high <= low:
            raise GossipFrameError("the bounds of a frame's ranges do not ascend")
        size = 0
        if mode == Mode.FINGERPRINT:
            size = FINGERPRINT_BYTES
        elif mode == Mode.IDS:
            size = _read_varint(reader) * ID_BYTES
        parts.append(_Range(low, high, Mode(mode), reader.take(size)))
        low = high
    return parts


def _read_varint(reader: Reader) -> int:
    value = 0
    for place in range(_MAX_VARINT_BYTES):
        digit = reader.take(1)[0]
        if place == 0 and digit == 0x80:
            raise GossipFrameError("a number of the frame begins with a zero digit")
        value = value << 7 | digit & 0x7F
        if digit < 0x80:
            return value
    raise GossipFrameError(f"a number of the frame has more than {_MAX_VARINT_BYTES} digits")


def _read_bound(reader: Reader, depth: int) -> tuple[bytes, int]:
    """A bound after one of this depth, and the depth that the next one counts from."""
    step = _read_varint(reader)
    if step == 0:
        return _END, depth
    depth += step - 1
    length = reader.take(1)[0]
    if depth > _MAX_DEPTH or length > ID_BYTES:
        raise GossipFrameError(f"no item is at depth {depth} with {length} bytes of its id")
    return depth.to_bytes(DEPTH_BYTES, "big") + reader.take(length), depth
