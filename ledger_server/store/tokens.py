"""Where tokens are kept: a table of the ledger's database, written by ``dag-acfl tokens``, read by the server."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Row, RowMapping, func, insert, or_, select, update

from fl_core.errors import ParameterError
from ledger_server.store.engine import make_engine, our_errors, parse_url, writing
from ledger_server.store.schema import require_current
from ledger_server.store.tables import tokens
from ledger_server.tokens import Scope, TokenRecord

MAX_TOKENS: Final = 10_000
"""Most tokens that are not revoked: a server reads them all, twice a second when it is asked."""
MAX_NAME_CHARACTERS: Final = 64


class TokenStore:
    """The tokens of one server's database. Safe to share between threads and processes; close it.

    Args:
        database_url: Of a database that has the tables of this program.

    Raises:
        StoreError: It cannot be opened, or is older or newer than this program.
    """

    def __init__(self, database_url: str) -> None:
        self._engine = make_engine(parse_url(database_url))
        try:
            require_current(self._engine)
        except BaseException:
            self._engine.dispose()
            raise

    def add(self, record: TokenRecord) -> None:
        """Keep a new token.

        Raises:
            ParameterError: A token that is not revoked has this name, or is this one; or there are ``MAX_TOKENS``.
            StoreError: The database does not do it.
        """
        taken = or_(tokens.c.digest == record.digest, (tokens.c.name == record.name) & tokens.c.revoked_at_ms.is_(None))
        with our_errors("the token cannot be kept"), writing(self._engine) as connection:
            if connection.execute(select(tokens.c.digest).where(taken)).first() is not None:
                raise ParameterError(f"there is a token {record.name!r} already, or this very token; revoke that first")
            valid = select(func.count()).select_from(tokens).where(tokens.c.revoked_at_ms.is_(None))
            if connection.execute(valid).scalar_one() >= MAX_TOKENS:
                raise ParameterError(f"there are {MAX_TOKENS} tokens, as many as there may be; revoke some")
            connection.execute(
                insert(tokens).values(
                    digest=record.digest,
                    name=record.name,
                    scope=record.scope.value,
                    created_at_ms=record.created_at_ms,
                    expires_at_ms=record.expires_at_ms,
                    revoked_at_ms=record.revoked_at_ms,
                )
            )

    def all(self) -> Sequence[TokenRecord]:
        """Every token that was ever kept, oldest first.

        Raises:
            StoreError: The database cannot be read.
        """
        with our_errors("the tokens cannot be read"), self._engine.connect() as connection:
            rows = connection.execute(select(tokens).order_by(tokens.c.created_at_ms, tokens.c.digest)).all()
        return [_record(row) for row in rows]

    def unrevoked(self) -> Sequence[TokenRecord]:
        """The tokens that a server has to know.

        Raises:
            StoreError: The database cannot be read.
        """
        with our_errors("the tokens cannot be read"), self._engine.connect() as connection:
            rows = connection.execute(select(tokens).where(tokens.c.revoked_at_ms.is_(None))).all()
        return [_record(row) for row in rows]

    def revoke(self, name_or_id: str, *, now_ms: int) -> TokenRecord:
        """Revoke the token of this name or id, for good; durable when it returns.

        Raises:
            ParameterError: No token that is not revoked has this name or id, or several do.
            StoreError: The database does not do it.
        """
        with our_errors("the token cannot be revoked"), writing(self._engine) as connection:
            rows = connection.execute(select(tokens).where(tokens.c.revoked_at_ms.is_(None))).all()
            meant = [each for each in map(_record, rows) if name_or_id in (each.name, each.id)]
            if len(meant) != 1:
                fault = "no token that is not revoked has" if not meant else "several tokens have"
                raise ParameterError(f"{fault} the name or id {name_or_id[:64]!r}; see: dag-acfl tokens list")
            connection.execute(update(tokens).where(tokens.c.digest == meant[0].digest).values(revoked_at_ms=now_ms))
        return meant[0]

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()


def _record(row: "Row[tuple[object, ...]]") -> TokenRecord:
    values: RowMapping = row._mapping  # noqa: SLF001 (SQLAlchemy's public name for it)
    return TokenRecord(
        digest=bytes(values["digest"]),
        name=values["name"],
        scope=Scope(values["scope"]),
        created_at_ms=values["created_at_ms"],
        expires_at_ms=values["expires_at_ms"],
        revoked_at_ms=values["revoked_at_ms"],
    )
