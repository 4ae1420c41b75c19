"""``dag-acfl ledger backup``, ``restore`` and ``import``: a server's ledger, copied and proven."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dag_acfl.commands.ledger.read import print_finding, verified
from dag_acfl.commands.options import DataDir, as_called, number_of, progress_bar, settings_for, settings_of_ledger

if TYPE_CHECKING:
    from fl_core.verify import LedgerSource
    from ledger_server.admin.backup import Check, Progress

Verify = Annotated[
    bool, typer.Option("--verify/--no-verify", help="Prove the copy, every average included, before it gets its name.")
]


def backup(
    target: Annotated[Path, typer.Argument(help="Folder to make; an existing one is never written over.")],
    *,
    data_dir: DataDir = None,
    verify: Verify = True,
    with_key: Annotated[
        bool, typer.Option("--with-key", help="Copy the server's private key too; keep such a backup as secret as it.")
    ] = False,
) -> None:
    """Copy a server's ledger while it serves: database, models, and a proof that the copy is sound.

    Models in a bucket (`blobs.s3_url`) are proven there and stay there; models in a directory become hard links where
    the backup lies on the same disk. For SQLite; PostgreSQL copies itself, and this command says how to call it.

    Example: dag-acfl ledger backup /backup/pilot-monday --data-dir site-a
    """
    from ledger_server.admin.backup import backup as copy  # noqa: PLC0415

    settings = settings_of_ledger(data_dir)
    with copying(verify=verify) as (show, check):
        made = copy(settings, target, with_key=with_key, check=check, progress=show)
    typer.echo(f"{number_of(made.transactions, 'transaction')} in {target}" + ("" if verify else ", not verified"))
    if made.missing:
        typer.secho(f"{made.missing} of {made.models} models are gone, as in the original", fg="red")
    if made.place == "s3":
        typer.echo(f"{made.models} models stay in {settings.blobs.s3}: keep its versions", err=True)
    typer.echo(as_called(f"put it back with: dag-acfl ledger restore {target} --data-dir FOLDER"), err=True)


def restore(
    source: Annotated[Path, typer.Argument(help="Folder that `dag-acfl ledger backup` made.")],
    *,
    data_dir: DataDir = None,
    verify: Verify = True,
) -> None:
    """Put a backup into a data folder that holds no ledger yet, proven before a server can see it.

    Example: dag-acfl ledger restore /backup/pilot-monday --data-dir site-a
    """
    from ledger_server.admin.backup import restore as copy  # noqa: PLC0415
    from ledger_server.keys import key_file  # noqa: PLC0415

    settings = settings_for(data_dir)
    with copying(verify=verify) as (show, check):
        made = copy(settings, source, check=check, progress=show)
    typer.echo(
        f"{number_of(made.transactions, 'transaction')} in {settings.data_dir}" + ("" if verify else ", not verified")
    )
    if not key_file(settings).exists():
        said = "the backup has no server key; make one that a member can add with: dag-acfl keys peer"
        typer.echo(as_called(said), err=True)


def import_(
    bundle: Annotated[Path, typer.Argument(help="A bundle (*.dagacfl), such as a Flower strategy's export() writes.")],
    *,
    data_dir: DataDir = None,
) -> None:
    """Take a whole ledger from a bundle to a server, proven first; what is here already stays.

    Where the founder's key lies beside the bundle (BUNDLE.key), it becomes the server's.

    Example: dag-acfl ledger import run.dagacfl --data-dir pilot
    """
    from ledger_server.admin.bundle import Bundle  # noqa: PLC0415
    from ledger_server.admin.importing import import_bundle  # noqa: PLC0415

    settings = settings_for(data_dir)
    with Bundle(bundle) as source, copying(verify=True) as (show, check):
        assert check is not None, "verify"
        check(source)
        done = import_bundle(source, settings, progress=show, now_ms=time.time_ns() // 1_000_000)
    typer.echo(f"{number_of(done.transactions, 'transaction')} of ledger {done.ledger} in {settings.data_dir}")
    where = "" if data_dir is None else f" --data-dir {data_dir}"
    if done.is_member:
        typer.echo(as_called(f"serve it with: dag-acfl serve{where}"))
    else:
        typer.echo(as_called(f"no member's key is here; a member can add this server: dag-acfl keys peer{where}"))


@contextmanager
def copying(*, verify: bool) -> "Iterator[tuple[Progress, Check | None]]":
    """What a copy is to tell its progress to, and the proof that it must pass; None where it need not."""
    from ledger_server.admin.backup import BackupError  # noqa: PLC0415

    with progress_bar() as show:

        def check(source: "LedgerSource") -> None:
            findings, done = verified(source, lambda checked, total: show(checked, total, "verifying"))
            faults = [finding for finding in findings if not finding.kind.is_warning]
            for finding in faults:
                print_finding(finding)
            if faults:
                raise BackupError(
                    f"the ledger has {number_of(len(faults), 'fault')}, so the copy gets no name; "
                    "with --no-verify it does, as it is"
                )
            typer.secho(
                f"sound: {number_of(done.models, 'model')}, {number_of(done.aggregates, 'average')} recomputed",
                fg="green",
            )

        yield lambda doing, done, whole: show(done, whole, doing), check if verify else None
