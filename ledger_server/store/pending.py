"""Selections that nobody has published yet: kept for a while, forgotten by age and by number."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, bindparam, case, delete, exists, insert, or_, select, update

from fl_core.types import Digest, digest_of
from ledger_server.store.tables import attachments, selections

# Statements are built once: SQLAlchemy then finds their SQL by identity instead of compiling it.
_KEEP: Final = (
    insert(selections)
    .from_select(
        ["digest", "kept_at_ms", "data"],
        select(
            bindparam("digest", type_=selections.c.digest.type),
            bindparam("now", type_=selections.c.kept_at_ms.type),
            bindparam("data", type_=selections.c.data.type),
        ).where(
            ~exists().where(attachments.c.digest == bindparam("digest")),
            ~exists().where(selections.c.digest == bindparam("digest")),
        ),
    )
    .execution_options(preserve_rowcount=True)
)
_REFRESH: Final = (
    update(selections)
    .where(selections.c.digest == bindparam("which"))
    .values(
        kept_at_ms=case((selections.c.kept_at_ms < bindparam("now"), bindparam("now")), else_=selections.c.kept_at_ms)
    )
)
_NEWEST: Final = (
    select(selections.c.digest).order_by(selections.c.kept_at_ms.desc(), selections.c.digest).limit(bindparam("keep"))
)
_FORGET: Final = delete(selections).where(
    or_(selections.c.kept_at_ms < bindparam("before"), selections.c.digest.not_in(_NEWEST))
)
_ADOPT: Final = delete(selections).where(selections.c.digest == bindparam("of"))


def keep(connection: Connection, evidences: Sequence[bytes], *, now_ms: int) -> int:
    """See ``Store.keep_selections``."""
    rows = [{"digest": digest_of(each), "now": now_ms, "data": each} for each in evidences]
    new = sum(connection.execute(_KEEP, row).rowcount for row in rows)
    if new < len(rows):
        connection.execute(_REFRESH, [{"which": row["digest"], "now": now_ms} for row in rows])
    return new


def forget(connection: Connection, *, before_ms: int, keep: int) -> int:
    """See ``Store.forget_selections``."""
    return connection.execute(_FORGET, {"before": before_ms, "keep": keep}).rowcount


def adopt(connection: Connection, digest: Digest) -> None:
    """A selection was published: from now on it is the ledger's, and never forgotten."""
    connection.execute(_ADOPT, {"of": digest})
