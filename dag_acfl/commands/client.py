"""``dag-acfl client``: write a client's file, run it, see where it stands."""

import json
import math
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from dag_acfl.commands.models import export, note_file, state_folder
from dag_acfl.commands.options import (
    TokenFile,
    as_called,
    duration_s,
    figure,
    number_of,
    retries_shown,
    scalars,
    token_of,
)
from dag_acfl.tracing import export_traces
from fl_core.errors import ParameterError

if TYPE_CHECKING:
    from fl_client.client import LedgerClient
    from fl_client.participant import StepReport
    from fl_client.state import ParticipantState
    from fl_client.training.protocol import Trainer

app: typer.Typer = typer.Typer(
    help="Take part in a ledger with your own model and data.",
    epilog="Example: dag-acfl client init my_client.py",
    no_args_is_help=True,
)

DEFAULT_SERVER = "http://127.0.0.1:8900"
STATUS_TIMEOUT_S = 10.0
DEFAULT_CLIP = 1.0
DEFAULT_DELTA = 1e-5
DEFAULT_CREDIT_EVERY = 10

Servers: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(help=f"Ledger server; repeat for more, the first that works is used. Default: {DEFAULT_SERVER}."),
]
Transactions: TypeAlias = Annotated[
    int | None, typer.Option(min=1, help="Publish so many times. Default: until Ctrl-C.")
]
Every: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Begin an update at most so often: 90s, 10m, 2h. Default: as soon as the last is done."),
]
WaitForNews: TypeAlias = Annotated[
    bool,
    typer.Option("--wait-for-news", help="After the first update, publish only when somebody else has."),
]
EarlyStop: TypeAlias = Annotated[
    int | None,
    typer.Option(min=1, help="End after so many updates that are no better on the own test data. Default: never."),
]
RefuseWorseThan: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Refuse an average whose accuracy on the own test data is lower than the own model's by so much, and by "
        "more than chance; or never. Default: 0.05."
    ),
]
CreditEvery: TypeAlias = Annotated[
    int,
    typer.Option(min=0, help="At every so-manieth update, measure whose models help; 0: never."),
]
PatienceS: TypeAlias = Annotated[
    float, typer.Option(min=0, help="Seconds to wait in all while no server can be reached.")
]
Track: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(help="Figures also go to tensorboard, mlflow or wandb (metrics.csv there is always). Repeatable."),
]
CaFile: TypeAlias = Annotated[Path | None, typer.Option(help="PEM of the authority behind the servers' certificates.")]
EpsilonBudget: TypeAlias = Annotated[
    float | None, typer.Option(help="End before the ε of all trainings of this client exceeds this. Needs --dp-noise.")
]
OnlyLedger: TypeAlias = Annotated[str | None, typer.Option(help="Id of the only ledger to take part in.")]


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
def run(
    file: Annotated[Path, typer.Argument(help="The client's Python file (see: dag-acfl client init).")],
    *,
    server: Servers = None,
    state: Annotated[
        Path | None,
        typer.Option(help="Folder for the key and the last transaction. Default: beside FILE, FILE-state."),
    ] = None,
    transactions: Transactions = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Local epochs E. Default: the ledger's hint.")] = None,
    initial_epochs: Annotated[
        int | None, typer.Option(min=1, help="Epochs E′ before joining. Default: the ledger's hint.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Argument for trainer(), such as site=3. Repeatable.")
    ] = None,
    every: Every = None,
    wait_for_news: WaitForNews = False,
    early_stop: EarlyStop = None,
    refuse_worse_than: RefuseWorseThan = None,
    credit_every: CreditEvery = DEFAULT_CREDIT_EVERY,
    patience_s: PatienceS = 600.0,
    track: Track = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    ledger: OnlyLedger = None,
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
    epsilon_budget: EpsilonBudget = None,
) -> None:
    """Take part: ask for the average of models like one's own, train it, publish, again.

    Ctrl-C ends it after a clean save; the next run goes on where it stopped.

    Example: dag-acfl client run my_client.py --server http://127.0.0.1:8900 --set site=3
    """
    from fl_client.scaffold import load_trainer  # noqa: PLC0415

    every_s = duration_s(every or "0")
    with retries_shown() as show:
        show(f"loading {file}")
        trainer = load_trainer(file, scalars(set_ or [], option="--set"))
        if dp_noise is not None:
            _make_private(trainer, noise=dp_noise, clip=dp_clip, sample_rate=dp_sample_rate)
    take_part(
        lambda *_: trainer,
        state or state_folder(file),
        file=file,
        server=server,
        transactions=transactions,
        epochs=epochs,
        initial_epochs=initial_epochs,
        every_s=every_s,
        wait_for_news=wait_for_news,
        early_stop=early_stop,
        refuse_worse_than=refuse_worse_than,
        credit_every=credit_every,
        patience_s=patience_s,
        track=track,
        token_file=token_file,
        ca_file=ca_file,
        ledger=ledger,
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


def take_part(
    trainer_for: "Callable[[LedgerClient, ParticipantState], Trainer]",
    folder: Path,
    *,
    file: Path | None = None,
    server: list[str] | None,
    transactions: int | None,
    epochs: int | None,
    initial_epochs: int | None,
    every_s: float,
    wait_for_news: bool,
    early_stop: int | None,
    refuse_worse_than: str | None,
    credit_every: int,
    patience_s: float,
    track: list[str] | None,
    token_file: Path | None,
    ca_file: Path | None,
    ledger: str | None,
    epsilon_budget: float | None = None,
    delta: float = DEFAULT_DELTA,
) -> None:
    """Run a participant of ``folder`` before a person's eyes, with the trainer that ``trainer_for`` makes.

    The file, if there is one, is noted in the folder; the other options are those of ``run``.
    """
    from fl_client.client import LedgerClient  # noqa: PLC0415
    from fl_client.integrations.trackers import tracking  # noqa: PLC0415
    from fl_client.participant import Participant  # noqa: PLC0415
    from fl_client.state import ParticipantState  # noqa: PLC0415

    margin = _margin(refuse_worse_than)
    export_traces()
    bearer = token_of(token_file)
    with (
        retries_shown() as show,
        ParticipantState(folder) as kept,
        LedgerClient(server or [DEFAULT_SERVER], key=kept.key, token=bearer, ca_file=ca_file, ledger=ledger) as client,
        tracking(track or [], folder, author=kept.author) as keep_figures,
    ):
        trainer = trainer_for(client, kept)
        if file is not None:
            note_file(folder, file)
        new = " (new)" * (kept.position is None)
        typer.echo(f"client {kept.author[:20]}…{new}, state in {folder}; Ctrl-C ends it after a clean save")
        participant = Participant(
            client,
            trainer,
            kept,
            epochs=epochs,
            initial_epochs=initial_epochs,
            epsilon_budget=epsilon_budget,
            delta=delta,
            refuse_worse_than=margin,
            credit_every=credit_every,
        )

        def on_step(report: "StepReport") -> None:
            show("")
            typer.echo(_line(report))
            keep_figures(report)

        taken = participant.run(
            transactions,
            on_step=on_step,
            on_progress=show,
            patience_s=patience_s,
            every_s=every_s,
            wait_for_news=wait_for_news,
            early_stop=early_stop,
        )
    if participant.ended_by:
        typer.echo(f"ended after {number_of(taken, 'transaction')}: {participant.ended_by}")
        return
    how = "stopped" if participant.stopped else "done"
    typer.echo(f"{how} after {number_of(taken, 'transaction')}; run the same command to go on")


def _margin(given: str | None) -> float | None:
    """What ``--refuse-worse-than`` says; None: never.

    Raises:
        ParameterError: It is neither a number of at least 0 nor ``never``.
    """
    from fl_core.trust.refusal import DEFAULT_MARGIN  # noqa: PLC0415

    if given is None:
        return DEFAULT_MARGIN
    if given == "never":
        return None
    try:
        margin = float(given)
    except ValueError:
        margin = -1.0
    if not 0 <= margin < math.inf:
        raise ParameterError(f"--refuse-worse-than takes a number of at least 0, such as 0.05, or never, not {given}")
    return margin


def _line(report: "StepReport") -> str:
    """What a step came to; on a terminal wrapped between its parts."""
    parts = [f"#{report.sequence} {report.transaction[:12]}"]
    if report.resumed:
        parts.append("published by an interrupted run, now confirmed")
    else:
        parts += [_average(report), *_own(report.figures())]
        if report.step_kept < 1:
            parts.append(f"step shortened to {report.step_kept:.0%} of its length, the ledger's bound")
        parts.append(f"{sum(report.seconds.values()):.1f} s")
    if not sys.stdout.isatty():
        return "  ".join(parts)
    unbroken = "  ".join(part.replace(" ", "\xa0") for part in parts)
    columns = shutil.get_terminal_size().columns
    return textwrap.fill(unbroken, columns, subsequent_indent="    ", break_on_hyphens=False).replace("\xa0", " ")


def _average(report: "StepReport") -> str:
    """Whose models the client went on from."""
    if (refused := report.refused) is not None:
        others = number_of(report.num_chosen, "other")
        return f"its own model, as the average with {others} does worse ({refused.metric} {figure(refused.given)})"
    if report.source == "parents":
        return f"average with {report.num_chosen} of {report.num_candidates} others"
    if report.num_candidates == 0:
        return "its own model, for nobody else has a new one"
    rule = report.rule or ""  # a server's word, and it goes to a terminal
    if not rule or rule.endswith(": resembles nobody") or not rule.isprintable():
        return f"its own model, for none of {report.num_candidates} others is like it"
    return f"its own model, for none of {report.num_candidates} others was taken by {rule}"


def _own(figures: Mapping[str, float]) -> list[str]:
    """What the client's own code has measured, by name: as given → trained, or one number of the training."""
    from fl_client.metrics import NUM_EXAMPLES  # noqa: PLC0415

    shown: dict[str, list[str]] = {}
    for name, value in figures.items():
        before, _, when = name.rpartition("/")
        own = before if when in ("given", "trained") else name
        if own != NUM_EXAMPLES and not own.startswith(("step/", "selection/", "seconds/", "bytes/")):
            shown.setdefault(own, []).append(figure(value))
    return [f"{name} {' → '.join(values)}" for name, values in shown.items()]


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
        said = "  ".join([value["file"], *_own(value["metrics"])]) if isinstance(value, dict) else value
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
