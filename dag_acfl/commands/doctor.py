"""``dag-acfl doctor``: what would keep a server or a client from working here, one line each with its fix."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dag_acfl.commands.options import DataDir, settings_for

if TYPE_CHECKING:
    from ledger_server.admin import doctor as health
    from ledger_server.settings import Settings

_COLOURS = {"ok": "green", "note": "yellow", "fail": "red"}


def doctor(
    *,
    data_dir: DataDir = None,
    port: Annotated[int | None, typer.Option(help="Port that the server is to use. Default: 8900.")] = None,
    server: Annotated[
        str | None, typer.Option(help="URL of a running server: whether it is ready, what it runs, and its clock.")
    ] = None,
) -> None:
    """Check this machine: packages, folders, port, access, disk, clock, database, bucket, keys, torch.

    Exit code 1 when something must be mended first.

    Example: dag-acfl doctor --server http://127.0.0.1:8900
    """
    from ledger_server.admin import doctor as health  # noqa: PLC0415

    settings = settings_for(data_dir)
    checks: list[Callable[[], health.Check]] = [
        health.check_python,
        health.check_packages,
        check_torch,
        lambda: health.check_folder(settings.data_dir),
        lambda: health.check_disk(settings.data_dir),
        lambda: health.check_port(settings.host, settings.port if port is None else port, server=server),
        lambda: health.check_access(settings),
        lambda: health.check_database(settings),
        lambda: health.check_bucket(settings),
        lambda: health.check_keys(_keys(settings)),
        lambda: health.check_server(server),
    ]
    failed = 0
    for check in checks:
        result = check()
        failed += result.state == "fail"
        typer.secho(f"{result.state:<5}", fg=_COLOURS[result.state], bold=True, nl=False)
        typer.echo(f"{result.name:<10} {result.message}" + (f"; {result.fix}" if result.fix else ""))
    if failed:
        raise typer.Exit(1)


def _keys(settings: "Settings") -> list[Path]:
    return [*sorted(settings.data_dir.glob("*.pem")), *([settings.server_key] if settings.server_key else [])]


def check_torch() -> "health.Check":
    """torch, which only training needs, and how many threads it would take."""
    from ledger_server.admin import doctor as health  # noqa: PLC0415

    try:
        import torch  # noqa: PLC0415 (a second and a half that only this line costs)
    except ImportError:
        return health.Check("torch", "note", "not installed, so nothing can be trained here", "run: pip install torch")
    threads, cores = torch.get_num_threads(), os.cpu_count() or 1
    message = f"{torch.__version__}, {threads} thread{'s' * (threads != 1)} on {cores} cores"
    if threads > cores:
        return health.Check("torch", "note", message, f"set OMP_NUM_THREADS={cores} or less")
    return health.Check("torch", "ok", message)
