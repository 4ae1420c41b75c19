"""``dag-acfl capacity``: what to run for so many clients, and what limits first."""

from importlib import resources
from typing import TYPE_CHECKING, Annotated

import typer

from dag_acfl.commands.options import duration_s, number_of
from fl_core.errors import ParameterError

if TYPE_CHECKING:
    from ledger_server.admin.sizing import Demand, Needs


def capacity(
    *,
    devices: Annotated[int, typer.Option(metavar="NUMBER", help="Clients that take part, each an author.")],
    model_mb: Annotated[float, typer.Option(metavar="MB", help="Size of a model; 1 MB is 10^6 bytes.")],
    every: Annotated[
        float,
        typer.Option(parser=duration_s, metavar="<duration>", help="A client's time from update to update: 90s, 10m."),
    ] = "1h",  # type: ignore[assignment] # typer parses it
    servers: Annotated[int, typer.Option(help="Servers of the ledger; each takes in every update.")] = 2,
    coding: Annotated[
        str, typer.Option(help="How models travel and rest: whole; exact, by steps; or rounded by clients.")
    ] = "whole",
    keep: Annotated[
        str, typer.Option(metavar="DAYS|all", help="Days of models that pruning leaves beside each author's newest.")
    ] = "7",
    clusters: Annotated[int, typer.Option(help="Kinds of clients that share with each other.")] = 1,
    client_mbit: Annotated[float, typer.Option(help="A client's line, Mbit/s, both ways.")] = 20.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print all figures as JSON, bytes and seconds.")] = False,
) -> None:
    """Work out what to run for so many clients, and what limits first: network, disk, memory, CPU, processes.

    It goes by costs that were measured (docs/capacity.md says on what): good for deciding, to within a half or so.

    Example: dag-acfl capacity --devices 10000 --every 1h --model-mb 1

    Example: dag-acfl capacity --devices 50 --every 10m --model-mb 13 --servers 3 --coding rounded --keep 30

    Example: dag-acfl capacity --devices 10000 --every 1m --model-mb 13 --clusters 100 --json
    """
    from ledger_server.admin import sizing  # noqa: PLC0415

    demand = sizing.Demand(
        devices=devices,
        every_s=every,
        model_bytes=model_mb * 1e6,
        servers=servers,
        coding=coding,  # type: ignore[arg-type] # it is checked
        keep_days=_days(keep),
        clusters=clusters,
        client_mbit=client_mbit,
    )
    measured = resources.files("ledger_server.admin").joinpath("measured_costs.json").read_text("utf-8")
    found = sizing.needs(demand, sizing.Costs.parse(measured))
    if as_json:
        import json  # noqa: PLC0415
        from dataclasses import asdict  # noqa: PLC0415

        typer.echo(json.dumps({"demand": asdict(demand), "needs": asdict(found)}, indent=2))
        return
    for name, text in rows(demand, found):
        typer.echo(f"{name:<22}{text}")
    for warning in found.warnings:
        typer.secho("note", fg="yellow", nl=False)
        typer.echo(f"{'':<18}{warning}")
    if not found.is_within_reach:
        typer.secho("out of reach", fg="red", bold=True, nl=False)
        typer.echo(f"{'':<10}{out_of_reach(demand, found)}")


def _days(text: str) -> float | None:
    if text == "all":
        return None
    try:
        return float(text)
    except ValueError:
        raise ParameterError(f"--keep is a number of days, or all; not {text!r}") from None


def rows(demand: "Demand", found: "Needs") -> list[tuple[str, str]]:
    """The table, by line; of each server unless it says otherwise."""
    each_s = found.from_clients_bytes_s, found.to_clients_bytes_s, found.from_peers_bytes_s, found.to_peers_bytes_s
    clients_in, clients_out, peers_in, peers_out = map(rate, each_s)
    client_bytes = found.client_up_bytes + found.client_down_bytes
    cores = sum(found.cores.values())
    of_which = ", ".join(f"{name} {each:.2g}" for name, each in found.cores.items() if each >= 0.05 * cores)
    stays = "all of them" if found.models_stay_bytes is None else size(found.models_stay_bytes)
    first = found.limits[0]
    processes = found.processes
    return [
        ("updates", f"{number(found.updates_per_s)} a second in all; averages of {number_of(found.averaged, 'model')}"),
        ("network of a client", f"{size(client_bytes)} an update, {rate(client_bytes / demand.every_s)} on average"),
        ("network of a server", f"clients {clients_in} in, {clients_out} out; peers {peers_in} in, {peers_out} out"),
        ("disk of a server", f"{size(found.disk_bytes_day)} a day; of models {stays} stay by policy"),
        ("  for good", f"{size(found.records_bytes_day)} a day of headers and evidence"),
        ("CPU of a server", f"{number(cores)} cores" + (f": {of_which}" if of_which else "")),
        ("processes", "more than a server can have" if processes is None else f"{processes} (serve --workers)"),
        ("memory", f"{size(found.memory_bytes)} for each process"),
        ("database", f"{found.database}; models in " + {"database": "its rows"}.get(found.models, f"a {found.models}")),
        ("connections", f"{number(found.connections)} at work at one time; what is idle comes beside them"),
        ("start", f"{found.start_cpu_s:.1f} s of CPU, whatever the ledger's age"),
        ("limits first", f"{first.name}, at {number(1 / first.share)} times this load"),
        ("  what helps", first.remedy),
    ]


def out_of_reach(demand: "Demand", found: "Needs") -> str:
    """Which bounds are broken, by how much, and how seldom updates would have to come."""
    broken = [limit for limit in found.limits if limit.share > 1]
    named = "; ".join(f"{limit.name}: it would take {number(limit.share)} times that" for limit in broken)
    slower = period(demand.every_s * broken[0].share)
    return f"{named}. More servers do not help: each takes in every update. An update each {slower} or so would fit."


def period(seconds: float) -> str:
    """As ``--every`` reads it: 90s, 10m, 2h."""
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length or seconds == length:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:.0f}s"


def number(value: float) -> str:
    """To two digits: 0.0031, 2.8, 170, 1,200."""
    rounded = float(f"{value:.2g}")
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:g}"


def size(value: float) -> str:
    """Bytes to two digits in decimal units."""
    for unit, least in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= least:
            return f"{number(value / least)} {unit}"
    return f"{number(value)} bytes"


def rate(bytes_s: float) -> str:
    """A mean rate as networks are sold."""
    bits = 8 * bytes_s
    for unit, least in (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if bits >= least:
            return f"{number(bits / least)} {unit}"
    return f"{number(bits)} bit/s"
