"""This server's journal as its peers see it: ids in order of arrival, and transactions as they travel."""

from collections.abc import Sequence

from fl_core.sync.messages import TransactionBundle
from fl_core.types import ZERO_ID, TxId
from ledger_server.publishing import LedgerService


class ServiceJournal:
    """See ``fl_core.sync.responder.Journal``.

    Args:
        service: The ledger; its store keeps the order of arrival, and the epoch.
    """

    def __init__(self, service: LedgerService) -> None:
        self._service = service

    @property
    def epoch(self) -> str:
        return self._service.epoch

    def count(self) -> int:
        return len(self._service.ledger)

    def ids_from(self, arrival: int, limit: int) -> Sequence[TxId]:
        """See ``Journal.ids_from``; reads the database, which may be ahead of what is visible."""
        return self._service.store.ids(start=arrival, limit=min(limit, self.count() - arrival))

    def bundle(self, transaction: TxId) -> TransactionBundle | None:
        """See ``Journal.bundle``; reads the database."""
        stored = self._service.store.transaction(transaction)
        if stored is None or stored.arrival >= self.count():
            return None
        header = stored.transaction.header
        attachment = None
        if header.attachment_digest != ZERO_ID and header.parents:
            attachment = self._service.store.attachment(header.attachment_digest)
        return TransactionBundle(stored.transaction, attachment)
