"""``dag-acfl data``: the data sets of the experiments, in one cache folder."""

from typing import Annotated

import typer

from dag_acfl.commands.options import as_called, progress_bar

app: typer.Typer = typer.Typer(
    help="Fetch and check data sets: mnist, fashion-mnist, cifar-10, emnist-letters. The demo's digits come along.",
    epilog="Example: dag-acfl data fetch mnist",
    no_args_is_help=True,
)


@app.command("list")
def list_() -> None:
    """Show the data sets and whether they are in the data folder: DAG_ACFL_DATA, else ~/.cache/dag-acfl/data.

    Example: dag-acfl data list
    """
    from fl_simulator.data.catalogue import DATA_SETS  # noqa: PLC0415
    from fl_simulator.data.fetch import data_folder, is_available  # noqa: PLC0415

    typer.echo(f"data folder: {data_folder()}")
    for name, data_set in DATA_SETS.items():
        size = sum(file.size_bytes for file in data_set.files) / 1e6
        here = "here" if is_available(name) else as_called(f"get it with: dag-acfl data fetch {name}")
        typer.echo(f"  {name:<14} {size:6.1f} MB  {here:<40}  {data_set.title}")
    typer.echo(f"  {'digits':<14} {0.06:6.1f} MB  {'comes with the package':<40}  1,797 digits, 8 x 8: the demo's")


@app.command()
def fetch(name: Annotated[str, typer.Argument(help="Name of a data set; see: dag-acfl data list.")]) -> None:
    """Download a data set from its usual hosts; every file's SHA-256 is checked, of those that are here too.

    Example: dag-acfl data fetch mnist
    """
    from fl_simulator.data.fetch import fetch  # noqa: PLC0415

    with progress_bar(name) as show:
        where = fetch(name, progress=lambda file, received, total: show(received, total or None, file))
    typer.echo(f"{name} is in {where}")
