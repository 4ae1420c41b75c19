"""``dag-acfl audit``: what others can learn from what a client has published."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dag_acfl.commands.models import state_folder
from dag_acfl.commands.options import DEFAULT_SERVER, TokenFile, scalars, token_of
from fl_core.errors import ParameterError

if TYPE_CHECKING:
    from fl_core.trust.membership_inference import AttackResult

app: typer.Typer = typer.Typer(
    help="What others can learn from what a client has published.",
    epilog="Example: dag-acfl audit membership my_client.py http://127.0.0.1:8900",
    no_args_is_help=True,
)

_FEW = 100


@app.callback()
def _group() -> None:
    """Keep ``membership`` a word of the command, with one command as with several."""


@app.command()
def membership(
    file: Annotated[Path, typer.Argument(help="The client's Python file, with its training and test data.")],
    ledger: Annotated[
        str, typer.Argument(help="Where its models are read: a live server, a bundle, a data folder, a database URL.")
    ] = DEFAULT_SERVER,
    *,
    state: Annotated[
        Path | None, typer.Option(help="The client's state folder. Default: beside FILE, FILE-state.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Argument for trainer(), as for client run. Repeatable.")
    ] = None,
    updates: Annotated[int, typer.Option(min=1, help="Look at so many of its newest updates.")] = 10,
    token_file: TokenFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Try to tell a client's training examples from its test examples by what a reader of the ledger has.

    Two attacks, each with its AUC (0.5 is guessing) and the share of training examples found at 1 % false alarms,
    with 95 % intervals. Training and test data must be alike but for who was trained on. Nothing leaves this machine.

    Example: dag-acfl audit membership my_client.py --set site=3 --state site-3
    """
    from dag_acfl.membership_inference import attacked, published_by  # noqa: PLC0415
    from dag_acfl.sources import open_source  # noqa: PLC0415
    from fl_client.scaffold import load_trainer  # noqa: PLC0415
    from fl_client.state import read_state  # noqa: PLC0415

    author = read_state(state or state_folder(file)).author
    trainer = load_trainer(file, scalars(set_ or [], option="--set"))
    if not hasattr(trainer, "losses"):
        raise ParameterError(f"{file}: trainer() returns no TorchTrainer; an audit needs the loss of each example")
    with open_source(ledger, token=token_of(token_file)) as source:
        seen = attacked(trainer, published_by(author, source, most=updates))
    if as_json:
        typer.echo(json.dumps({"author": author, **asdict(seen)}, indent=2))
        return
    spent = "" if seen.epsilon is None else f", trained with ε = {seen.epsilon:.3g} (δ = {seen.delta:g})"
    typer.echo(f"client {author[:20]}…{spent}: {seen.updates} updates, {seen.others} comparisons with models of others")
    typer.echo(f"{seen.training} training examples, {seen.test} test examples; 95 % intervals in brackets")
    typer.echo(f"{'attack':<18} {'AUC':<24} found at 1 % false alarms")
    for name, attack in seen.attacks.items():
        auc, found = attack.auc, attack.found
        typer.echo(
            f"{name:<18} {auc.value:.3f} [{auc.low:.3f}, {auc.high:.3f}]     "
            f"{found.value:.1%} [{found.low:.1%}, {found.high:.1%}]"
        )
    typer.echo(_meaning(seen.attacks))
    if seen.test < _FEW:
        typer.echo(f"1 % of {seen.test} test examples is less than one: bring {_FEW} or more to measure that column")


def _meaning(attacks: "Mapping[str, AttackResult]") -> str:
    """In a line, what the stronger attack comes to."""
    name, best = max(attacks.items(), key=lambda each: each[1].auc.value)
    if best.auc.low <= 0.5:
        return "These attacks do no better than guessing, as far as so many examples can tell."
    return (
        f"By the {name}, a reader who is shown a training example and another one says which is which "
        f"{best.auc.value:.0%} of the time; guessing is 50 %."
    )
