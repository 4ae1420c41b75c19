"""Runs the steps on the connection that ``ledger_server.store.schema`` hands over, or, for a developer's
``alembic`` command in a checkout, on the database of the settings.

Each run is one transaction under the writer's lock: all steps or none, and never beside a server that writes.
"""

from alembic import context
from sqlalchemy import Connection

from ledger_server.settings import load_settings
from ledger_server.store.engine import make_engine, parse_url, writing
from ledger_server.store.tables import metadata


def run(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        # Better to fail than to queue behind a long query and block everybody who comes after.
        connection.exec_driver_sql("SET LOCAL lock_timeout = '10s'")
        connection.exec_driver_sql("SET LOCAL statement_timeout = '15min'")
    context.configure(
        connection=connection,
        target_metadata=metadata,
        compare_type=True,
        compare_server_default=True,
        render_as_batch=connection.dialect.name == "sqlite",
        transactional_ddl=True,
    )
    with context.begin_transaction():
        context.run_migrations()


if context.is_offline_mode():
    raise SystemExit("migrations need the database; --sql is not supported")

given = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    engine = make_engine(parse_url(load_settings().resolved_database_url), inspecting=True)
    with writing(engine) as opened:
        run(opened)
    engine.dispose()
