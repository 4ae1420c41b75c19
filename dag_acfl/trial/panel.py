"""What a trial shows in the end: the panel of figures, and where its files are."""

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from dag_acfl.commands.options import as_called, set_options
from dag_acfl.trial.figures import told_gain, told_sites
from fl_core.dag.genesis import DEFAULT_EPOCHS
from fl_core.types import JsonScalar
from fl_simulator.training.sites import SITE


def result_panel(figures: Mapping[str, Any]) -> Panel:
    """What was measured in this run, from the content of ``summary.json``."""
    return Panel(
        Group(_methods(figures), Text(), _facts(figures)),
        title="[bold]measured in this run[/]",
        title_align="left",
        border_style="red" if figures["proof"]["faults"] else "green",
        padding=(1, 2),
        expand=False,
    )


def _methods(figures: Mapping[str, Any]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("method")
    table.add_column(figures["figure"], justify="right")
    table.add_column("± over clients", justify="right")
    table.add_column("", no_wrap=True)
    means = [method["mean"] for method in figures["methods"] if math.isfinite(method["mean"])] or [0.0]
    best = min(means) if figures["figure"] == "loss" else max(means)
    whole = 1.0 if figures["figure"] == "accuracy" else max(means)
    for method in figures["methods"]:
        is_best = method["mean"] == best
        style = "bold green" if is_best else ""
        if where := _not_finite(method):
            table.add_row(method["name"], "–", "–", Text(where, style="red"))
            continue
        table.add_row(
            Text(method["name"], style=style),
            Text(f"{method['mean']:.3f}", style=style),
            f"{method['sd']:.3f}",
            Text("█" * round(32 * method["mean"] / whole), style="green" if is_best else "bright_black"),
        )
    trained, name = figures["trained"], "  and trained on"
    if where := _not_finite(trained):
        table.add_row(name, "–", "–", where, style="dim")
    else:
        table.add_row(name, f"{trained['mean']:.3f}", f"{trained['sd']:.3f}", "", style="dim")
    return table


def _not_finite(method: Mapping[str, Any]) -> str:
    """At which sites a method has no finite figure; empty where all have one."""
    sites = [site for site, value in enumerate(method["values"]) if not math.isfinite(value)]
    return f"not finite at {told_sites(sites)}" if sites else ""


def _facts(figures: Mapping[str, Any]) -> Table:
    clusters, costs, proof, network = (figures[part] for part in ("clusters", "costs", "proof", "network"))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    grid.add_row("sharing buys", told_gain(figures["gain"], sum(clusters["found"])))
    grid.add_row(
        "shared", f"{clusters['shared']} of {clusters['updates']} updates began with an average with others' models"
    )
    if "true" in clusters:
        _add_judged_clusters(grid, clusters)
    else:
        groups = ", ".join(" ".join(map(str, group)) for group in clusters["sites"])
        grid.add_row("clusters", f"{len(clusters['found'])} found by Louvain; sites {groups}")
        grid.add_row("modularity", f"{clusters['modularity']:.3f} (Eq. 6; 0: nobody shares, or all in one cluster)")
    over = costs["measured"] / costs["equation_8"] - 1
    grid.add_row(
        "bytes",
        f"{costs['measured']:,.0f} per client and round; Eq. 8 says {costs['equation_8']:,}, "
        f"evidence and HTTP add {over:.0%} to so small a model",
    )
    if faults := proof["faults"]:
        grid.add_row("ledger", Text(f"{len(faults)} faults: {', '.join(faults[:5])}", style="bold red"))
    else:
        grid.add_row(
            "ledger",
            f"verified: {proof['transactions']} transactions, {proof['models']} models, "
            f"{proof['aggregates']} averages recomputed",
        )
    if network is not None:
        _add_network(grid, network)
    grid.add_row("time", f"{figures['elapsed_s']:.1f} s")
    return grid


def _add_judged_clusters(grid: Table, clusters: Mapping[str, Any]) -> None:
    total, misplaced = sum(clusters["found"]), clusters["misplaced"]
    placed = f"{misplaced} of {total} clients misplaced" if misplaced else f"all {total} clients in the right one"
    sizes = " + ".join(map(str, clusters["found"]))
    grid.add_row("clusters", f"{len(clusters['found'])} found by Louvain ({sizes}), {clusters['true']} true; {placed}")
    most = 1 - 1 / clusters["true"]
    grid.add_row(
        "modularity",
        f"{clusters['modularity']:.3f} (Eq. 6; at most {most:.2f} with {clusters['true']} equal clusters)",
    )
    rate = clusters["satisfaction"]
    taken = "nobody was offered any" if rate is None else f"{rate:.1%} were taken"
    grid.add_row(
        "satisfaction",
        f"of the own cluster's models on offer {taken} (mr, Eq. 7); "
        f"{clusters['foreign_approvals']:.1%} of approvals went to another cluster",
    )


def _add_network(grid: Table, network: Mapping[str, Any]) -> None:
    grid.add_row(
        "servers",
        f"{' + '.join(map(str, network['updates']))} updates; all {len(network['updates'])} ledgers equal "
        f"(tips {network['digest'][:12]}…), {network['equal_after_s']:.2f} s after the last client",
    )
    if (seen := network["visibility"]) is not None:
        grid.add_row(
            "visible elsewhere",
            f"after {seen['median_s'] * 1000:.0f} ms (median), {seen['p95_s'] * 1000:.0f} ms (p95), "
            f"of {seen['pairs']} arrivals on other servers",
        )
    over = network["peer_bytes"] / network["equation_8"] - 1
    grid.add_row(
        "server to server",
        f"{network['peer_bytes']:,.0f} bytes per update and receiver; model + header are "
        f"{network['equation_8']:,.0f}, evidence and HTTP add {over:.0%}",
    )
    times = "once" if network["switches"] == 1 else f"{network['switches']} times"
    grid.add_row("roaming", f"clients switched servers {times}; nobody lost its place")
    if network["killed"] is not None:
        grid.add_row("chaos", f"server {network['killed'] + 1} was killed (kill -9), came back, and holds everything")


def next_steps(
    folder: Path,
    *,
    file: Path | None,
    settings: Mapping[str, JsonScalar],
    epochs: int,
    urls: Sequence[str],
    authors: Mapping[str, int],
) -> Group:
    """Where the files are and what to do now; the console names sites by their keys, so which is whose."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(style="dim")
    for name, what in (
        ("curves.png", "every site's curve, and the baselines"),
        ("dag.png", "who learnt from whom"),
        ("metrics.csv", "every update of every site"),
        ("summary.json", "the figures above"),
        ("ledger.dagacfl", "the whole ledger"),
    ):
        grid.add_row(f"  {folder / name}", what)
    bundle = shlex.quote(str(folder / "ledger.dagacfl"))
    now = f"\nSee the ledger in the browser:\n  dag-acfl ledger view {bundle}"
    now += f"\nCheck the ledger:\n  dag-acfl ledger verify {bundle}"
    steps = Text()
    if urls:
        steps.append(
            f"\nSee who learnt from whom, and why: {urls[0]}/ui/ (still served; Ctrl-C to stop)\n", style="bold"
        )
    if file is None:
        now += "\nYour own model:\n  dag-acfl client init my_client.py\n  dag-acfl try my_client.py --sites 4"
    else:
        said = set_options(settings)
        hint = [] if epochs == DEFAULT_EPOCHS else ["--hint", f"epochs={epochs}"]
        found = shlex.join(["dag-acfl", "ledger", "init", "--name", "pilot", "--client", str(file), *said, *hint])
        run = shlex.join(["dag-acfl", "client", "run", str(file), *set_options({SITE: 0, **settings})])
        now += f"\nFor real:\n  {found}\n  dag-acfl serve\n  {run}   # at each other site its own number"
    if authors:
        named = ", ".join(f"{site} is {author[:12]}" for author, site in sorted(authors.items(), key=lambda of: of[1]))
        steps.append(f"\nSites there: {named}\n")
    steps.append(as_called(now))
    return Group(Text("files", style="bold"), grid, steps)
