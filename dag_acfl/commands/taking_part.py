"""Taking part before a person's eyes: what ``client run`` and ``client flower`` share, options and what is shown."""

import inspect
import math
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dag_acfl.commands.models import note_file
from dag_acfl.commands.options import DEFAULT_SERVER, TokenFile, duration_s, figure, number_of, retries_shown, token_of
from dag_acfl.tracing import export_traces
from fl_core.errors import ParameterError

if TYPE_CHECKING:
    from fl_client.client import LedgerClient
    from fl_client.state import ParticipantState
    from fl_client.step_report import StepReport
    from fl_client.training.protocol import Trainer


@dataclass(frozen=True, slots=True, kw_only=True)
class Participation:
    """What a person chooses, whatever trains."""

    server: Annotated[
        list[str] | None,
        typer.Option(help=f"Ledger server; repeat for more, the first that works is used. Default: {DEFAULT_SERVER}."),
    ] = None
    transactions: Annotated[int | None, typer.Option(min=1, help="Publish so many times. Default: until Ctrl-C.")] = (
        None
    )
    every_s: Annotated[
        float | None,
        typer.Option(
            "--every",
            parser=duration_s,
            metavar="<duration>",
            help="Begin an update at most so often: 90s, 10m, 2h. Default: as soon as the last is done.",
        ),
    ] = None
    wait_for_news: Annotated[
        bool,
        typer.Option("--wait-for-news", help="After the first update, publish only when somebody else has."),
    ] = False
    early_stop: Annotated[
        int | None,
        typer.Option(min=1, help="End after so many updates that are no better on the own test data. Default: never."),
    ] = None
    refuse_worse_than: Annotated[
        str | None,
        typer.Option(
            help="Refuse an average whose accuracy on the own test data is lower than the own model's by so much, and "
            "by more than chance; or never. Default: 0.05."
        ),
    ] = None
    contribution_every: Annotated[
        int, typer.Option(min=0, help="At every so-manieth update, measure whose models help; 0: never.")
    ] = 10
    coding: Annotated[
        str | None,
        typer.Option(
            help="How models are sent: whole; exact, what training has changed; rounded, the same to some eight bits. "
            "Default: as genesis has it, else whole."
        ),
    ] = None
    patience_s: Annotated[float, typer.Option(min=0, help="Seconds to wait in all while no server can be reached.")] = (
        600.0
    )
    track: Annotated[
        list[str] | None,
        typer.Option(help="Figures also go to tensorboard, mlflow or wandb (metrics.csv there is always). Repeatable."),
    ] = None
    token_file: TokenFile = None
    ca_file: Annotated[Path | None, typer.Option(help="PEM of the authority behind the servers' certificates.")] = None
    bucket: Annotated[
        str | None,
        typer.Option(
            help="What links of the servers' bucket begin with: models may come from there, not from elsewhere."
        ),
    ] = None
    ledger: Annotated[str | None, typer.Option(help="Id of the only ledger to take part in.")] = None


def participation_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each field of ``Participation``, which it takes as its last parameter, ``how``.

    typer reads options off a command's signature: the fields stand there as if they were parameters.
    """
    *own, _ = inspect.signature(command, eval_str=True).parameters.values()
    fields = inspect.signature(Participation).parameters
    parameters = sorted((*fields.values(), *own), key=lambda each: each.kind)  # an argument before all options

    @wraps(command)
    def run(**said: Any) -> None:
        command(how=Participation(**{each: said.pop(each) for each in fields}), **said)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def take_part(
    trainer_for: "Callable[[LedgerClient, ParticipantState], Trainer]",
    folder: Path,
    how: Participation,
    *,
    file: Path | None = None,
    **options: Any,
) -> None:
    """Run a participant of ``folder`` before a person's eyes, with the trainer that ``trainer_for`` makes."""
    from fl_client.client import LedgerClient  # noqa: PLC0415
    from fl_client.integrations.trackers import tracking  # noqa: PLC0415
    from fl_client.participant import Participant  # noqa: PLC0415
    from fl_client.state import ParticipantState  # noqa: PLC0415

    margin = _margin(how.refuse_worse_than)
    export_traces()
    token = token_of(how.token_file)
    with (
        retries_shown() as show,
        ParticipantState(folder) as kept,
        LedgerClient(
            how.server or [DEFAULT_SERVER],
            key=kept.key,
            token=token,
            ca_file=how.ca_file,
            ledger=how.ledger,
            bucket=how.bucket,
        ) as client,
        tracking(how.track or [], folder, author=kept.author) as keep_figures,
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
            refuse_worse_than=margin,
            contribution_every=how.contribution_every,
            coding=how.coding,
            **options,
        )

        def on_step(report: "StepReport") -> None:
            show("")
            typer.echo(_line(report))
            keep_figures(report)

        taken = participant.run(
            how.transactions,
            on_step=on_step,
            on_progress=show,
            patience_s=how.patience_s,
            every_s=how.every_s or 0.0,
            wait_for_news=how.wait_for_news,
            early_stop=how.early_stop,
        )
    if participant.ended_by:
        typer.echo(f"ended after {number_of(taken, 'transaction')}: {participant.ended_by}")
        return
    end = "stopped" if participant.stopped else "done"
    typer.echo(f"{end} after {number_of(taken, 'transaction')}; run the same command to go on")


def _margin(given: str | None) -> float | None:
    """What ``--refuse-worse-than`` says; None: never."""
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
        parts += [_average(report), *shown_figures(report.figures())]
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
    candidates = number_of(report.num_candidates, "other")
    if report.source == "parents":
        return f"average with {report.num_chosen} of {candidates}"
    if report.num_candidates == 0:
        return "its own model, for nobody else has a new one"
    rule = report.rule or ""  # a server's word, and it goes to a terminal
    if not rule or rule.endswith(": resembles nobody") or not rule.isprintable():
        return f"its own model, for none of {candidates} is like it"
    return f"its own model, for none of {candidates} was taken by {rule}"


def shown_figures(figures: Mapping[str, float]) -> list[str]:
    """What the client's own code has measured, by name: as given → trained, or one number of the training."""
    from fl_client.metrics import NUM_EXAMPLES  # noqa: PLC0415

    shown: dict[str, list[str]] = {}
    for name, value in figures.items():
        before, _, when = name.rpartition("/")
        own = before if when in ("given", "trained") else name
        if own != NUM_EXAMPLES and not own.startswith(("step/", "selection/", "seconds/", "bytes/")):
            shown.setdefault(own, []).append(figure(value))
    return [f"{name} {' → '.join(values)}" for name, values in shown.items()]
