"""What clients were told lately: selections that nobody has published yet, and of what an average is the average.

Kept for a while, and forgotten by age and by number.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from sqlalchemy import Connection, Delete, Table, bindparam, delete, or_, select, text

from fl_core.types import Digest, TxId, digest_of
from ledger_server.store.tables import averages, selections

# Statements are built once: SQLAlchemy then finds their SQL by identity instead of compiling it.
_KEEP: Final = text(
    "INSERT INTO selections (digest, kept_at_ms, data) SELECT :digest, :kept_at_ms, :data "
    "WHERE NOT EXISTS (SELECT 1 FROM attachments WHERE digest = :digest) "
    "ON CONFLICT (digest) DO UPDATE SET kept_at_ms = excluded.kept_at_ms "
    "WHERE selections.kept_at_ms < excluded.kept_at_ms"
).bindparams(*(bindparam(each.name, type_=each.type) for each in selections.c))
_KEEP_AVERAGE: Final = text(
    "INSERT INTO averages (digest, kept_at_ms, parents) VALUES (:digest, :kept_at_ms, :parents) "
    "ON CONFLICT (digest) DO UPDATE SET kept_at_ms = excluded.kept_at_ms "
    "WHERE averages.kept_at_ms < excluded.kept_at_ms"
).bindparams(*(bindparam(each.name, type_=each.type) for each in averages.c))
_ADOPT: Final = delete(selections).where(selections.c.digest == bindparam("of"))
_AVERAGED: Final = select(averages.c.parents).where(averages.c.digest == bindparam("digest"))


def _forgetting(table: Table) -> Delete:
    newest = select(table.c.digest).order_by(table.c.kept_at_ms.desc(), table.c.digest).limit(bindparam("keep"))
    return delete(table).where(or_(table.c.kept_at_ms < bindparam("before"), table.c.digest.not_in(newest)))


_FORGET: Final = (_forgetting(selections), _forgetting(averages))


def keep(
    connection: Connection, evidences: Sequence[bytes], averaged: Mapping[Digest, Sequence[TxId]], *, now_ms: int
) -> None:
    # In one order, as two who keep the same in two orders would wait for each other.
    told = sorted((digest_of(each), each) for each in evidences)
    if told:
        connection.execute(_KEEP, [{"digest": digest, "kept_at_ms": now_ms, "data": data} for digest, data in told])
    rows = [
        {"digest": digest, "kept_at_ms": now_ms, "parents": b"".join(map(bytes.fromhex, parents))}
        for digest, parents in sorted(averaged.items())
    ]
    if rows:
        connection.execute(_KEEP_AVERAGE, rows)


def averaged(connection: Connection, digest: Digest) -> tuple[TxId, ...] | None:
    """The updates of which this is the average, as somebody was told lately."""
    ids: bytes | None = connection.execute(_AVERAGED, {"digest": digest}).scalar_one_or_none()
    return None if ids is None else tuple(TxId(ids[at : at + 32].hex()) for at in range(0, len(ids), 32))


def forget(connection: Connection, *, before_ms: int, keep: int) -> int:
    return sum(connection.execute(each, {"before": before_ms, "keep": keep}).rowcount for each in _FORGET)


def adopt(connection: Connection, digests: Iterable[Digest]) -> None:
    """Selections were published: from now on they are the ledger's, and never forgotten. In the order of ``keep``."""
    if rows := [{"of": digest} for digest in sorted(digests)]:
        connection.execute(_ADOPT, rows)
