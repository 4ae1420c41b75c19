"""What tests do with a database beside its server: get several at once, and change one behind the server's back."""

from collections.abc import Callable
from typing import TypeAlias

from sqlalchemy import Connection, create_engine, inspect, text

DatabaseUrls: TypeAlias = Callable[[int], list[str]]
"""The URLs of as many new databases (fixture ``database_urls``)."""


def change(database_url: str, statement: str, **values: object) -> None:
    """Run a statement that changes rows, with the guards of all tables taken away first."""
    engine = create_engine(database_url)
    try:
        with engine.begin() as connection:
            _unguard(connection)
            assert connection.execute(text(statement), values).rowcount > 0
    finally:
        engine.dispose()


def _unguard(connection: Connection) -> None:
    if connection.dialect.name == "sqlite":
        for name in connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).scalars().all():
            connection.execute(text(f'DROP TRIGGER "{name}"'))
    else:
        for name in inspect(connection).get_table_names():
            connection.execute(text(f'ALTER TABLE "{name}" DISABLE TRIGGER USER'))
