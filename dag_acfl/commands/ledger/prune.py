"""``dag-acfl ledger prune``: give the space of old models back."""

import json
import time
from dataclasses import asdict
from typing import Annotated

import typer

from dag_acfl.commands.options import DataDir, number_of, progress_bar, settings_of_ledger
from fl_core.errors import ParameterError


def prune(
    *,
    keep_days: Annotated[
        float, typer.Option(help="Keep all models received in the last so many days of ledger time.", min=0)
    ],
    data_dir: DataDir = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    compact: Annotated[
        bool,
        typer.Option(
            "--compact", help="Also rewrite the database, so that its file shrinks; publications wait meanwhile."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Drop models that nobody can be offered any more; headers, signatures and evidence stay, and so does the proof.

    Kept are genesis, each author's newest inside the freshness window, and what was received lately. What is dropped
    is gone for good: take a backup, or export, first. The server may go on serving meanwhile; it prunes by itself with
    the setting prune.keep_days. Interrupted: run it again.

    Example: dag-acfl ledger prune --keep-days 7 --dry-run
    """
    from ledger_server.pruning import DAY_MS, snapshot_of  # noqa: PLC0415
    from ledger_server.pruning import prune as drop  # noqa: PLC0415
    from ledger_server.store import open_store_of  # noqa: PLC0415

    if compact and dry_run:
        raise ParameterError("--compact changes the database, --dry-run nothing; choose one of them")
    with open_store_of(settings_of_ledger(data_dir)) as store:
        before = store.storage_bytes()
        snapshot = snapshot_of(store, keep_ms=int(keep_days * DAY_MS))
        with progress_bar("looking" if dry_run else "pruning", quiet=as_json) as show:
            report = drop(store, snapshot, now_ms=lambda: time.time_ns() // 1_000_000, dry_run=dry_run, progress=show)
        if compact:
            store.database.compact()
        elif not dry_run:
            store.database.shorten_log()
        after, reusable = store.storage_bytes(), store.database.reusable_bytes()
    if as_json:
        counts = {name: count for name, count in asdict(report).items() if name not in ("is_whole", "after")}
        content = {**counts, "dry_run": dry_run, "storage_bytes_before": before, "storage_bytes": after}
        typer.echo(json.dumps({**content, "reusable_bytes": reusable}, indent=2))
        return
    went = "would go" if dry_run else "pruned"
    gone, left = number_of(report.models, "model"), number_of(report.held, "model")
    typer.echo(f"{gone}, {report.nbytes:,} bytes {went}; {left} left")
    typer.echo(f"  transactions  {report.transactions:,}, of which {report.kept:,} keep their model by the rule")
    if not dry_run:
        typer.echo(f"  storage       {before:,} bytes before, {after:,} now")
        if reusable and reusable > after // 10 and not compact:
            typer.echo(f"  of them       {reusable:,} free for new models; --compact gives them back to the disk")
