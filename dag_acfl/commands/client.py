"""``dag-acfl client``: write a client's file, run it, see where it stands."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dag_acfl.commands.models import export, state_folder
from dag_acfl.commands.options import STATUS_TIMEOUT_S, TokenFile, as_called, retries_shown, scalars, token_of
from dag_acfl.commands.taking_part import Participation, participation_options, shown_figures, take_part
from fl_core.errors import ParameterError

if TYPE_CHECKING:
    from fl_client.training.protocol import Trainer

app: typer.Typer = typer.Typer(
    help="Take part in a ledger with your own model and data.",
    epilog="Example: dag-acfl client init my_client.py",
    no_args_is_help=True,
)

DEFAULT_CLIP = 1.0
DEFAULT_DELTA = 1e-5


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
    for what, command in (
        ("try it here, four sites:", f"try {path} --sites 4"),
        ("for real, a ledger:", f"ledger init --name pilot --client {path}"),
        ("serve it:", "serve"),
        ("take part, at site 0:", f"client run {path} --set site=0 --state site-0"),
        ("and a site like it:", f"client run {path} --set site=2 --state site-2"),
    ):
        typer.echo(as_called(f"{what:<24} dag-acfl {command}"))


@app.command()
@participation_options
def run(
    file: Annotated[Path, typer.Argument(help="The client's Python file (see: dag-acfl client init).")],
    *,
    state: Annotated[
        Path | None,
        typer.Option(help="Folder for the key and the last transaction. Default: beside FILE, FILE-state."),
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Local epochs E. Default: the ledger's hint.")] = None,
    initial_epochs: Annotated[
        int | None, typer.Option(min=1, help="Epochs E′ before joining. Default: the ledger's hint.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Argument for trainer(), such as site=3. Repeatable.")
    ] = None,
    dp_noise: Annotated[
        float | None,
        typer.Option(
            help="Train with differential privacy (DP-SGD): noise in each step, in units of --dp-clip, such as 1.0."
        ),
    ] = None,
    dp_clip: Annotated[
        float, typer.Option(help="Largest norm of one example's gradient; with --dp-noise.")
    ] = DEFAULT_CLIP,
    dp_sample_rate: Annotated[
        float | None,
        typer.Option(help="Share of the examples in a step; with --dp-noise. Default: batch size / examples."),
    ] = None,
    dp_delta: Annotated[float, typer.Option(help="δ at which ε is told.")] = DEFAULT_DELTA,
    epsilon_budget: Annotated[
        float | None,
        typer.Option(help="End before the ε of all trainings of this client exceeds this. Needs --dp-noise."),
    ] = None,
    how: Participation,
) -> None:
    """Take part: ask for the average of models like one's own, train it, publish, again.

    Ctrl-C ends it after a clean save; the next run goes on where it stopped.

    Example: dag-acfl client run my_client.py --server http://127.0.0.1:8900 --set site=3
    """
    from fl_client.scaffold import load_trainer  # noqa: PLC0415

    with retries_shown() as show:
        show(f"loading {file}")
        trainer = load_trainer(file, scalars(set_ or [], option="--set"))
        if dp_noise is not None:
            _make_private(trainer, noise=dp_noise, clip=dp_clip, sample_rate=dp_sample_rate)
    take_part(
        lambda *_: trainer,
        state or state_folder(file),
        how,
        file=file,
        epochs=epochs,
        initial_epochs=initial_epochs,
        epsilon_budget=epsilon_budget,
        delta=dp_delta,
    )


def _make_private(trainer: "Trainer", *, noise: float, clip: float, sample_rate: float | None) -> None:
    from fl_client.privacy import DifferentialPrivacy, PrivateTrainer  # noqa: PLC0415

    privacy = DifferentialPrivacy(noise, clip, sample_rate)
    if not isinstance(trainer, PrivateTrainer):
        raise ParameterError(
            f"--dp-noise: {type(trainer).__name__} cannot train with differential privacy; a TorchTrainer can"
        )
    trainer.privacy = privacy


@app.command()
def status(
    state: Annotated[Path, typer.Argument(help="The client's file, or its state folder, such as my_client-state.")],
    *,
    server: Annotated[list[str] | None, typer.Option(help="Also ask this server what it knows of the client.")] = None,
    token_file: TokenFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show a client's author id, whether it runs, its ledger, its newest transaction and the files of its models.

    Nothing is changed.

    Example: dag-acfl client status my_client-state --server http://127.0.0.1:8900
    """
    from fl_client.privacy import read_account  # noqa: PLC0415
    from fl_client.state import model_file, read_state  # noqa: PLC0415

    state = state_folder(state)
    seen = read_state(state)
    facts: dict[str, object] = {
        "author": seen.author,
        "running": seen.process or "no",
        "ledger": None if seen.position is None else seen.position.ledger,
        "transaction": None if seen.position is None else seen.position.transaction,
        "transactions": 0 if seen.position is None else seen.position.sequence,
    }
    for which in ("given", "trained", "best"):
        kept = None if seen.position is None else getattr(seen.position, which)
        facts[which] = None if kept is None else {"file": str(model_file(state, kept)), "metrics": kept.metrics}
    if (account := read_account(state)) is not None:
        facts["privacy"] = f"ε {account.epsilon:.3g} spent at δ {account.delta:g}"
    if server:
        facts["server"] = _known_at(server, str(facts["author"]), token_of(token_file))
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    for name, value in facts.items():
        said = "  ".join([value["file"], *shown_figures(value["metrics"])]) if isinstance(value, dict) else value
        typer.echo(f"{name:<13} {'none yet' if value is None else said}")


def _known_at(servers: list[str], author: str, token: str | None) -> str:
    from fl_client.client import LedgerClient  # noqa: PLC0415
    from fl_client.errors import TransportError  # noqa: PLC0415

    try:
        with LedgerClient(servers, timeout=STATUS_TIMEOUT_S, token=token) as client:
            items = client.clients().items
    except TransportError as error:
        return f"cannot be asked: {error}"
    for each in items:
        if each.author == author:
            tip = "a tip" if each.is_tip else "approved by others"
            return f"knows transaction {each.newest} (sequence {each.sequence}), {tip}"
    return "does not know this client"


app.command()(export)
