"""Append transactions to the journal inside a write transaction: few statements, however many there are.

All other writers wait meanwhile, and every statement hands the interpreter to another thread. So one statement asks for
all that must be known beforehand, and what is written goes to PostgreSQL without a wait for each.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import (
    Connection,
    Table,
    bindparam,
    case,
    delete,
    func,
    insert,
    literal_column,
    null,
    select,
    union_all,
    update,
)

from fl_core.dag.graph import bounded_by
from fl_core.models import Buffer
from fl_core.types import ZERO_ID, Digest, TxId, digest_of
from ledger_server.store import evidence, pending
from ledger_server.store.blobs.protocol import BlobStore
from ledger_server.store.engine import together
from ledger_server.store.errors import StoreInconsistentError
from ledger_server.store.stored import STORED, StoredTransaction, stored_of
from ledger_server.store.tables import attachments, models, padded, sketches, transactions


@dataclass(frozen=True, slots=True)
class Entry:
    """A transaction to be appended, with what it names.

    Attributes:
        stored: Admitted; its parents are stored, or stand before it among those that are appended with it.
        model: The bytes of its header's ``model_digest``; None: recorded as pruned, unless they are here.
        attachment: The bytes of its header's ``attachment_digest``; None when it has none, empty when it is archived.
        sketch: What is compared of the model, where that is a sketch; None: it is to be found again in the model.
    """

    stored: StoredTransaction
    model: Buffer | None
    attachment: bytes | None
    sketch: bytes | None = None


# Statements are built once: SQLAlchemy then finds their SQL by identity instead of compiling it.
_PARENT, _MODEL, _ATTACHMENT = range(3)
_BEFORE: Final = union_all(
    select(literal_column(f"{_PARENT}"), transactions.c.id, transactions.c.depth).where(
        transactions.c.id.in_(bindparam("parents", expanding=True))
    ),
    select(
        literal_column(f"{_MODEL}"),
        models.c.digest,
        case((models.c.pruned_at_ms.is_(None) & models.c.base.is_(None), 1), else_=0),
    ).where(models.c.digest.in_(bindparam("models", expanding=True))),
    select(literal_column(f"{_ATTACHMENT}"), attachments.c.digest, null()).where(
        attachments.c.digest.in_(bindparam("attachments", expanding=True)), func.length(attachments.c.data) > 0
    ),
)
_BY_IDS: Final = select(*STORED).where(transactions.c.id.in_(bindparam("ids", expanding=True)))
SET_WHOLE: Final = (
    update(models).where(models.c.digest == bindparam("of")).values(pruned_at_ms=None, base=None, packed_size=None)
)
DROP_SKETCHES: Final = delete(sketches).where(sketches.c.model.in_(bindparam("models", expanding=True)))
_ADD: Final = {table: insert(table) for table in (models, sketches, transactions)}


def append(connection: Connection, blobs: BlobStore, entries: Sequence[Entry]) -> None:
    """Write transactions with what they name, behind all that the journal holds.

    A model or attachment that is here already is not written again, a pruned or packed model is; a selection becomes
    part of the ledger and is no longer forgotten.

    Raises:
        StoreInconsistentError: A parent is not stored, or a size does not agree.
    """
    for entry in entries:
        _check(entry)
    before = _Before(connection, entries)
    places = _places(connection, entries, before.depths)
    with together(connection):
        _write_models(connection, blobs, entries, before.is_whole)
        told = _keep_attachments(connection, entries, before.attached)
        _add(connection, transactions, [_row(*each) for each in zip(entries, places, strict=True)])
        pending.adopt(connection, told)


def _check(entry: Entry) -> None:
    header, model = entry.stored.transaction.header, entry.model
    if model is not None and len(model) != header.model_size:
        raise StoreInconsistentError(f"the header names {header.model_size} bytes of model, {len(model)} came")
    if (entry.attachment is None) != (header.attachment_digest == ZERO_ID):
        raise StoreInconsistentError("an attachment comes exactly when the header names one")


class _Before:
    """What is here already of what entries name.

    Attributes:
        depths: Of their parents.
        is_whole: Of each of their models, whether its bytes are here and not coded.
        attached: Of their attachments, which are here.
    """

    def __init__(self, connection: Connection, entries: Iterable[Entry]) -> None:
        headers = [entry.stored.transaction.header for entry in entries]
        asked = {
            "parents": padded({parent for header in headers for parent in header.parents}),
            "models": padded({header.model_digest for header in headers}),
            "attachments": padded({header.attachment_digest for header in headers}),
        }
        self.depths: dict[TxId, int] = {}
        self.is_whole: dict[Digest, bool] = {}
        self.attached: set[Digest] = set()
        for kind, name, value in connection.execute(_BEFORE, asked):
            if kind == _PARENT:
                self.depths[name] = value
            elif kind == _MODEL:
                self.is_whole[name] = value == 1
            else:
                self.attached.add(name)


def _places(connection: Connection, entries: Sequence[Entry], depths: dict[TxId, int]) -> list[StoredTransaction]:
    """New transactions with their places in the DAG, by their parents, which are stored or stand before them.

    Raises:
        StoreInconsistentError: A parent is neither.
    """
    headers = [entry.stored.transaction.header for entry in entries]
    only = {header.parents[0] for header in headers if len(header.parents) == 1 and depths.get(header.parents[0])}
    rows = connection.execute(_BY_IDS, {"ids": padded(only)}).all() if only else []
    alone = {TxId(stored.stored_id or ""): stored for stored in map(stored_of, rows)}
    placed = []
    for entry, header in zip(entries, headers, strict=True):
        if missing := sum(parent not in depths for parent in header.parents):
            raise StoreInconsistentError(f"{missing} of {len(header.parents)} parents are not stored")
        depth = 1 + max((depths[parent] for parent in header.parents), default=-1)
        parent = alone.get(header.parents[0]) if len(header.parents) == 1 else None
        bounds = None if parent is None else bounded_by([parent.node], header.author)
        new = replace(entry.stored, depth=depth, bounded_by=None if bounds == header.parents else bounds)
        depths[new.transaction.id], alone[new.transaction.id] = depth, new
        placed.append(new)
    return placed


def _write_models(
    connection: Connection, blobs: BlobStore, entries: Sequence[Entry], is_whole: dict[Digest, bool]
) -> None:
    """Store new transactions' models, or record that nobody has them; each once."""
    rows, again = [], []
    folded: dict[Digest, bytes] = {}
    for entry in entries:
        header, model = entry.stored.transaction.header, entry.model
        digest = header.model_digest
        if (known := is_whole.get(digest)) or (known is not None and model is None):
            continue
        is_whole[digest] = model is not None
        if known is None:
            pruned_at_ms = entry.stored.received_at_ms if model is None else None
            rows.append({"digest": digest, "size": header.model_size, "pruned_at_ms": pruned_at_ms})
        if model is not None:
            if known is None:
                blobs.put(connection, digest, model)
            else:  # what lies there may be coded by a model that has gone
                blobs.replace(connection, digest, model)
                again.append({"of": digest})
            if entry.sketch is not None:
                folded[digest] = entry.sketch
    _add(connection, models, rows)
    if again:
        connection.execute(SET_WHOLE, again)
    if folded:
        connection.execute(DROP_SKETCHES, {"models": padded(folded)})  # one may have been packed
        about = [{"model": each, "digest": digest_of(sketch), "data": sketch} for each, sketch in folded.items()]
        _add(connection, sketches, about)


