"""``dag-acfl trust quarantine``, ``lift`` and ``erase``: what members decide about bad clients and withdrawn sites."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dag_acfl.commands.members import membership, propose
from dag_acfl.commands.options import DataDir
from dag_acfl.commands.trust.subjects import Subject, only_one, opened, suspects_of
from fl_core.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fl_core.dag.acts import ActKind

Reason = Annotated[str, typer.Option("--reason", help="Why, for all to read; at most 512 bytes.")]


def quarantine(subject: Subject, *, reason: Reason, data_dir: DataDir = None) -> None:
    """Keep an author, or one update, and what descends from it from being offered: here at once, then everywhere.

    Run it on a member's machine; the others sign with the same command or `dag-acfl members sign`. Nothing is deleted,
    clients are led back to clean models by themselves, and it can be lifted.

    Example: dag-acfl trust quarantine key:5f0c1e77 --reason "flips labels since Monday"
    """
    from fl_core.dag.acts import ActKind  # noqa: PLC0415

    with opened(data_dir) as view:
        suspects = suspects_of(view, subject)
        authors = view.acts.authors.all_names(suspects.authors)
    _decide(data_dir, ActKind.QUARANTINE, [*authors, *[f"update:{each}" for each in suspects.updates]], reason)
    typer.echo("what follows from it: dag-acfl trust report; to end it: dag-acfl trust lift ACT --reason …")


def lift(
    act: Annotated[str, typer.Argument(help="The quarantine's id or its first 8 digits (see: dag-acfl trust report).")],
    *,
    reason: Reason = "",
    data_dir: DataDir = None,
) -> None:
    """End a quarantine: what it withheld is offered again, here at once, and everywhere when enough have signed.

    Example: dag-acfl trust lift 3f5c0a12 --reason "it was a broken sensor"
    """
    from fl_core.dag.acts import ActKind  # noqa: PLC0415

    with membership(data_dir) as members:
        quarantines = [each.id for each in members.acts.all() if each.act.kind is ActKind.QUARANTINE]
    _decide(data_dir, ActKind.LIFT, [f"act:{only_one(act, quarantines, 'quarantine')}"], reason)


def erase(
    author: Annotated[str, typer.Argument(help="key:… or hash:…; the first 8 digits are enough.")],
    *,
    reason: Reason,
    data_dir: DataDir = None,
) -> None:
    """Drop an author's models for good: here at once, on all servers when enough have signed. Nothing brings them back.

    Headers, signatures and evidence stay, and `ledger verify` proves them. Models of others that averaged them stay,
    too: quarantine the author as well where those are not to be used. It publishes no more.

    Example: dag-acfl trust erase key:5f0c1e77 --reason "consent withdrawn"
    """
    from fl_core.dag.acts import ActKind  # noqa: PLC0415

    with opened(data_dir) as view:
        suspects = suspects_of(view, author)
        names = view.acts.authors.all_names(suspects.authors)
    if not suspects.authors:
        raise ParameterError("an author's models are erased all together: name the author, key:… or hash:…")
    _decide(data_dir, ActKind.ERASE, names, reason)


def _decide(data_dir: Path | None, kind: "ActKind", subjects: "Iterable[str]", reason: str) -> None:
    details = {"reason": reason} if reason else {}
    with membership(data_dir) as members:
        propose(members, kind, sorted(subjects), details=details)
