"""``dag-acfl ledger archive``: move old evidence out of the database."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from dag_acfl.commands.options import DataDir, as_called, now_ms, number_of, progress_bar, settings_of_ledger
from fl_core.errors import ParameterError


def archive(
    out: Annotated[Path, typer.Argument(help="File to write, by custom *.dagacfl; an unfinished one is finished.")],
    *,
    keep_days: Annotated[
        float, typer.Option(help="Keep the evidence of what this server stored in the last so many days.", min=0)
    ],
    data_dir: DataDir = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go; OUT is not written.")] = False,
    compact: Annotated[
        bool,
        typer.Option(
            "--compact", help="Also rewrite the database, so that its file shrinks; publications wait meanwhile."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Move the evidence of old selections to a bundle, proven first; headers, signatures and models stay.

    What pruning leaves is mostly evidence. The bundle holds all headers up to then, so `ledger verify` takes it by
    itself, and beside the ledger with --archive. Keep it as long as you want to prove the past: no server has that
    evidence any more, unless a peer kept its own. The server may go on serving meanwhile. Interrupted: run it again.

    Example: dag-acfl ledger archive /archive/pilot-2026.dagacfl --keep-days 90
    """
    from ledger_server.admin.archive import archive as move  # noqa: PLC0415
    from ledger_server.admin.archive import measure  # noqa: PLC0415
    from ledger_server.pruning import DAY_MS  # noqa: PLC0415
    from ledger_server.store import open_store_of  # noqa: PLC0415

    if compact and dry_run:
        raise ParameterError("--compact changes the database, --dry-run nothing; choose one of them")
    before_ms = now_ms() - int(keep_days * DAY_MS)
    with open_store_of(settings_of_ledger(data_dir)) as store:
        before = store.storage_bytes()
        with progress_bar(quiet=as_json) as show:
            if dry_run:
                report = measure(store, before_ms=before_ms)
            else:
                report = move(store, out, before_ms=before_ms, progress=lambda what, at, of: show(at, of, what))
        if compact:
            store.database.compact()
        elif not dry_run:
            store.database.shorten_log()
        after, reusable = store.storage_bytes(), store.database.reusable_bytes()
    written = out.stat().st_size if not dry_run else None
    if as_json:
        content = {**asdict(report), "dry_run": dry_run, "archive_bytes": written, "storage_bytes_before": before}
        typer.echo(json.dumps({**content, "storage_bytes": after, "reusable_bytes": reusable}, indent=2))
        return
    went = "would go" if dry_run else "archived"
    typer.echo(f"evidence of {number_of(report.evidence, 'selection')}, {report.nbytes:,} bytes {went}")
    typer.echo(f"  transactions  {report.transactions:,}, genesis included, up to the last that is older")
    if dry_run:
        return
    typer.echo(f"  archive       {written:,} bytes in {out}")
    typer.echo(f"  storage       {before:,} bytes before, {after:,} now")
    if reusable and reusable > after // 10 and not compact:
        typer.echo(f"  of them       {reusable:,} free for what is new; --compact gives them back to the disk")
    where = "" if data_dir is None else f" {data_dir}"
    typer.echo(as_called(f"prove the whole with: dag-acfl ledger verify{where} --archive {out}"), err=True)
