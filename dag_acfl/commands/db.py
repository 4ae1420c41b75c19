"""``dag-acfl db``: the database's schema."""

import typer

from dag_acfl.commands.options import DataDir, settings_for, settings_of_ledger

app: typer.Typer = typer.Typer(
    help="Look after a server's database.", epilog="Example: dag-acfl db upgrade", no_args_is_help=True
)


@app.command()
def upgrade(*, data_dir: DataDir = None) -> None:
    """Bring the tables of DAG_ACFL_DATABASE_URL up to date with this release. SQLite does so by itself when served.

    Example: dag-acfl db upgrade
    """
    from ledger_server.store import schema  # noqa: PLC0415

    settings = settings_for(data_dir)
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    before = schema.current(settings.resolved_database_url)
    schema.upgrade(settings.resolved_database_url)
    after = schema.current(settings.resolved_database_url)
    typer.echo(f"revision {after}" + ("" if before == after else f" (was {before or 'empty'})"))


@app.command("renew-epoch")
def renew_epoch(*, data_dir: DataDir = None) -> None:
    """Say that a database was put back from a copy, before it is served. `dag-acfl ledger restore` does so by itself.

    Peers and readers keep positions in a server's order of arrival; a copy that was put back goes on otherwise than
    the one that they have read. They start again, and a peer does not take it for a server that lost its history.

    Example: dag-acfl db renew-epoch
    """
    from ledger_server.store import open_store_of  # noqa: PLC0415

    with open_store_of(settings_of_ledger(data_dir)) as store:
        typer.echo(f"epoch {store.renew_epoch()}")
