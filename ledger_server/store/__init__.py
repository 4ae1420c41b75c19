"""The journal: durable transactions, models and selections in SQLite or PostgreSQL."""

from ledger_server.store.opening import open_store

__all__ = ["open_store"]
