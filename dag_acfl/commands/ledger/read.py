"""``dag-acfl ledger inspect``, ``verify`` and ``export``: what can be done with any ledger, wherever it is."""

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dag_acfl.commands.options import TokenFile, number_of, progress_bar, token_of

if TYPE_CHECKING:
    from fl_core.verify import Finding, LedgerSource, VerifyProgress

_AUTHORS_SHOWN = 10

Target = Annotated[
    str | None,
    typer.Argument(
        help="A bundle (*.dagacfl), a data folder, a database URL, or a live server (http://…). "
        "Default: the ledger that `dag-acfl serve` would serve here.",
    ),
]


def inspect(
    target: Target = None,
    *,
    token_file: TokenFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Summarise a ledger: rules, transactions, tips, sizes, clusters, and who shared with whom.

    Example: dag-acfl ledger inspect results/demo/ledger.dagacfl
    """
    from dag_acfl.sources import open_source  # noqa: PLC0415
    from dag_acfl.summary import print_summary, summarise  # noqa: PLC0415

    with open_source(target, token=token_of(token_file)) as source:
        summary = summarise(source)
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
    else:
        print_summary(summary)


def verify(
    target: Target = None,
    *,
    archive: Annotated[
        list[Path] | None,
        typer.Option(help="Where `ledger archive` has moved evidence of this ledger. Repeat for each file."),
    ] = None,
    token_file: TokenFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Prove a ledger: ids, signatures, parents, models, evidence, and every average recomputed.

    What was pruned is no fault: all but those models, and the averages made of them, is proven, and they are counted.
    So is the evidence that was archived, where no --archive holds it.
    Authors without a key are named: that they published what bears their id, only the servers say.

    Exit code 1 when a fault is found; warnings leave it 0.

    Example: dag-acfl ledger verify http://127.0.0.1:8900
    """
    from dag_acfl.sources import open_source  # noqa: PLC0415
    from ledger_server.admin.bundle import Bundle  # noqa: PLC0415

    with (
        open_source(target, token=token_of(token_file)) as source,
        ExitStack() as opened,
        progress_bar("verifying", quiet=as_json) as show,
    ):
        ledger = source.ledger
        archives = [opened.enter_context(Bundle(each)) for each in archive or ()]
        findings, done = verified(source, show, archives=archives)
    faults = [finding for finding in findings if not finding.kind.is_warning]
    vouched = sorted(done.vouched)
    if as_json:
        report = {
            "ledger": ledger,
            "sound": not faults,
            "transactions": done.checked,
            "models": done.models,
            "aggregates": done.aggregates,
            "pruned": done.pruned,
            "unprovable": done.unprovable,
            "acts": done.acts,
            "vouched": vouched,
            "vouched_models": done.vouched_models,
            "archived": done.archived,
            "findings": [
                {
                    "kind": finding.kind.value,
                    "warning": finding.kind.is_warning,
                    "transaction": finding.transaction,
                    "message": finding.message,
                }
                for finding in findings
            ],
        }
        typer.echo(json.dumps(report, indent=2))
    else:
        for finding in findings:
            print_finding(finding)
        if vouched:
            shown = ", ".join(vouched[:_AUTHORS_SHOWN]) + (", … (all: --json)" if len(vouched) > _AUTHORS_SHOWN else "")
            typer.secho("note: ", fg="yellow", nl=False)
            typer.echo(f"{len(vouched)} without a key, for whose updates only servers vouch: {shown}")
        counted = (done.checked, "transaction"), (done.models, "model"), (done.aggregates, "average")
        counts = ", ".join(number_of(number, noun) for number, noun in counted) + " recomputed"
        if done.acts:
            counts += f", {number_of(done.acts, 'act')} in effect"
        if done.pruned:
            counts += f", {number_of(done.pruned, 'model')} pruned"
            counts += f", {number_of(done.unprovable, 'average')} of pruned models not recomputed"
        if done.vouched_models:
            counts += f", {done.vouched_models} of those models on the word of a member's checkpoint"
        if done.archived:
            counts += f", evidence of {number_of(done.archived, 'selection')} in an archive that was not given"
        warnings = len(findings) - len(faults)
        noted = f", {number_of(warnings, 'warning')}" if warnings else ""
        if faults:
            typer.secho(f"{number_of(len(faults), 'fault')}{noted} in {counts}", fg="red", bold=True)
        else:
            typer.secho(f"sound: {counts}{noted}", fg="green", bold=True)
    if faults:
        raise typer.Exit(1)


def verified(
    source: "LedgerSource",
    show: "Callable[[int, int], None] | None" = None,
    *,
    archives: "Sequence[LedgerSource]" = (),
) -> "tuple[list[Finding], VerifyProgress]":
    """Everything that ``verify`` finds, and how much it proved; ``show`` is told how many are done, of how many."""
    from fl_core.verify import VerifyProgress, verify  # noqa: PLC0415

    last = VerifyProgress(0, 0, 0, 0)

    def keep(progress: VerifyProgress) -> None:
        nonlocal last
        last = progress
        if show is not None:
            show(progress.checked, progress.total)

    findings = list(verify(source, archives=archives, progress=keep))
    return findings, last


def print_finding(finding: "Finding") -> None:
    """One line of a fault or a warning."""
    word, colour = ("warning", "yellow") if finding.kind.is_warning else ("fault", "red")
    typer.secho(f"{word}: {finding.kind}", fg=colour, nl=False)
    typer.echo(f"  {finding.transaction or 'the ledger'}: {finding.message}")


def export(
    out: Annotated[Path, typer.Argument(help="File to write, by custom *.dagacfl.")],
    target: Target = None,
    *,
    token_file: TokenFile = None,
) -> None:
    """Write a whole ledger into one file that can be verified anywhere, offline.

    Example: dag-acfl ledger export pilot.dagacfl http://127.0.0.1:8900
    """
    from dag_acfl.sources import open_source  # noqa: PLC0415
    from ledger_server.admin.bundle import write_bundle  # noqa: PLC0415

    with (
        open_source(target, token=token_of(token_file)) as source,
        progress_bar("exporting") as show,
    ):
        count = write_bundle(source, out, progress=show)
    typer.echo(f"{number_of(count, 'transaction')}, {out.stat().st_size:,} bytes in {out}")
