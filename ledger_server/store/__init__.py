"""The journal: durable transactions, models and selections in SQLite or PostgreSQL."""
