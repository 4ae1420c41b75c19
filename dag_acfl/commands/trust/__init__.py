"""``dag-acfl trust``: what is odd about a ledger's updates, and whose help."""

import typer

from dag_acfl.commands.trust.alarms import alarms

app: typer.Typer = typer.Typer(
    help="See what is odd about updates.",
    epilog="Example: dag-acfl trust alarms http://127.0.0.1:8900",
    no_args_is_help=True,
)


@app.callback()
def _group() -> None:
    pass


for command in (alarms,):
    app.command(command.__name__)(command)
