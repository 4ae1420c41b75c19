"""``dag-acfl db``: the database's schema."""

import typer

from dag_acfl.commands.options import DatabaseUrl, DataDir, settings_for, settings_of_ledger

app = typer.Typer(help="Look after a server's database.", epilog="Example: dag-acfl db current", no_args_is_help=True)


@app.command()
def upgrade(*, data_dir: DataDir = None, database_url: DatabaseUrl = None) -> None:
    """Bring the tables up to date with this release. SQLite does so by itself when served.

    Example: dag-acfl db upgrade --database-url postgresql+psycopg://ledger@localhost/ledger
    """
    from ledger_server.store import schema  # noqa: PLC0415

    settings = settings_for(data_dir, database_url)
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    before = schema.current(settings.resolved_database_url)
    schema.upgrade(settings.resolved_database_url)
    after = schema.current(settings.resolved_database_url)
    typer.echo(f"revision {after}" + ("" if before == after else f" (was {before or 'empty'})"))


@app.command("renew-epoch")
def renew_epoch(*, data_dir: DataDir = None, database_url: DatabaseUrl = None) -> None:
    """Say that a database was put back from a copy, before it is served. `dag-acfl ledger restore` does so by itself.

    Peers and readers keep positions in a server's order of arrival; a copy that was put back goes on otherwise than
    the one that they have read. They start again, and a peer does not take it for a server that lost its history.

    Example: dag-acfl db renew-epoch --database-url postgresql+psycopg://ledger@localhost/ledger
    """
    from ledger_server.store import open_store_of  # noqa: PLC0415

    with open_store_of(settings_of_ledger(data_dir, database_url)) as store:
        typer.echo(f"epoch {store.renew_epoch()}")


@app.command()
def current(*, data_dir: DataDir = None, database_url: DatabaseUrl = None) -> None:
    """Show the revision of the tables, and the newest that this release knows.

    Exit code 1 when they differ.

    Example: dag-acfl db current
    """
    from ledger_server.store import schema  # noqa: PLC0415

    found, newest = schema.current(settings_for(data_dir, database_url).resolved_database_url), schema.head()
    typer.echo(f"revision {found or 'none'}, newest {newest}")
    if found != newest:
        typer.echo("bring it up to date with: dag-acfl db upgrade", err=True)
        raise typer.Exit(1)
