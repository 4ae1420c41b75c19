"""``dag-acfl keys``: make an Ed25519 key, show its public half."""

from pathlib import Path
from typing import Annotated

import typer

from dag_acfl.commands.options import settings_for
from fl_core.errors import ParameterError

app = typer.Typer(
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
def peer(
    url: Annotated[
        str | None, typer.Argument(help="Address under which other servers reach this one. Default: host and port.")
    ] = None,
    *,
    name: Annotated[str | None, typer.Option(help="Name among its peers. Default: that of the data folder.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Data folder of the server. Default: ./dag-acfl-data.")] = None,
) -> None:
    """Print a server's public key as an entry for its peers' setting `peers`; makes the key if there is none yet.

    Every server of a ledger may be given the same list: each passes over its own entry.

    Example: dag-acfl keys peer https://ledger.hospital-b.example --name hospital-b --data-dir site-b
    """
    from fl_core.dag.signature import public_key_of  # noqa: PLC0415
    from ledger_server.keys import server_key  # noqa: PLC0415
    from ledger_server.peers import parse_peer  # noqa: PLC0415

    settings = settings_for(data_dir, None)
    if url is None:
        if settings.host in ("0.0.0.0", "::"):  # noqa: S104 (compared, not listened on)
            raise ParameterError("this server listens on all addresses; name the URL under which others reach it")
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        url = f"{'http' if settings.tls.certificate is None else 'https'}://{host}:{settings.port}"
    key = public_key_of(server_key(settings))
    typer.echo(parse_peer(f"{name or settings.data_dir.resolve().name.lower()}={url}#{key}"))
