"""The DAG's questions answered from the definition, by looking at every transaction every time."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from fl_core.dag.graph import Node


def tips(parents_of: Mapping[str, Sequence[str]]) -> set[str]:
    """Transactions that nobody names as parent."""
    approved = {parent for parents in parents_of.values() for parent in parents}
    return set(parents_of) - approved


def depth(parents_of: Mapping[str, Sequence[str]], transaction: str) -> int:
    """Longest path to a transaction without parents."""
    parents = parents_of[transaction]
    return 1 + max(depth(parents_of, parent) for parent in parents) if parents else 0


def ledger_time_ms(nodes: Iterable[Node], *, members: Collection[str] = ()) -> int:
    """The lower median of the members' newest receipts; 0 stands for one that has issued none."""
    updates = [node for node in nodes if node.parents]
    listed = members or {node.issuer for node in updates}
    newest = sorted(max((n.received_at_ms for n in updates if n.issuer == key), default=0) for key in listed)
    return newest[(len(newest) - 1) // 2] if newest else 0


def candidates(
    nodes: Iterable[Node],
    *,
    asker: str | None,
    rule: str,
    window_ms: int,
    most: int,
    members: Collection[str] = (),
) -> list[str]:
    """Others' newest transactions that are fresh (and tips): of the longest-standing ``most`` authors, ascending by id."""
    updates = [node for node in nodes if node.parents]
    now_ms = ledger_time_ms(updates, members=members)
    newest, present = newest_of_each_author(updates), tips({node.id: node.parents for node in updates})
    offered = [
        node
        for node in updates
        if node.id in newest
        and node.author != asker
        and node.received_at_ms >= now_ms - window_ms
        and (rule == "newest" or node.id in present)
    ]
    first_ms = {
        each: min(n.received_at_ms for n in updates if n.author == each) for each in {n.author for n in offered}
    }
    return sorted(n.id for n in sorted(offered, key=lambda n: (first_ms[n.author], n.author))[:most])


def kept(nodes: Iterable[Node], *, window_ms: int, keep_ms: int, members: Collection[str] = ()) -> set[str]:
    """Transactions whose models stay when a ledger is pruned."""
    everything = list(nodes)
    now_ms = ledger_time_ms(everything, members=members)
    newest = newest_of_each_author([node for node in everything if node.parents])
    return {
        node.id
        for node in everything
        if not node.parents
        or (node.id in newest and node.received_at_ms >= now_ms - window_ms)
        or node.received_at_ms > now_ms - keep_ms
    }


def newest_of_each_author(sites: Iterable[Node]) -> set[str]:
    """Of each author the transaction of the highest sequence number, of equal ones that of the highest id."""
    authors = {node.author for node in sites}
    return {max((node.sequence, node.id) for node in sites if node.author == author)[1] for author in authors}
