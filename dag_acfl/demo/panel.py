"""What the demo shows in the end: the panel of figures, and where its files are."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from dag_acfl.demo.figures import DemoFigures, NetworkFigure


def result_panel(figures: DemoFigures, *, labels: Sequence[str]) -> Panel:
    """What was measured in this run."""
    return Panel(
        Group(_methods(figures), Text(), _facts(figures, labels)),
        title="[bold]measured in this run[/]",
        title_align="left",
        border_style="green" if not figures.proof.faults else "red",
        padding=(1, 2),
        expand=False,
    )


def _methods(figures: DemoFigures) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("method")
    table.add_column("accuracy", justify="right")
    table.add_column("± over clients", justify="right")
    table.add_column("", no_wrap=True)
    best = max(method.mean for method in figures.methods)
    for method in figures.methods:
        style = "bold green" if method.mean == best else ""
        bar = "█" * round(method.mean * 32)
        table.add_row(
            Text(method.name, style=style),
            Text(f"{method.mean:.3f}", style=style),
            f"{method.spread:.3f}",
            Text(bar, style="green" if method.mean == best else "bright_black"),
        )
    trained = figures.trained
    table.add_row("  and trained on", f"{trained.mean:.3f}", f"{trained.spread:.3f}", "", style="dim")
    return table


def _facts(figures: DemoFigures, labels: Sequence[str]) -> Table:
    clusters, costs, proof = figures.clusters, figures.costs, figures.proof
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    found = f"{len(clusters.found)} found by Louvain ({' + '.join(map(str, clusters.found))}), {clusters.true} true"
    grid.add_row("clusters", f"{found}; {_placed(clusters.misplaced, sum(clusters.found))}")
    grid.add_row(
        "modularity",
        f"{clusters.modularity:.3f} (Eq. 6; at most {1 - 1 / len(labels):.2f} with {len(labels)} equal clusters)",
    )
    satisfaction = "no selection had a choice" if clusters.satisfaction is None else f"{clusters.satisfaction:.3f}"
    grid.add_row(
        "satisfaction mr",
        f"{satisfaction} (Eq. 7); {clusters.foreign_approvals:.1%} of approvals went to another cluster",
    )
    over = costs.measured / costs.equation_8 - 1
    grid.add_row(
        "bytes",
        f"{costs.measured:,.0f} per client and round; Eq. 8 says {costs.equation_8:,}, "
        f"evidence and HTTP add {over:.0%} to so small a model",
    )
    if proof.faults:
        grid.add_row("ledger", Text(f"{len(proof.faults)} faults: {', '.join(proof.faults[:5])}", style="bold red"))
    else:
        grid.add_row(
            "ledger",
            f"verified: {proof.transactions} transactions, {proof.models} models, "
            f"{proof.aggregates} averages recomputed",
        )
    if figures.network is not None:
        _network(grid, figures.network)
    grid.add_row("time", f"{figures.elapsed_s:.1f} s")
    return grid


def _network(grid: Table, network: NetworkFigure) -> None:
    took = " + ".join(map(str, network.updates))
    grid.add_row(
        "servers",
        f"{took} updates; all {len(network.updates)} ledgers equal (tips {network.digest[:12]}…), "
        f"{network.equal_after_s:.2f} s after the last client",
    )
    if (seen := network.visibility) is not None:
        grid.add_row(
            "visible elsewhere",
            f"after {seen.median_s * 1000:.0f} ms (median), {seen.p95_s * 1000:.0f} ms (p95), "
            f"of {seen.pairs} arrivals on other servers",
        )
    grid.add_row(
        "server to server",
        f"{network.peer_bytes:,.0f} bytes per update and receiver; model + header are {network.equation_8:,.0f}, "
        f"evidence and HTTP add {network.peer_bytes / network.equation_8 - 1:.0%}",
    )
    grid.add_row("roaming", f"clients switched servers {network.switches} times; nobody lost its place")
    if network.killed is not None:
        grid.add_row("chaos", f"server {network.killed + 1} was killed (kill -9), came back, and holds everything")


def _placed(misplaced: int, total: int) -> str:
    return f"all {total} clients in the right one" if misplaced == 0 else f"{misplaced} of {total} clients misplaced"


def next_steps(folder: Path, *, urls: Sequence[str]) -> Group:
    """Where the files are and what to do now."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(style="dim")
    for name, what in (
        ("accuracy.png", "accuracy over updates"),
        ("dag.png", "who learnt from whom"),
        ("metrics.csv", "every update of every client"),
        ("summary.json", "the figures above"),
        ("ledger.dagacfl", "the whole ledger; check it: dag-acfl ledger verify " + str(folder / "ledger.dagacfl")),
    ):
        grid.add_row(f"  {folder / name}", what)
    steps = Text()
    if urls:
        steps.append(f"\nThe ledger is still served on {', '.join(urls)} (Ctrl-C to stop).\n", style="bold")
    steps.append("\nYour own model: dag-acfl client init my_client.py")
    return Group(Text("files", style="bold"), grid, steps)
