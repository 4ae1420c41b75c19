"""The tables, their constraints and their triggers: the truth about the schema.

``migrations/`` must arrive at exactly this; ``tests/contract/test_schema.py`` holds the two to each other on
both databases. What the tables themselves refuse, no fault of the program can write:

* a transaction without its model's row or its attachment (foreign keys);
* two transactions of one arrival or of one id;
* any change of a transaction, an attachment or a member's act (triggers). Selections may go, and a model be marked as
  pruned or not.

Ids are 32 raw bytes, not 64 digits: half as long in every index, and what the header holds. Nothing refers to
``model_pieces``: models may as well lie in a directory or a bucket (``store.blobs``).
"""

from typing import Any, Final

from sqlalchemy import (
    DDL,
    BigInteger,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    event,
)

PIECE_BYTES: Final = 1 << 20
"""Bytes of a model in one row; readers and writers of one database must agree on it."""

IMMUTABLE: Final = ("transactions", "attachments", "acts", "act_signatures")
"""Tables whose rows never change and never go."""

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite gives a table the integer as its row number only when it is called INTEGER.
_Big = BigInteger().with_variant(Integer, "sqlite")


def _bytes(name: str, *rest: Any, nullable: bool = False) -> Column[bytes]:
    return Column(name, LargeBinary, *rest, nullable=nullable)


def _long(column: str, size: int) -> CheckConstraint:
    return CheckConstraint(f"length({column}) = {size}", name=f"{column}_size")


journal = Table(
    "journal",
    metadata,
    # One row, written with genesis.
    Column("number", Integer, primary_key=True, autoincrement=False),
    # Names the order of arrival: it changes when the database was put back from a copy.
    _bytes("epoch"),
    # Names the models' directory or bucket as this journal's; never changes.
    _bytes("id"),
    Column("models", String(16), nullable=False),
    CheckConstraint("number = 1", name="one_row"),
    _long("epoch", 16),
    _long("id", 16),
    CheckConstraint("models IN ('database', 'directory', 's3')", name="models_known"),
)

models = Table(
    "models",
    metadata,
    Column("digest", LargeBinary, primary_key=True),
    Column("size", BigInteger, nullable=False),
    # When the bytes were dropped by decision; null: they are here, also when they were published again since.
    Column("pruned_at_ms", BigInteger, nullable=True),
    _long("digest", 32),
    CheckConstraint("size > 0", name="size_positive"),
    sqlite_with_rowid=False,
)

model_pieces = Table(
    "model_pieces",
    metadata,
    Column("digest", LargeBinary, nullable=False),
    Column("number", Integer, nullable=False),
    Column("data", LargeBinary, nullable=False),
    PrimaryKeyConstraint("digest", "number"),
    _long("digest", 32),
    CheckConstraint(f"length(data) BETWEEN 1 AND {PIECE_BYTES}", name="data_size"),
    sqlite_with_rowid=False,
)

attachments = Table(
    "attachments",
    metadata,
    Column("digest", LargeBinary, primary_key=True),
    Column("data", LargeBinary, nullable=False),
    _long("digest", 32),
    sqlite_with_rowid=False,
)

selections = Table(
    "selections",
    metadata,
    Column("digest", LargeBinary, primary_key=True),
    Column("kept_at_ms", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
    _long("digest", 32),
    sqlite_with_rowid=False,
)

transactions = Table(
    "transactions",
    metadata,
    Column("arrival", _Big, primary_key=True, autoincrement=False),
    _bytes("id"),
    _bytes("header"),
    _bytes("author_signature", nullable=True),
    _bytes("receipt"),
    _bytes("model_digest", ForeignKey("models.digest")),
    _bytes("attachment_digest", ForeignKey("attachments.digest"), nullable=True),
    Column("norm", Double, nullable=False),
    Column("received_at_ms", BigInteger, nullable=False),
    _long("id", 32),
    _long("author_signature", 64),
    _long("receipt", 112),
    CheckConstraint("arrival >= 0", name="arrival_not_negative"),
    CheckConstraint("norm >= 0", name="norm_not_negative"),
    Index("uq_transactions_id", "id", unique=True),
)

acts = Table(
    "acts",
    metadata,
    Column("id", LargeBinary, primary_key=True),
    _bytes("act"),
    _long("id", 32),
    sqlite_with_rowid=False,
)

act_signatures = Table(
    "act_signatures",
    metadata,
    _bytes("act", ForeignKey("acts.id")),
    _bytes("signer"),
    _bytes("signature"),
    PrimaryKeyConstraint("act", "signer"),
    _long("signer", 32),
    _long("signature", 64),
    sqlite_with_rowid=False,
)


def sqlite_triggers() -> list[str]:
    """Statements that make the triggers on SQLite. A REPLACE is caught by ``PRAGMA recursive_triggers=ON``."""
    return [
        f"CREATE TRIGGER {table}_no_{verb} BEFORE {verb.upper()} ON {table} "
        f"BEGIN SELECT RAISE(ABORT, '{table} never change'); END"
        for table in IMMUTABLE
        for verb in ("update", "delete")
    ]


def postgresql_triggers() -> list[str]:
    """Statements that make the triggers, and how blobs are kept, on PostgreSQL."""
    statements = [
        """\
CREATE FUNCTION ledger_never_changes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% never change', TG_TABLE_NAME USING ERRCODE = 'integrity_constraint_violation';
END $$"""
    ]
    for table in IMMUTABLE:
        for trigger, when, each in (("change", "UPDATE OR DELETE", "ROW"), ("truncate", "TRUNCATE", "STATEMENT")):
            statements.append(
                f"CREATE TRIGGER {table}_no_{trigger} BEFORE {when} ON {table} "
                f"FOR EACH {each} EXECUTE FUNCTION ledger_never_changes()"
            )
    # Weights do not compress; trying would cost most of the time of a write.
    statements.append("ALTER TABLE model_pieces ALTER COLUMN data SET STORAGE EXTERNAL")
    return statements


for _name, _statements in (("sqlite", sqlite_triggers()), ("postgresql", postgresql_triggers())):
    for _statement in _statements:
        _made = DDL(_statement.replace("%", "%%"))  # type: ignore[no-untyped-call]
        event.listen(metadata, "after_create", _made.execute_if(dialect=_name))
