"""Sets of transactions by the definition: sorted lists and Python's own set difference."""

import hashlib
from collections.abc import Iterable

from fl_core.sync.items import Item


def in_order(items: Iterable[Item]) -> list[Item]:
    """Ascending by depth, then by the id's bytes."""
    return sorted(set(items), key=lambda item: (item[0], bytes.fromhex(item[1])))


def sum_of_ids(items: Iterable[Item]) -> bytes:
    """The ids' sum modulo 2^256, little-endian."""
    total = sum(int.from_bytes(bytes.fromhex(identity), "little") for _, identity in items)
    return (total % 2**256).to_bytes(32, "little")


def fingerprint(items: list[Item]) -> bytes:
    """Of fewer than 128 items, so that their number is one byte."""
    assert len(items) < 128
    return hashlib.sha256(sum_of_ids(items) + bytes([len(items)])).digest()[:16]


def reconciled(ours: Iterable[Item], theirs: Iterable[Item]) -> tuple[set[str], set[str]]:
    """Ids that only we hold, and ids that only they hold."""
    mine, others = {identity for _, identity in ours}, {identity for _, identity in theirs}
    return mine - others, others - mine
