"""``dag-acfl trust quarantine``, ``lift`` and ``erase``: what members decide about bad clients and withdrawn sites."""

from typing import Annotated

import typer

from dag_acfl.commands.members import membership, propose, show
from dag_acfl.commands.options import DataDir, now_ms
from dag_acfl.commands.trust.subjects import Subject, only_one, opened, suspects_of
from fl_core.errors import ParameterError

Reason = Annotated[str, typer.Option("--reason", help="Why, for all to read; at most 512 bytes.")]


def quarantine(subject: Subject, *, reason: Reason, data_dir: DataDir = None) -> None:
    """Keep an author, or one update, and what descends from it from being offered: here at once, then everywhere.

    Run it on a member's machine; the others sign with the same command or `dag-acfl members sign`. Nothing is deleted,
    clients are led back to clean models by themselves, and it can be lifted.

    Example: dag-acfl trust quarantine key:5f0c1e77 --reason "flips labels since Monday"
    """
    with opened(data_dir) as view:
        suspects = suspects_of(view, subject)
    with membership(data_dir) as members:
        for standing in members.quarantine(suspects, reason=reason, now_ms=now_ms()):
            show(members, standing)
    typer.echo("what follows from it: dag-acfl trust report; to end it: dag-acfl trust lift ACT --reason …")


def lift(
    act: Annotated[str, typer.Argument(help="The quarantine's id or its first 8 digits (see: dag-acfl trust report).")],
    *,
    reason: Reason = "",
    data_dir: DataDir = None,
) -> None:
    """End a quarantine: what it withheld is offered again, on all servers when enough members have signed that.

    One that this server alone has signed is taken back: it holds nowhere, and nobody is asked to sign it any more. Of
    one that others have signed, but too few, this server goes by it no more at once.

    Example: dag-acfl trust lift 3f5c0a12 --reason "it was a broken sensor"
    """
    from fl_core.dag.acts import ActKind  # noqa: PLC0415
    from fl_core.types import TxId  # noqa: PLC0415

    with membership(data_dir) as members:
        quarantines = [each.id for each in members.acts.all() if each.act.kind is ActKind.QUARANTINE]
        found = TxId(only_one(act, quarantines, "quarantine"))
        show(members, members.lift(found, reason=reason, now_ms=now_ms()))


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
    with membership(data_dir) as members:
        propose(members, ActKind.ERASE, sorted(names), details={"reason": reason})
