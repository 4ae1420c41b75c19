"""What the commands of ``dag-acfl trust`` read alike: a server's ledger, and whom or what a person means."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dag_acfl.commands.options import number_of, settings_of_ledger
from fl_core.errors import ParameterError

if TYPE_CHECKING:
    from fl_core.trust.lineage import Suspects
    from ledger_server.reading import LedgerView

MIN_DIGITS = 5  # as many as `ledger inspect` shows of an author
Subject = Annotated[
    str,
    typer.Argument(help="An author (key:… or hash:…) or an update's id; 5 digits are enough where no other begins so."),
]


@contextmanager
def opened(data_dir: Path | None) -> "Iterator[LedgerView]":
    """The ledger of a data folder as its server sees it."""
    from fl_core.dag.signature import public_key_of  # noqa: PLC0415
    from ledger_server.keys import key_file, load_key  # noqa: PLC0415
    from ledger_server.reading import LedgerView  # noqa: PLC0415
    from ledger_server.store import open_store_of  # noqa: PLC0415

    settings = settings_of_ledger(data_dir)
    with open_store_of(settings) as store:
        yield LedgerView(store, cache_bytes=0, server=public_key_of(load_key(key_file(settings))))


def suspects_of(view: "LedgerView", subject: str) -> "Suspects":
    """The author or the update that a person means."""
    from fl_core.trust.lineage import Suspects  # noqa: PLC0415
    from fl_core.types import AuthorId, TxId  # noqa: PLC0415

    if subject.startswith(("key:", "hash:")):
        return Suspects(authors=frozenset({AuthorId(only_one(subject, view.node.graph.authors(), "author"))}))
    updates = view.store.ids(start=1, limit=len(view.ledger))
    return Suspects(updates=frozenset({TxId(only_one(subject.removeprefix("update:"), updates, "update"))}))


def only_one(begins: str, among: Sequence[str], what: str) -> str:
    """What of these begins so; what is written in full may be unknown here."""
    from fl_core.types import is_hex_id  # noqa: PLC0415

    if is_hex_id(begins.partition(":")[2] or begins):
        return begins
    found = [each for each in among if each.startswith(begins)]
    if len(found) != 1 or len(begins.partition(":")[2] or begins) < MIN_DIGITS:
        fit = number_of(len(found), what) if found else "none"
        hint = f"write at least {MIN_DIGITS} digits"
        raise ParameterError(f"no {what} is meant by {begins[:80]!r}: {fit} would fit; {hint}")
    return found[0]
