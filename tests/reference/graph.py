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
    listed: Collection[str] | None = None,
) -> list[str]:
    """The listed's newest transactions that are fresh (and tips), but the asker's; of ``most`` authors, ascending by id.

    Each member ranks the authors by when it received their first, and each author has its best place.
    """
    updates = [node for node in nodes if node.parents]
    now_ms = ledger_time_ms(updates, members=members)
    newest, present = newest_of_each_author(updates), tips({node.id: node.parents for node in updates})
    offered = [
        node
        for node in updates
        if node.id in newest
        and (listed is None or node.author in listed)
        and node.received_at_ms >= now_ms - window_ms
        and (rule == "newest" or node.id in present)
    ]
    authors = {node.author for node in offered}
    places: list[tuple[int, str]] = []
    for issuers in [*({member} for member in members), {node.issuer for node in updates} - {*members}]:
        received = sorted((n.received_at_ms, n.author) for n in updates if n.author in authors and n.issuer in issuers)
        places += enumerate(dict.fromkeys(author for _, author in received))
    ranked = [author for author in dict.fromkeys(author for _, author in sorted(places)) if author != asker]
    return sorted(node.id for node in offered if node.author in ranked[:most])


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
