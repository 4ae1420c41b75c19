"""``dag-acfl trust report``, ``heal`` and ``taint``: what is withheld, whose it is, and what would be."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dag_acfl.commands.options import STATUS_TIMEOUT_S, DataDir, TokenFile, number_of, token_of
from dag_acfl.commands.trust.subjects import Subject, opened, suspects_of
from fl_core.errors import ParameterError

if TYPE_CHECKING:
    from fl_core.wire.v1 import QuarantineOut

Target = Annotated[
    str | None,
    typer.Argument(help="A live server (http://…), or a server's data folder. Default: the one that is served here."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def report(
    target: Target = None, *, data_dir: DataDir = None, token_file: TokenFile = None, as_json: AsJson = False
) -> None:
    """Show what is quarantined and why, how much descends from it, and which clients that affects.

    Example: dag-acfl trust report http://127.0.0.1:8900
    """
    from ledger_server.logs import escape  # noqa: PLC0415

    found = _quarantine(target, data_dir, token_file)
    if as_json:
        typer.echo(found.model_dump_json(indent=2))
        return
    for each in found.decisions:
        verb = {"quarantine": "quarantine", "erase": "erasure"}[each.kind]
        typer.echo(f"{verb} {each.act[:8]}  {each.reach:<10}  {each.subject}  {escape(each.reason)}")
        if each.reach in ("proposed", "here"):
            typer.echo(f"  waits for other members: dag-acfl members sign {each.act[:8]}")
    if not found.decisions:
        typer.echo("nothing is quarantined or erased")
        return
    typer.echo(
        f"of {number_of(found.transactions, 'transaction')}, {found.descendants:,} have quarantined steps in their "
        f"models, and {found.withheld:,} are offered to nobody (beyond a share of {found.max_taint:g}, or by name)"
    )
    _table(
        ("client", "state", "taint", "withheld", "goes on from"),
        [(c.author, c.state, f"{c.taint:.3f}", f"{c.withheld:,}", _from(c.clean)) for c in found.clients],
    )


def heal(
    target: Target = None, *, data_dir: DataDir = None, token_file: TokenFile = None, as_json: AsJson = False
) -> None:
    """Show how far clients are from clean models. Selections lead them back by themselves; nothing has to be done.

    A client whose newest update is withheld is answered with its last clean one (or genesis) and clean models of
    others, when it asks next. What remains is to wait until each has published once more, or to tell who has not.

    Example: dag-acfl trust heal http://127.0.0.1:8900
    """
    clients = [
        each for each in _quarantine(target, data_dir, token_file).clients if each.state in ("led back", "healed")
    ]
    if as_json:
        typer.echo(json.dumps([each.model_dump() for each in clients], indent=2))
        return
    healed = sum(each.state == "healed" for each in clients)
    typer.echo(f"{number_of(len(clients), 'client')} affected; {healed} healed, {len(clients) - healed} not yet")
    waiting = [each for each in clients if each.state == "led back"]
    _table(
        ("client", "newest", "taint", "its next selection begins from"),
        [(each.author, each.newest[:16], f"{each.taint:.3f}", _from(each.clean)) for each in waiting],
    )


def taint(subject: Subject, *, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Show what descends from an author's updates or from one of them: what a quarantine would withhold.

    Reads a server's data folder, beside the running server; changes nothing. The taint of an update is the share of its
    model that descends from those steps: exact for means, an estimate for other averages.

    Example: dag-acfl trust taint key:5f0c1e77
    """
    from fl_core.trust.report import descents  # noqa: PLC0415

    with opened(data_dir) as view:
        suspects = suspects_of(view, subject)
        suspects = replace(suspects, authors=view.node.graph.author_list.all_names(suspects.authors))
        bound = view.genesis.bounds.max_taint
        found = list(descents(view.node.graph, suspects, max_taint=bound))
    if as_json:
        rows = [asdict(each) for each in found]
        typer.echo(json.dumps({"max_taint": bound, "authors": rows}, indent=2))
        return
    total = sum(each.descendants for each in found)
    typer.echo(f"{number_of(total, 'update')} of {number_of(len(found), 'author')} have these steps in their models")
    _table(
        ("author", "updates", f"beyond {bound:g}", "taint of newest", "last clean"),
        [
            (each.author, f"{each.descendants:,}", f"{each.beyond:,}", f"{each.taint:.3f}", _from(each.clean))
            for each in found
        ],
    )


def _quarantine(target: str | None, data_dir: Path | None, token_file: Path | None) -> "QuarantineOut":
    if target is not None and data_dir is not None:
        raise ParameterError(f"both {target[:80]} and --data-dir are named: name the one to read")
    if target is not None and target.startswith(("http://", "https://")):
        from fl_client.reader import LedgerReader  # noqa: PLC0415

        with LedgerReader(target, timeout=STATUS_TIMEOUT_S, token=token_of(token_file)) as reader:
            return reader.quarantine()
    from ledger_server.api.serializers import quarantine_out  # noqa: PLC0415

    with opened(data_dir if target is None else Path(target)) as view:
        return quarantine_out(view)


def _from(clean: str | None) -> str:
    return "genesis" if clean is None else f"update {clean[:16]}"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Columns as wide as what stands in them."""
    if not rows:
        return
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        typer.echo("  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
