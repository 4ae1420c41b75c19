"""``dag-acfl client``: write a client's file, run it, see where it stands."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dag_acfl.commands.options import Token, TokenFile, retries_shown, scalars, token_of
from fl_core.errors import ParameterError

if TYPE_CHECKING:
    from fl_client.participant import StepReport

app = typer.Typer(
    help="Take part in a ledger with your own model and data.",
    epilog="Example: dag-acfl client init my_client.py",
    no_args_is_help=True,
)

DEFAULT_SERVER = "http://127.0.0.1:8900"
_STATE_SUFFIX = "-state"


@app.command()
def init(
    path: Annotated[Path, typer.Argument(help="File to write; an existing one is never overwritten.")] = Path(
        "my_client.py"
    ),
) -> None:
    """Write a client's file: a model, data, and a function trainer() that joins them.

    Example: dag-acfl client init my_client.py
    """
    from fl_client.scaffold import client_source  # noqa: PLC0415

    if path.suffix != ".py":
        raise ParameterError(f"{path}: the file's name must end in .py")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(client_source(path.name))
    except FileExistsError:
        raise ParameterError(f"{path} exists; choose another name") from None
    typer.echo(f"{path} is written; it trains on digits until you bring your own data")
    typer.echo(f"a ledger for its model:  dag-acfl ledger init --name pilot --client {path}")
    typer.echo("serve it:                dag-acfl serve")
    typer.echo(f"take part:               dag-acfl client run {path}")


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="The client's Python file (see: dag-acfl client init).")],
    *,
    server: Annotated[
        list[str] | None,
        typer.Option(help=f"Ledger server; repeat for more, the first that works is used. Default: {DEFAULT_SERVER}."),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(help="Folder for the key and the last transaction. Default: beside FILE, FILE-state."),
    ] = None,
    transactions: Annotated[
        int | None, typer.Option(min=1, help="Publish so many times. Default: until Ctrl-C.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Local epochs E. Default: the ledger's hint.")] = None,
    initial_epochs: Annotated[
        int | None, typer.Option(min=1, help="Epochs E′ before joining. Default: the ledger's hint.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Argument for trainer(), such as site=3. Repeatable.")
    ] = None,
    patience_s: Annotated[
        float, typer.Option(min=0, help="Seconds to wait in all while no server can be reached.")
    ] = 600.0,
    token: Token = None,
    token_file: TokenFile = None,
    ca_file: Annotated[Path | None, typer.Option(help="PEM of the authority behind the servers' certificates.")] = None,
    ledger: Annotated[str | None, typer.Option(help="Id of the only ledger to take part in.")] = None,
) -> None:
    """Take part: ask for the average of models like one's own, train it, publish, again.

    Ctrl-C ends it after a clean save; the next run goes on where it stopped.

    Example: dag-acfl client run my_client.py --server http://127.0.0.1:8900 --set site=3
    """
    from fl_client.client import LedgerClient  # noqa: PLC0415
    from fl_client.participant import Participant  # noqa: PLC0415
    from fl_client.scaffold import load_trainer  # noqa: PLC0415
    from fl_client.state import ParticipantState  # noqa: PLC0415

    trainer = load_trainer(file, scalars(set_ or [], option="--set"))
    folder = state or _state_beside(file)
    bearer = token_of(token, token_file)
    with (
        retries_shown(),
        ParticipantState(folder) as kept,
        LedgerClient(server or [DEFAULT_SERVER], key=kept.key, token=bearer, ca_file=ca_file, ledger=ledger) as client,
    ):
        typer.echo(f"client {kept.author[:20]}…, state in {folder}; Ctrl-C ends it after a clean save")
        participant = Participant(client, trainer, kept, epochs=epochs, initial_epochs=initial_epochs)
        taken = participant.run(transactions, on_step=_print_step, patience_s=patience_s)
        how = "stopped" if participant.stopped else "done"
        typer.echo(f"{how} after {taken} transaction{'s' * (taken != 1)}; run the same command to go on")


def _print_step(report: "StepReport") -> None:
    seconds = sum(report.seconds.values())
    if report.resumed:
        typer.echo(f"#{report.sequence} {report.transaction[:12]}  published by an interrupted run, now confirmed")
        return
    accuracy = "".join(
        f"  {word} {metrics['accuracy']:.3f}"
        for word, metrics in (("given", report.metrics_before), ("trained", report.metrics_after))
        if "accuracy" in metrics
    )
    parents = f"{len(report.parents)} of {report.num_candidates + (report.source == 'parents')} models"
    chosen = "its own model" if report.source == "own" else parents
    typer.echo(f"#{report.sequence} {report.transaction[:12]}  {chosen} ({report.rule}){accuracy}  {seconds:.1f} s")


@app.command()
def status(
    state: Annotated[Path, typer.Argument(help="The client's file, or its state folder, such as my_client-state.")],
    *,
    server: Annotated[list[str] | None, typer.Option(help="Also ask this server what it knows of the client.")] = None,
    token: Token = None,
    token_file: TokenFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show a client's author id, its ledger and its newest transaction.

    Example: dag-acfl client status my_client-state --server http://127.0.0.1:8900
    """
    from fl_client.state import ParticipantState  # noqa: PLC0415

    if state.suffix == ".py":
        state = _state_beside(state)
    if not state.is_dir():
        raise ParameterError(f"{state} is no state folder; a client's first run makes one")
    with ParticipantState(state) as kept:
        position = kept.position
        facts: dict[str, object] = {
            "author": kept.author,
            "ledger": None if position is None else position.ledger,
            "transaction": None if position is None else position.transaction,
            "transactions": 0 if position is None else position.sequence,
        }
    if server:
        facts["server"] = _known_at(server, str(facts["author"]), token_of(token, token_file))
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    for name, value in facts.items():
        typer.echo(f"{name:<13} {'none yet' if value is None else value}")


def _state_beside(file: Path) -> Path:
    return file.with_name(file.stem + _STATE_SUFFIX)


def _known_at(servers: list[str], author: str, token: str | None) -> str:
    from fl_client.client import LedgerClient  # noqa: PLC0415

    with LedgerClient(servers, timeout=10.0, token=token) as client:
        for each in client.clients().items:
            if each.author == author:
                tip = "a tip" if each.is_tip else "approved by others"
                return f"knows transaction {each.newest} (sequence {each.sequence}), {tip}"
    return "does not know this client"
