"""The DAG's questions answered from the definition, by looking at every transaction every time."""

from collections.abc import Iterable, Mapping, Sequence

from fl_core.dag.graph import Node


def tips(parents_of: Mapping[str, Sequence[str]]) -> set[str]:
    """Transactions that nobody names as parent."""
    approved = {parent for parents in parents_of.values() for parent in parents}
    return set(parents_of) - approved


def depth(parents_of: Mapping[str, Sequence[str]], transaction: str) -> int:
    """Longest path to a transaction without parents."""
    parents = parents_of[transaction]
    return 1 + max(depth(parents_of, parent) for parent in parents) if parents else 0


def candidates(nodes: Iterable[Node], *, asker: str | None, window: int, most: int) -> list[str]:
    """Others' newest transactions that are tips and fresh: the deepest ``most`` of them, ascending by id."""
    sites = [node for node in nodes if node.parents]
    present = tips({node.id: node.parents for node in sites})
    newest = newest_of_each_author(sites)
    deepest = max((node.depth for node in sites), default=0)
    offered = [
        node
        for node in sites
        if node.id in present and node.id in newest and node.author != asker and node.depth >= deepest - window
    ]
    return sorted(node.id for node in sorted(offered, key=lambda node: (-node.depth, node.id))[:most])


def kept(nodes: Iterable[Node], *, window: int, keep_generations: int) -> set[str]:
    """Transactions whose models stay when a ledger is pruned."""
    everything = list(nodes)
    present = tips({node.id: node.parents for node in everything})
    newest = newest_of_each_author([node for node in everything if node.parents])
    deepest = max(node.depth for node in everything)
    return {
        node.id
        for node in everything
        if not node.parents
        or node.id in newest
        or (node.id in present and node.depth >= max(deepest - window, 1))
        or node.depth > deepest - keep_generations
    }


def newest_of_each_author(sites: Iterable[Node]) -> set[str]:
    """Of each author the transaction of the highest sequence number, of equal ones that of the highest id."""
    authors = {node.author for node in sites}
    return {max((node.sequence, node.id) for node in sites if node.author == author)[1] for author in authors}
