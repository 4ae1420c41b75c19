"""The journal: durable transactions, models and selections in SQLite or PostgreSQL."""

from ledger_server.store.opening import open_store, open_store_of

__all__ = ["open_store", "open_store_of"]
