"""``dag-acfl trust alarms``: what a server finds odd about updates."""

import json
from typing import Annotated

import typer

from dag_acfl.commands.options import DEFAULT_SERVER, STATUS_TIMEOUT_S, TokenFile, figure, token_of


def alarms(
    server: Annotated[str, typer.Argument(help="The server that is asked; each has its own alarms.")] = DEFAULT_SERVER,
    *,
    token_file: TokenFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what a server finds odd: copies, zero models, steps that stand out, averages that help nobody.

    An alarm says where to look; nothing follows from it by itself. Exit code 0, whatever is found.

    Example: dag-acfl trust alarms http://127.0.0.1:8900
    """
    from fl_client.reader import LedgerReader  # noqa: PLC0415
    from ledger_server.logs import escape  # noqa: PLC0415

    with LedgerReader([server], timeout=STATUS_TIMEOUT_S, token=token_of(token_file)) as reader:
        found = reader.alarms()
    if as_json:
        typer.echo(json.dumps([each.model_dump() for each in found.items], indent=2))
        return
    for each in found.items:
        is_measured = each.value != each.bound
        beyond = f"{figure(each.value)}, odd beyond {figure(each.bound)}; " * is_measured
        times = "once" if each.count == 1 else f"{each.count} times"
        said = f"{escape(each.kind):<12} {each.author[:20]}…  {times}, last in {each.update[:12]}…: {beyond}"
        typer.echo(f"{said}{escape(each.detail)}")
    if not found.items:
        typer.echo("nothing is odd")
