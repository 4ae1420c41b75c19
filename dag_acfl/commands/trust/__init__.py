"""``dag-acfl trust``: what is odd, whose models help, what descends from what, and what members do about it."""

import typer

from dag_acfl.commands.trust.alarms import alarms
from dag_acfl.commands.trust.contribution import contribution
from dag_acfl.commands.trust.decisions import erase, lift, quarantine
from dag_acfl.commands.trust.report import heal, report, taint

app: typer.Typer = typer.Typer(
    help="See what is odd about updates, whose models help, what descends from bad ones; quarantine, erase models.",
    epilog="Example: dag-acfl trust alarms http://127.0.0.1:8900",
    no_args_is_help=True,
)
for command in (alarms, contribution, report, taint, heal, quarantine, lift, erase):
    app.command(command.__name__)(command)
