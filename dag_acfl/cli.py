"""The commands, assembled. Only typer is imported here; what a command needs it imports when it runs."""

import inspect
import re
from typing import Annotated

import typer

from dag_acfl.commands import (
    audit,
    authors,
    capacity,
    client,
    data,
    db,
    demo,
    doctor,
    flower,
    keys,
    ledger,
    members,
    serve,
    simulate,
    tokens,
    topology,
    trial,
    trust,
)

app: typer.Typer = typer.Typer(
    name="dag-acfl",
    help="Federated learning without a coordinator, without rounds, and without a preset number of clusters.",
    epilog="Begin with: dag-acfl demo",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 (typer calls it so)
    if wanted:
        from ledger_server.build import build  # noqa: PLC0415 (SQLAlchemy: half a second)

        typer.echo("dag-acfl {version} (commit {commit}, schema {schema})".format_map(build()))
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and stop.", callback=_show_version, is_eager=True),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show a traceback when a command fails (also: DAG_ACFL_DEBUG=1).")
    ] = False,
) -> None:
    del version, debug  # one has acted already, the other is read by the entry point


app.command("demo")(demo.demo)
app.command("try")(trial.try_)
app.command("serve")(serve.serve)
client.app.command("flower")(flower.flower)
app.add_typer(client.app, name="client")
app.add_typer(ledger.app, name="ledger")
app.add_typer(members.app, name="members")
app.add_typer(authors.app, name="authors")
app.add_typer(keys.app, name="keys")
app.add_typer(tokens.app, name="tokens")
app.add_typer(trust.app, name="trust")
app.add_typer(db.app, name="db")
app.add_typer(audit.app, name="audit")
app.command("simulate")(simulate.simulate)
app.command("topology")(topology.topology)
app.command("doctor")(doctor.doctor)
app.command("capacity")(capacity.capacity)
app.add_typer(data.app, name="data")


def _let_help_flow(group: typer.Typer) -> None:
    """Join each paragraph's lines: typer keeps the breaks of the source, and adds the terminal's."""
    for command in group.registered_commands:
        text = inspect.cleandoc((command.callback and command.callback.__doc__) or "")
        command.help = re.sub(r"(?<!\n)\n(?!\n)", " ", text)
    for inner in group.registered_groups:
        if inner.typer_instance is not None:
            _let_help_flow(inner.typer_instance)


_let_help_flow(app)
