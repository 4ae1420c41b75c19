"""``dag-acfl keys``: make an Ed25519 key, show its public half."""

from pathlib import Path
from typing import Annotated

import typer

from dag_acfl.commands.options import DataDir, own_entry, settings_for, settings_of_ledger

app: typer.Typer = typer.Typer(
    help="Make and show signing keys (Ed25519).",
    epilog="Example: dag-acfl keys show dag-acfl-data/server-key.pem",
    no_args_is_help=True,
)


@app.command()
def generate(
    path: Annotated[Path, typer.Argument(help="PEM file to make; an existing one is never overwritten.")],
) -> None:
    """Make a private key, readable by you only, and print its public half.

    Example: dag-acfl keys generate site-7/client-key.pem
    """
    from ledger_server.keys import create_key  # noqa: PLC0415

    create_key(path)
    show(path)


@app.command()
def show(path: Annotated[Path, typer.Argument(help="PEM file with a private key.")]) -> None:
    """Print a key's public half, and the author id under which its owner publishes.

    Example: dag-acfl keys show dag-acfl-data/server-key.pem
    """
    from fl_core.dag.author import AuthorKind  # noqa: PLC0415
    from fl_core.dag.signature import public_key_of  # noqa: PLC0415
    from ledger_server.keys import load_key  # noqa: PLC0415

    public = public_key_of(load_key(path))
    typer.echo(f"public key  {public}")
    typer.echo(f"author id   {AuthorKind.ED25519.author(public)}")


@app.command()
def replace(*, data_dir: DataDir = None) -> None:
    """Serve a ledger with the key of its data folder from now on, and not with the one before; made if there is none.

    After `members rotate` it is not needed. Processes that serve it with the former key end; other members must know
    the new one: see `keys peer`.

    Example: dag-acfl keys replace --data-dir site-b
    """
    from fl_core.dag.signature import public_key_of  # noqa: PLC0415
    from ledger_server.keys import server_key  # noqa: PLC0415
    from ledger_server.store import open_store_of  # noqa: PLC0415

    settings = settings_of_ledger(data_dir)
    with open_store_of(settings) as store:
        own, former = public_key_of(server_key(settings)), store.server_key()
        while not store.set_server_key(own, former=former):
            former = store.server_key()
    typer.echo(f"public key  {own}" + (f", before {former}" if former not in (None, own) else ""))


@app.command()
def peer(
    url: Annotated[
        str | None,
        typer.Argument(
            help="Address under which others reach it. Default: as `ledger join --url` said, else host and port."
        ),
    ] = None,
    *,
    name: Annotated[str | None, typer.Option(help="Its name. Default: its host, or the data folder.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Data folder of the server. Default: ./dag-acfl-data.")] = None,
) -> None:
    """Print a server as `dag-acfl members add` and the setting `peers` take it; makes its key if there is none yet.

    Example: dag-acfl keys peer https://ledger.hospital-b.example --name hospital-b --data-dir site-b
    """
    typer.echo(own_entry(settings_for(data_dir), url=url, name=name))
