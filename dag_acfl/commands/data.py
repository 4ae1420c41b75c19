"""``dag-acfl data``: the data sets of the experiments, in one cache folder."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Fetch and check data sets (MNIST, Fashion-MNIST, CIFAR-10). The demo's digits come along.",
    no_args_is_help=True,
)

Folder = Annotated[
    Path | None,
    typer.Option("--folder", help="Data folder. Default: $DAG_ACFL_DATA, or ~/.cache/dag-acfl/data."),
]
Name = Annotated[str, typer.Argument(help="Name of a data set; see: dag-acfl data list.")]


@app.command("list", epilog="Example: dag-acfl data list")
def list_(folder: Folder = None) -> None:
    """Show the data sets and whether they are here."""
    from fl_simulator.data import DATA_SETS, data_folder, is_available  # noqa: PLC0415

    typer.echo(f"data folder: {folder or data_folder()}")
    for name, data_set in DATA_SETS.items():
        size = sum(file.size_bytes for file in data_set.files) / 1e6
        here = "here" if is_available(name, folder=folder) else f"get it with: dag-acfl data fetch {name}"
        typer.echo(f"  {name:<14} {size:6.1f} MB  {here:<40}  {data_set.title}")
    typer.echo(f"  {'digits':<14} {0.06:6.1f} MB  {'comes with the package':<40}  1,797 digits, 8 x 8: the demo's")


@app.command(epilog="Example: dag-acfl data fetch mnist")
def fetch(name: Name, folder: Folder = None) -> None:
    """Download a data set from its usual hosts; every file's SHA-256 is checked."""
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        DownloadColumn,
        Progress,
        TaskID,
        TextColumn,
        TransferSpeedColumn,
    )

    from fl_simulator.data import fetch  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        tasks: dict[str, TaskID] = {}

        def show(file: str, received: int, total: int) -> None:
            if file not in tasks:
                tasks[file] = bars.add_task(file)
            bars.update(tasks[file], completed=received, total=total or None)

        where = fetch(name, folder=folder, progress=show)
    typer.echo(f"{name} is in {where}")


@app.command(epilog="Example: dag-acfl data verify mnist")
def verify(name: Name, folder: Folder = None) -> None:
    """Hash a data set's files and compare them with what their authors published."""
    from fl_simulator.data import verify  # noqa: PLC0415

    statuses = verify(name, folder=folder)
    for status in statuses:
        typer.echo(f"  {status.state:<8} {status.path}")
    if any(status.state != "ok" for status in statuses):
        typer.echo(f"mend it with: dag-acfl data fetch {name}", err=True)
        raise typer.Exit(1)
