"""A transaction as a row of the journal."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Column

from fl_core.dag.graph import Node, node_of
from fl_core.dag.receipt import decode_receipt
from fl_core.dag.transaction import Transaction
from fl_core.types import TxId
from ledger_server.store.tables import transactions

STORED: Final[tuple[Column[Any], ...]] = (
    transactions.c.id,
    transactions.c.arrival,
    transactions.c.header,
    transactions.c.author_signature,
    transactions.c.receipt,
    transactions.c.figures,
    transactions.c.received_at_ms,
    transactions.c.depth,
    transactions.c.bounded_by,
)
"""What ``stored_of`` takes apart."""


@dataclass(frozen=True, slots=True)
class StoredTransaction:
    """A transaction as the journal holds it, or is to hold it.

    Args:
        arrival: Its place in this server's order of arrival, from 0 (genesis).
        transaction: Header bytes and signatures, exactly as they were appended.
        figures: What was computed of its model at admission (``fl_core.dag.figures``), so that a replay need not
            read models, which may be pruned.
        received_at_ms: When this server stored it, milliseconds since 1970 UTC.
        depth: See ``fl_core.dag.graph.Node``; the journal finds it when it is appended.
        bounded_by: See there; likewise. None: its parents.
        stored_id: The id that it is kept under: the header's own, unless a disk or a person changed the bytes since.
            ``ledger verify`` compares the two; nothing else relies on it.
    """

    arrival: int
    transaction: Transaction
    figures: bytes
    received_at_ms: int
    depth: int = field(default=0, compare=False)
    bounded_by: tuple[TxId, ...] | None = field(default=None, compare=False)
    stored_id: TxId | None = field(default=None, compare=False)

    @property
    def node(self) -> Node:
        """Its place in the DAG."""
        header = self.transaction.header
        return node_of(
            self.transaction.id,
            header,
            depth=self.depth,
            bounded_by=header.parents if self.bounded_by is None else self.bounded_by,
            recorded=self.figures,
            receipt=self.transaction.receipt,
        )


def stored_of(row: Sequence[Any]) -> StoredTransaction:
    """A row that begins with ``STORED``."""
    # Taken apart at once: a server that starts does this for many transactions, and a row's names are dear.
    identity, arrival, header, author_signature, receipt, figures, received_at_ms, depth, bounds, *_ = row
    transaction = Transaction(header, author_signature, decode_receipt(receipt))
    if bounds is not None:
        bounds = tuple([TxId(bounds[at : at + 32].hex()) for at in range(0, len(bounds), 32)])
    return StoredTransaction(arrival, transaction, figures, received_at_ms, depth, bounds, identity)
