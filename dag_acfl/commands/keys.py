"""``dag-acfl keys``: make an Ed25519 key, show its public half."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Make and show signing keys (Ed25519).", no_args_is_help=True)


@app.command(epilog="Example: dag-acfl keys generate site-7/client-key.pem")
def generate(
    path: Annotated[Path, typer.Argument(help="PEM file to make; an existing one is never overwritten.")],
) -> None:
    """Make a private key, readable by you only, and print its public half."""
    from ledger_server.keys import create_key  # noqa: PLC0415

    create_key(path)
    show(path)


@app.command(epilog="Example: dag-acfl keys show dag-acfl-data/server-key.pem")
def show(path: Annotated[Path, typer.Argument(help="PEM file with a private key.")]) -> None:
    """Print a key's public half, and the author id under which its owner publishes."""
    from fl_core.dag.signature import public_key_of  # noqa: PLC0415
    from fl_core.dag.transaction import AuthorKind  # noqa: PLC0415
    from ledger_server.keys import load_key  # noqa: PLC0415

    public = public_key_of(load_key(path))
    typer.echo(f"public key  {public}")
    typer.echo(f"author id   {AuthorKind.ED25519.author(public)}")
