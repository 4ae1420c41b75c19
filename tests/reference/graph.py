"""The DAG's questions answered from the definition, by looking at every transaction every time."""

from collections.abc import Mapping, Sequence


def tips(parents_of: Mapping[str, Sequence[str]]) -> set[str]:
    """Transactions that nobody names as parent."""
    approved = {parent for parents in parents_of.values() for parent in parents}
    return set(parents_of) - approved


def depth(parents_of: Mapping[str, Sequence[str]], transaction: str) -> int:
    """Longest path to a transaction without parents."""
    parents = parents_of[transaction]
    return 1 + max(depth(parents_of, parent) for parent in parents) if parents else 0
