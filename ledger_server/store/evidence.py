"""Evidence that was archived: its row stays, empty, so that everybody knows that it was here.

What is emptied is in a bundle (``ledger_server.admin.archive``); it comes back when an update carries it again.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import Connection, bindparam, func, select, text, update

from fl_core.types import Digest, TxId
from ledger_server.store.tables import attachments, journal, transactions

ARCHIVED: Final = b""
"""Instead of the evidence that an update names; no evidence is empty."""

# Statements are built once: SQLAlchemy then finds their SQL by identity instead of compiling it.
KEEP: Final = text(
    "INSERT INTO attachments (digest, data) VALUES (:digest, :data) "
    "ON CONFLICT (digest) DO UPDATE SET data = excluded.data WHERE length(attachments.data) = 0"
).bindparams(*(bindparam(each.name, type_=each.type) for each in attachments.c))
"""Keep an attachment that is not here, or was archived."""
_REACHES = update(journal).where(journal.c.archived < bindparam("reaches")).values(archived=bindparam("reaches"))
_HERE = select(attachments.c.digest, func.length(attachments.c.data)).where(
    attachments.c.digest.in_(bindparam("digests", expanding=True)), func.length(attachments.c.data) > 0
)
_TO_EMPTY = _HERE.where(
    # What came after the caller had looked may carry one of these.
    attachments.c.digest.not_in(
        select(transactions.c.attachment_digest).where(
            transactions.c.arrival >= bindparam("known"), transactions.c.attachment_digest.is_not(None)
        )
    )
)
_EMPTY = update(attachments).where(attachments.c.digest == bindparam("of")).values(data=ARCHIVED)
_NAMED = (
    select(transactions.c.arrival, transactions.c.id, transactions.c.attachment_digest)
    .where(transactions.c.arrival > bindparam("after"))
    .order_by(transactions.c.arrival)
    .limit(bindparam("limit"))
)


class Named(NamedTuple):
    """An update, and the attachment that it names; None for none."""

    arrival: int
    transaction: TxId
    attachment: Digest | None


def reaches(connection: Connection, arrival: int) -> None:
    """Note that the evidence of the update of this arrival is archived."""
    connection.execute(_REACHES, {"reaches": arrival + 1})


def here(connection: Connection, digests: Sequence[Digest]) -> dict[Digest, int]:
    """Those that are here, and their sizes in bytes."""
    return dict(connection.execute(_HERE, {"digests": digests}).all())


def empty(connection: Connection, digests: Sequence[Digest], *, known: int) -> dict[Digest, int]:
    """Empty those that no update of arrival ``known`` or later carries; which, and the sizes that they had."""
    found = dict(connection.execute(_TO_EMPTY, {"digests": digests, "known": known}).all())
    if found:
        connection.execute(_EMPTY, [{"of": digest} for digest in found])
    return found


def named(connection: Connection, *, after: int, limit: int) -> list[Named]:
    """At most ``limit`` updates with arrivals beyond ``after``, in order."""
    return [Named(*row) for row in connection.execute(_NAMED, {"after": after, "limit": limit})]
