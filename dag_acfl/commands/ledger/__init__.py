"""``dag-acfl ledger``: make a ledger, look at one, prove one, take one along."""

import typer

from dag_acfl.commands.ledger.archive import archive
from dag_acfl.commands.ledger.copying import backup, import_, restore
from dag_acfl.commands.ledger.init import init, join
from dag_acfl.commands.ledger.prune import prune
from dag_acfl.commands.ledger.read import export, inspect, verify
from dag_acfl.commands.ledger.view import view
from dag_acfl.commands.models import export_model

app: typer.Typer = typer.Typer(
    help="Make, join, inspect, view, verify, export, import, prune, archive, back up and restore ledgers.",
    epilog="Example: dag-acfl ledger verify pilot.dagacfl",
    no_args_is_help=True,
)
for command in (init, join, inspect, view, verify, export, export_model, prune, archive, backup, restore, import_):
    app.command(command.__name__.strip("_").replace("_", "-"))(command)
