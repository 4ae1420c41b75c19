"""Selections that nobody has published yet: kept for a while, forgotten by age and by number."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, bindparam, delete, or_, select, text

from fl_core.types import Digest, digest_of
from ledger_server.store.tables import selections

# Statements are built once: SQLAlchemy then finds their SQL by identity instead of compiling it.
_KEEP: Final = text(
    "INSERT INTO selections (digest, kept_at_ms, data) SELECT :digest, :kept_at_ms, :data "
    "WHERE NOT EXISTS (SELECT 1 FROM attachments WHERE digest = :digest) "
    "ON CONFLICT (digest) DO UPDATE SET kept_at_ms = excluded.kept_at_ms "
    "WHERE selections.kept_at_ms < excluded.kept_at_ms"
).bindparams(*(bindparam(each.name, type_=each.type) for each in selections.c))
_NEWEST: Final = (
    select(selections.c.digest).order_by(selections.c.kept_at_ms.desc(), selections.c.digest).limit(bindparam("keep"))
)
_FORGET: Final = delete(selections).where(
    or_(selections.c.kept_at_ms < bindparam("before"), selections.c.digest.not_in(_NEWEST))
)
_ADOPT: Final = delete(selections).where(selections.c.digest == bindparam("of"))


def keep(connection: Connection, evidences: Sequence[bytes], *, now_ms: int) -> None:
    rows = [{"digest": digest_of(each), "kept_at_ms": now_ms, "data": each} for each in evidences]
    connection.execute(_KEEP, rows)


def forget(connection: Connection, *, before_ms: int, keep: int) -> int:
    return connection.execute(_FORGET, {"before": before_ms, "keep": keep}).rowcount


def adopt(connection: Connection, digest: Digest) -> None:
    """A selection was published: from now on it is the ledger's, and never forgotten."""
    connection.execute(_ADOPT, {"of": digest})
