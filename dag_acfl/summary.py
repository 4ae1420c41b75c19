"""What a ledger holds, counted from any source: for ``dag-acfl ledger inspect``."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from dag_acfl.commands.options import figure, number_of
from fl_core.clusters import Approvals, Partition, count_approvals, find_clusters, modularity
from fl_core.dag.genesis import NO_BOUND, Genesis, parse_genesis
from fl_core.dag.profiles import PROFILES, differences, protection
from fl_core.dag.transaction import Header, Kind, decode_header
from fl_core.errors import GenesisError
from fl_core.types import AuthorId, TxId
from fl_core.verify import LedgerSource
from ledger_server.logs import escape

_COMPONENTS = ("comparison", "selector", "candidates", "aggregator", "weights", "freshness", "authors")
_PARTNERS_SHOWN = 3
"""Of an author, those that it took from most often."""


def summarise(source: LedgerSource) -> dict[str, Any]:
    """Read headers and the genesis document; no model is read.

    Returns:
        JSON values: the rules as ``genesis`` has them, its ``profile``, where it ``differs`` from it, and the
        ``protection`` that its rules give: ``against`` what, and what it ``leaves``; counts and sizes. ``clusters``:
        sizes of Louvain's communities; ``shared``: updates that began with an average with others' models;
        ``authors``: of each, how much it published, how much of that so ``shared``, ``with`` whom how often, its
        newest's metrics, and its community from 1.
    """
    genesis: Genesis | None = None
    depths: dict[TxId, int] = {}
    updates: dict[TxId, Header] = {}
    newest: dict[AuthorId, tuple[int, TxId]] = {}
    models: dict[str, int] = {}
    header_bytes = 0
    for _, transaction in source.transactions():
        header = decode_header(transaction.header_bytes)
        header_bytes += len(transaction.header_bytes)
        models[header.model_digest] = header.model_size
        if header.kind is Kind.GENESIS:
            document = source.attachment(header.attachment_digest)
            if document is None:
                raise GenesisError("the genesis document is missing; run: dag-acfl ledger verify")
            genesis, depths[transaction.id] = parse_genesis(document), 0
            continue
        # Sources give parents first; a broken one is verify's business, so an unknown parent counts as 0 deep.
        depths[transaction.id] = 1 + max(depths.get(parent, 0) for parent in header.parents)
        updates[transaction.id] = header
        this = header.sequence, transaction.id
        newest[header.author] = max(this, newest.get(header.author, this))
    if genesis is None:
        raise GenesisError("there is no genesis transaction; run: dag-acfl ledger verify")
    approved = {parent for header in updates.values() for parent in header.parents}
    approvals, partition = clusters_of(updates)
    pruned = source.pruned
    cluster_of = {author: number for number, group in enumerate(partition, start=1) for author in group}
    counts = Counter(header.author for header in updates.values())
    shared: Counter[AuthorId] = Counter()
    partners: defaultdict[AuthorId, Counter[AuthorId]] = defaultdict(Counter)
    for header in updates.values():
        others = {updates[parent].author for parent in header.parents if parent in updates} - {header.author}
        shared[header.author] += bool(others)
        partners[header.author].update(others)
    return {
        "ledger": source.ledger,
        "genesis": json.loads(genesis.document),
        "profile": genesis.authors.name if genesis.authors.name in PROFILES else None,
        "differs": list(differences(genesis)),
        "protection": None if (known := protection(genesis)) is None else asdict(known),
        "parameters": genesis.layout.num_parameters,
        "model_bytes": genesis.layout.nbytes,
        "transactions": len(depths),
        "tips": len(depths.keys() - approved),
        "depth": max(depths.values()),
        "shared": shared.total(),
        "authors": [
            {
                "author": author,
                "transactions": counts[author],
                "shared": shared[author],
                "with": dict(sorted(partners[author].items(), key=lambda item: (-item[1], item[0]))),
                "newest_is_tip": newest[author][1] not in approved,
                "metrics": dict(updates[newest[author][1]].metrics),
                "cluster": cluster_of[author],
            }
            for author in sorted(counts)
        ],
        "clusters": list(map(len, partition)),
        "modularity": modularity(approvals, partition),
        "header_bytes": header_bytes,
        "stored_model_bytes": sum(models.values()) - pruned * genesis.layout.nbytes,
        "pruned_models": pruned,
    }


def clusters_of(updates: Mapping[TxId, Header]) -> tuple[Approvals, Partition]:
    """Who approved whom, and the clusters that this makes."""
    author_of = {id_: header.author for id_, header in updates.items()}
    approvals = count_approvals(
        (header.author, [author_of.get(parent) for parent in header.parents]) for header in updates.values()
    )
    return approvals, find_clusters(approvals)


def print_summary(summary: Mapping[str, Any]) -> None:
    """As tables, on standard output."""
    from rich import box  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    sizes = " + ".join(map(str, summary["clusters"]))
    updates = sum(each["transactions"] for each in summary["authors"])
    pruned = f", {number_of(summary['pruned_models'], 'model')} pruned" if summary["pruned_models"] else ""
    deep, tips = number_of(summary["depth"], "generation"), number_of(summary["tips"], "tip")
    for name, value in (
        ("ledger", f"{summary['genesis']['name']}  {summary['ledger']}"),
        ("model", f"{summary['parameters']:,} parameters, {summary['model_bytes']:,} bytes"),
        ("profile", _profile(summary["profile"], summary["differs"])),
        *(summary["protection"] or {}).items(),
        *_rules(summary["genesis"]),
        ("transactions", f"{summary['transactions']}, {deep}, {tips}"),
        ("shared", f"{summary['shared']} of {updates} updates began with an average with others' models"),
        ("clusters", f"{len(summary['clusters'])} of {sizes or 0}, modularity {summary['modularity']:.2f}"),
        (
            "stored",
            f"models {summary['stored_model_bytes']:,} bytes, headers {summary['header_bytes']:,} bytes{pruned}",
        ),
    ):
        facts.add_row(name, Text(escape(value)))  # a ledger's founder writes what they like
    count = len(summary["authors"])
    authors = Table(
        title=number_of(count, "author"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_edge=False,
    )
    for heading, width in (("", len(str(count))), ("author", 10), ("cluster", 7), ("shared", 8)):
        authors.add_column(heading, justify="left" if heading == "author" else "right", min_width=width, no_wrap=True)
    authors.add_column("with", min_width=4)
    authors.add_column("metrics", overflow="fold")
    row_of = {each["author"]: row for row, each in enumerate(summary["authors"], start=1)}
    for each in summary["authors"]:
        row, partners = row_of[each["author"]], [str(row_of[other]) for other in each["with"]]
        shown = " ".join(partners[:_PARTNERS_SHOWN]) + " …" * (len(partners) > _PARTNERS_SHOWN)
        # A line breaks at blanks, so there is none within.
        metrics = "  ".join(f"{name}={figure(value)}" for name, value in each["metrics"].items())
        times = f"{each['shared']} of {each['transactions']}"
        authors.add_row(str(row), f"{each['author'][:9]}…", str(each["cluster"]), times, shown, metrics)
    console = Console()
    console.print(facts)
    console.print(authors)


def _profile(name: str | None, differs: Sequence[str]) -> str:
    if name is None:
        return "none that this version knows"
    return name + (f", but for {', '.join(differs)}" if differs else "")


def _rules(genesis: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """A row for each rule of a genesis document; of those that may be empty, only where there is something."""
    for name in _COMPONENTS:
        rule = genesis[name]
        yield name, rule["name"] + (f": {_listed(rule['params'])}" if rule["params"] else "")
    yield "bounds", _listed(genesis["bounds"])
    members = ", ".join(f"{member['name']} {member['key'][:16]}…" for member in genesis["members"])
    yield "members", f"{members or 'none'}; an act needs {genesis['threshold']}"
    for name in ("training", "extensions"):
        if genesis[name]:
            yield name, _listed(genesis[name])
    for role in ("buffer", "local"):
        if tensors := [tensor["name"] for tensor in genesis["layout"] if tensor["role"] == role]:
            yield f"{role} tensors", ", ".join(tensors)
    if genesis["supersedes"] is not None:
        yield "supersedes", genesis["supersedes"]


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_shown(value)}" for name, value in values.items())


def _shown(value: Any) -> str:
    if type(value) is float:
        return "unbounded" if value == NO_BOUND else f"{value:g}"
    return str(value).lower() if isinstance(value, bool) else str(value)
