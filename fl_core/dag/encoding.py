"""The parts that headers, receipts, acts and checkpoints are made of: big-endian, one encoding per value.

Whole numbers are unsigned and below 2^63, so that every database can hold them. Doubles are IEEE 754, finite, and
not -0.0. A map is a count (2 bytes), then its entries, strictly ascending by name: 1 byte length, ASCII name,
2 bytes length, value.
"""

import math
import re
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

from fl_core.errors import DagAcflError

MAX_INTEGER: Final = 2**63 - 1
MAX_ENTRIES: Final = 16
"""Entries of one map."""
MAX_VALUE_BYTES: Final = 512
"""Bytes of one value in a map."""

NAME: Final = re.compile(r"[a-z0-9_.-]{1,64}")
"""What metrics and the entries of maps are called."""

_COUNT: Final = struct.Struct(">H")


class Reader:
    """Takes a value's parts from the front of its bytes; whatever is wrong raises ``error``."""

    def __init__(self, data: bytes, *, error: type[DagAcflError], what: str) -> None:
        self._data, self._at = data, 0
        self.error, self.what = error, what

    @property
    def rest(self) -> int:
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        piece = self._data[self._at : self._at + size]
        if len(piece) < size:
            raise self.error(f"{self.what} ends after {len(self._data)} bytes, inside a field")
        self._at += size
        return piece

    def fixed(self, layout: struct.Struct, *, magic: bytes) -> list[Any]:
        """The fields at the front, behind the magic that every value of this kind begins with."""
        found, *fields = layout.unpack(self.take(layout.size))
        if found != magic:
            raise self.error(f"{self.what} starts with {magic.hex()}, not with {found.hex()}")
        return fields

    def hex_id(self) -> str:
        """The next 32 bytes as 64 digits."""
        return self.take(32).hex()

    def count(self, most: int, *, size: int = 2) -> int:
        """The next ``size`` bytes, a number of things that follow."""
        number = int.from_bytes(self.take(size), "big")
        if number > most:
            raise self.error(f"{self.what} says that {number} things follow; at most {most}")
        return number

    def number(self) -> int:
        """The next 8 bytes, a number below 2^63."""
        number = int.from_bytes(self.take(8), "big")
        if number > MAX_INTEGER:
            raise self.error(f"a number of {self.what} is not below 2^63")
        return number

    def double(self) -> float:
        """The next 8 bytes, a double."""
        value: float = struct.unpack(">d", self.take(8))[0]
        if not is_canonical_double(value):
            raise self.error(f"a number of {self.what} is not finite, or -0.0")
        return value

    def names(self, most: int) -> Iterator[str]:
        """The next count and, one by one, names, strictly ascending; whoever asks takes what stands behind each."""
        latest: str | None = None
        for _ in range(self.count(most)):
            name = self.take(self.take(1)[0]).decode("latin-1")
            if latest is not None and name <= latest:
                raise self.error(f"the names of {self.what} are not strictly ascending")
            yield name
            latest = name

    def map(self) -> dict[str, bytes]:
        entries = {name: self.take(int.from_bytes(self.take(2), "big")) for name in self.names(MAX_ENTRIES)}
        check_map(entries, error=self.error, what=self.what)
        return entries

    def end(self) -> None:
        """Nothing may follow."""
        if self.rest:
            raise self.error(f"{self.rest} bytes follow the end of {self.what}")


def is_canonical_double(value: float) -> bool:
    """Whether a double is finite and not -0.0."""
    return math.isfinite(value) and not (value == 0 and math.copysign(1, value) < 0)


def check_map(entries: Mapping[str, bytes], *, error: type[DagAcflError], what: str) -> None:
    """Raise ``error`` unless a map keeps the bounds of the encoding."""
    if len(entries) > MAX_ENTRIES:
        raise error(f"{len(entries)} entries in {what}; at most {MAX_ENTRIES}")
    for name, value in entries.items():
        if NAME.fullmatch(name) is None:
            raise error(f"name {name!r} in {what} must match {NAME.pattern}")
        if len(value) > MAX_VALUE_BYTES:
            raise error(f"{name} in {what} has {len(value)} bytes; at most {MAX_VALUE_BYTES}")


def encode_map(entries: Mapping[str, bytes]) -> bytes:
    """A checked map's bytes."""
    parts = [_COUNT.pack(len(entries))]
    for name in sorted(entries):
        parts += [bytes([len(name)]), name.encode("ascii"), _COUNT.pack(len(entries[name])), entries[name]]
    return b"".join(parts)
