"""What several commands read alike: where a ledger is, and ``name=value`` settings."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from fl_core.errors import ParameterError

if TYPE_CHECKING:
    from fl_core.types import JsonScalar
    from ledger_server.settings import Settings

DataDir: TypeAlias = Annotated[
    Path | None, typer.Option("--data-dir", help="Data folder of the server. Default: ./dag-acfl-data.")
]
DatabaseUrl: TypeAlias = Annotated[
    str | None,
    typer.Option("--database-url", help="Database of the server. Default: SQLite in the data folder."),
]


def settings_for(data_dir: Path | None, database_url: str | None) -> "Settings":
    """The server's settings, as ``serve`` with the same options would have them."""
    from ledger_server.settings import load_settings  # noqa: PLC0415

    return load_settings(data_dir=data_dir, database_url=database_url)


def scalars(pairs: Sequence[str], *, option: str) -> "dict[str, JsonScalar]":
    """``name=value`` pairs; numbers, true and false are read as JSON, anything else is text.

    Raises:
        ParameterError: A pair has no ``=``, or a name stands twice.
    """
    read: dict[str, str | int | float | bool] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise ParameterError(f"{option} {pair!r} must be name=value, such as {option} alpha=0.5")
        if name in read:
            raise ParameterError(f"{option} gives {name!r} twice")
        read[name] = _scalar(text)
    return read


def _scalar(text: str) -> "JsonScalar":
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float) else text
