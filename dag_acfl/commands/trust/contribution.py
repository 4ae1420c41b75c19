"""``dag-acfl trust contribution``: whose models helped others, as those others have measured."""

import json
import math
from dataclasses import asdict
from typing import Annotated

import typer

from dag_acfl.commands.ledger.read import Target
from dag_acfl.commands.options import TokenFile, number_of, token_of


def contribution(
    target: Target = None,
    *,
    token_file: TokenFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show each author's contribution: what leaving its models out of averages would have cost those who averaged them.

    Askers measure it on their own test data and publish it with their updates. 0.010 is a loss one per cent higher
    without the author's model; below 0 averages were better without it.

    Example: dag-acfl trust contribution http://127.0.0.1:8900
    """
    from dag_acfl.sources import open_source  # noqa: PLC0415
    from fl_core.dag.transaction import Kind, decode_header  # noqa: PLC0415
    from fl_core.trust.contribution import contributions_of  # noqa: PLC0415

    with open_source(target, token=token_of(token_file)) as source:
        every = {each.id: decode_header(each.header_bytes) for _, each in source.transactions()}
    updates = {identity: header for identity, header in every.items() if header.kind is Kind.UPDATE}
    rows = contributions_of(updates.values(), lambda update: updates[update].author if update in updates else None)
    if as_json:
        typer.echo(json.dumps([_finite(asdict(row)) for row in rows], indent=2))
        return
    for row in rows:
        error = "" if math.isnan(row.error) else f" ± {row.error:.3f}"
        by = f"{number_of(row.measurements, 'measurement')} by {number_of(row.askers, 'asker')}"
        typer.echo(f"{row.author[:20]}…  {row.mean:+.3f}{error}  {by}")
    if not rows:
        typer.echo(
            "nobody has measured anything yet: clients do at every tenth update (client run --contribution-every)"
        )


def _finite(row: dict[str, object]) -> dict[str, object]:
    """The row as JSON can say it: no error where one asker measured."""
    return {name: None if value != value else value for name, value in row.items()}  # noqa: PLR0124 (NaN)