def _keep_attachments(connection: Connection, entries: Sequence[Entry], here: Container[Digest]) -> list[Digest]:
    """Store what new transactions name and is not here, or was archived; returns what they name."""
    told: dict[Digest, bytes] = {}
    last: dict[Digest, int] = {}  # the arrival of the last that names it
    for entry in entries:
        if entry.attachment is not None:
            digest = entry.stored.transaction.header.attachment_digest
            told[digest], last[digest] = told.get(digest) or entry.attachment, entry.stored.arrival
    if lacking := {digest: data for digest, data in told.items() if digest not in here}:
        connection.execute(evidence.KEEP, [{"digest": digest, "data": data} for digest, data in lacking.items()])
    if archived := [last[digest] for digest, data in lacking.items() if data == evidence.ARCHIVED]:
        evidence.reaches(connection, max(archived))
    return list(told)


def _row(entry: Entry, new: StoredTransaction) -> dict[str, Any]:
    transaction, header = new.transaction, new.transaction.header
    bounds = new.bounded_by
    return {
        "arrival": new.arrival,
        "id": transaction.id,
        "header": transaction.header_bytes,
        "author_signature": transaction.author_signature,
        "receipt": transaction.receipt.encode(),
        "model_digest": header.model_digest,
        "attachment_digest": None if entry.attachment is None else header.attachment_digest,
        "figures": new.figures,
        "received_at_ms": new.received_at_ms,
        "depth": new.depth,
        "bounded_by": None if bounds is None else b"".join(map(bytes.fromhex, bounds)),
    }


def _add(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    if rows:
        connection.execute(_ADD[table], rows)
