"""What a ledger holds, counted from any source: for ``dag-acfl ledger inspect``."""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from fl_core.clusters import count_approvals, find_clusters, modularity
from fl_core.dag.genesis import Genesis, parse_genesis
from fl_core.dag.transaction import Kind, decode_header
from fl_core.errors import GenesisError
from fl_core.types import AuthorId, TxId
from fl_core.verify import LedgerSource


@dataclass(frozen=True, slots=True)
class AuthorSummary:
    """One author's part."""

    author: AuthorId
    transactions: int
    newest_is_tip: bool
    metrics: dict[str, float]
    cluster: int


@dataclass(frozen=True, slots=True)
class LedgerSummary:
    """Counts and sizes of one ledger."""

    ledger: str
    name: str
    selector: str
    aggregator: str
    parameters: int
    model_bytes: int
    similarity_layers: tuple[str, ...]
    transactions: int
    tips: int
    depth: int
    authors: tuple[AuthorSummary, ...]
    clusters: tuple[int, ...]
    modularity: float
    header_bytes: int
    stored_model_bytes: int
    pruned_models: int

    def as_json(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)


def summarise(source: LedgerSource) -> LedgerSummary:
    """Read headers and the genesis document; no model is read.

    Raises:
        GenesisError: The source holds no genesis, or a damaged one; ``ledger verify`` says more.
    """
    genesis: Genesis | None = None
    depths: dict[TxId, int] = {}
    authors: dict[TxId, AuthorId | None] = {}
    newest: dict[AuthorId, tuple[int, TxId, dict[str, float]]] = {}
    approved: set[TxId] = set()
    counts: Counter[AuthorId] = Counter()
    sites: list[tuple[AuthorId, tuple[TxId, ...]]] = []
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
            genesis, authors[transaction.id], depths[transaction.id] = parse_genesis(document), None, 0
            continue
        # Sources give parents first; a broken one is verify's business, so an unknown parent counts as 0 deep.
        depths[transaction.id] = 1 + max(depths.get(parent, 0) for parent in header.parents)
        authors[transaction.id] = header.author
        approved.update(header.parents)
        counts[header.author] += 1
        sites.append((header.author, header.parents))
        held = newest.get(header.author)
        if held is None or (header.sequence, transaction.id) > held[:2]:
            newest[header.author] = (header.sequence, transaction.id, dict(header.metrics))
    if genesis is None:
        raise GenesisError("there is no genesis transaction; run: dag-acfl ledger verify")
    approvals = count_approvals((author, [authors.get(p) for p in parents]) for author, parents in sites)
    partition, pruned = find_clusters(approvals), source.pruned
    cluster_of = {author: number for number, group in enumerate(partition, start=1) for author in group}
    return LedgerSummary(
        ledger=source.ledger,
        name=genesis.name,
        selector=genesis.selector.name,
        aggregator=genesis.aggregator.name,
        parameters=genesis.layout.num_parameters,
        model_bytes=genesis.layout.nbytes,
        similarity_layers=genesis.compared,
        transactions=len(depths),
        tips=len(depths.keys() - approved),
        depth=max(depths.values()),
        authors=tuple(
            AuthorSummary(
                author, counts[author], newest[author][1] not in approved, newest[author][2], cluster_of[author]
            )
            for author in sorted(counts)
        ),
        clusters=tuple(len(group) for group in partition),
        modularity=modularity(approvals, partition),
        header_bytes=header_bytes,
        stored_model_bytes=sum(models.values()) - pruned * genesis.layout.nbytes,
        pruned_models=pruned,
    )


def print_summary(summary: LedgerSummary) -> None:
    """As tables, on standard output."""
    from rich import box  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    rows = (
        ("ledger", f"{summary.name}  {summary.ledger}"),
        ("model", f"{summary.parameters:,} parameters, {summary.model_bytes:,} bytes"),
        ("compared", ", ".join(summary.similarity_layers)),
        ("selector", f"{summary.selector}, aggregator {summary.aggregator}"),
        ("transactions", f"{summary.transactions}, {summary.depth} generations, {summary.tips} tips"),
        ("clusters", f"{_sizes(summary.clusters)}, modularity {summary.modularity:.2f}"),
        (
            "stored",
            f"models {summary.stored_model_bytes:,} bytes, headers {summary.header_bytes:,} bytes{_left_out(summary)}",
        ),
    )
    for name, value in rows:
        facts.add_row(name, value)
    authors = Table(title=f"{len(summary.authors)} authors", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1))
    for heading, width in (("author", 18), ("cluster", 7), ("sent", 4), ("tip", 3)):
        authors.add_column(heading, justify="left" if heading == "author" else "right", min_width=width)
    authors.add_column("newest's metrics", no_wrap=True, overflow="ellipsis")
    for each in summary.authors:
        metrics = "  ".join(f"{name} {value:.3g}" for name, value in each.metrics.items())
        tip = "yes" if each.newest_is_tip else "no"
        authors.add_row(f"{each.author[:17]}…", str(each.cluster), str(each.transactions), tip, metrics)
    console = Console()
    console.print(facts)
    console.print(authors)


def _left_out(summary: LedgerSummary) -> str:
    return f", {summary.pruned_models} models pruned" if summary.pruned_models else ""


def _sizes(clusters: tuple[int, ...]) -> str:
    return f"{len(clusters)} of {' + '.join(map(str, clusters))}" if clusters else "none"
