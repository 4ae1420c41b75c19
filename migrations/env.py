"""Runs the steps on the connection that ``ledger_server.store.schema`` hands over.

Each run is one transaction under the writer's lock: all steps or none, and never beside a server that writes.
"""

from alembic import context
from sqlalchemy import Connection

connection: Connection | None = context.config.attributes.get("connection")
if connection is None:
    raise SystemExit("bring a database up to date with: dag-acfl db upgrade")
if connection.dialect.name == "postgresql":
    # Better to fail than to queue behind a long query and block everybody who comes after.
    connection.exec_driver_sql("SET LOCAL lock_timeout = '10s'")
    connection.exec_driver_sql("SET LOCAL statement_timeout = '15min'")
context.configure(connection=connection, render_as_batch=connection.dialect.name == "sqlite", transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
