"""This server's journal as its peers see it: ids in order of arrival, and transactions as they travel."""

from collections.abc import Sequence
from itertools import islice

from fl_core.sync.messages import TransactionBundle
from fl_core.types import ZERO_ID, TxId
from ledger_server.publishing import LedgerService


class ServiceJournal:
    """See ``fl_core.sync.responder.Journal``.

    Args:
        service: The ledger; its graph keeps the order of arrival, its store the epoch.
    """

    def __init__(self, service: LedgerService) -> None:
        self._service = service
        self._arrivals: list[TxId] = []

    @property
    def epoch(self) -> str:
        return self._service.epoch

    def count(self) -> int:
        self._catch_up()
        return len(self._arrivals)

    def ids_from(self, arrival: int, limit: int) -> Sequence[TxId]:
        self._catch_up()
        return self._arrivals[arrival : arrival + limit]

    def _catch_up(self) -> None:
        """The graph is iterated from where this list ends; it only ever grows at its end."""
        missing = len(self._service.ledger) - len(self._arrivals)
        if missing:
            with self._service.lock:
                newest = islice(reversed(self._service.ledger.graph), missing)
                self._arrivals += reversed([node.id for node in newest])

    def bundle(self, transaction: TxId) -> TransactionBundle | None:
        """See ``Journal.bundle``; reads the database."""
        if transaction not in self._service.ledger:
            return None
        stored = self._service.store.transaction(transaction)
        if stored is None:
            return None
        header = stored.transaction.header
        attachment = None
        if header.attachment_digest != ZERO_ID and header.parents:
            attachment = self._service.store.attachment(header.attachment_digest)
        return TransactionBundle(stored.transaction, attachment)
