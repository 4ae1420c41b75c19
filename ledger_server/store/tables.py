"""The tables, their constraints and their triggers: the truth about the schema.

``migrations/`` must arrive at exactly this; ``tests/contract/test_schema.py`` holds the two to each other on
both databases. What the tables themselves refuse, no fault of the program can write:

* a transaction without its parents, its model or its attachment (foreign keys);
* a cycle (a parent's arrival is smaller than its child's), or a gap in the arrivals (a trigger);
* any change of what was written (triggers); selections may go, tokens be revoked, and a model's bytes go, or come
  back, while ``prunings`` says that they are not here. Genesis's are never pruned.

Choices:

* Ids are 32 raw bytes, not 64 digits: half as long in every index, and what the header holds.
* Rows point at each other by arrival, a small integer that orders them; only a blob goes by its digest.
* A model lies in pieces of ``PIECE_BYTES``: a range costs only its pieces, no reader holds a connection or a
  snapshot between two reads, and a model may be larger than a database lets one value be.
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

IMMUTABLE: Final = ("transactions", "parents", "models", "model_pieces", "attachments")
"""Tables whose rows never change and never go; of a pruned model the pieces may go and the place may change."""

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


def _digest(name: str, *rest: Any, nullable: bool = False) -> Column[bytes]:
    return Column(name, LargeBinary, *rest, nullable=nullable)


def _long(column: str, size: int, *, name: str | None = None) -> CheckConstraint:
    return CheckConstraint(f"length({column}) = {size}", name=name or f"{column}_size")


models = Table(
    "models",
    metadata,
    # The arrival of the transaction that brought the model: a number without a counter of its own.
    Column("arrival", _Big, primary_key=True, autoincrement=False),
    _digest("digest"),
    Column("size", BigInteger, nullable=False),
    # Where it lies in a blob store (``store.blobs``): segments count from 1, 0 is found by its digest. Null: in pieces.
    Column("segment", Integer, nullable=True),
    Column("starts_at", BigInteger, nullable=True),
    _long("digest", 32),
    CheckConstraint("size > 0", name="size_positive"),
    Index("uq_models_digest", "digest", unique=True),
)

model_pieces = Table(
    "model_pieces",
    metadata,
    Column("model", _Big, ForeignKey("models.arrival"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("data", LargeBinary, nullable=False),
    PrimaryKeyConstraint("model", "number"),
    CheckConstraint(f"length(data) BETWEEN 1 AND {PIECE_BYTES}", name="data_size"),
    sqlite_with_rowid=False,
)

journal = Table(
    "journal",
    metadata,
    # One row, written with genesis. The epoch changes when the database was put back from a copy.
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("epoch", LargeBinary, nullable=False),
    CheckConstraint("number = 1", name="one_row"),
    _long("epoch", 16),
)

prunings = Table(
    "prunings",
    metadata,
    # The bytes of this model are not here, by decision. The row goes when a publication brings them again.
    Column("model", _Big, ForeignKey("models.arrival"), primary_key=True, autoincrement=False),
    Column("pruned_at_ms", BigInteger, nullable=False),
    CheckConstraint("model > 0", name="not_genesis"),
)

drops = Table(
    "drops",
    metadata,
    # Bytes of pruned models that a blob store still has to give back; segment 0: it goes by the digest.
    Column("model", _Big, ForeignKey("models.arrival"), nullable=False),
    Column("segment", Integer, nullable=False),
    Column("starts_at", BigInteger, nullable=False),
    PrimaryKeyConstraint("model", "segment", "starts_at"),
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
    _digest("id"),
    Column("header", LargeBinary, nullable=False),
    Column("author_signature", LargeBinary, nullable=True),
    Column("receipt", LargeBinary, nullable=False),
    _digest("model_digest", ForeignKey("models.digest")),
    _digest("attachment_digest", ForeignKey("attachments.digest"), nullable=True),
    Column("norm", Double, nullable=False),
    Column("received_at_ms", BigInteger, nullable=False),
    _long("id", 32),
    _long("author_signature", 64),
    _long("receipt", 112),
    CheckConstraint("arrival >= 0", name="arrival_not_negative"),
    CheckConstraint("norm >= 0", name="norm_not_negative"),
    Index("uq_transactions_id", "id", unique=True),
)

parents = Table(
    "parents",
    metadata,
    Column("child", _Big, ForeignKey("transactions.arrival"), nullable=False),
    Column("parent", _Big, ForeignKey("transactions.arrival"), nullable=False),
    PrimaryKeyConstraint("child", "parent"),
    CheckConstraint("parent < child", name="parent_before_child"),
    sqlite_with_rowid=False,
)

tokens = Table(
    "tokens",
    metadata,
    # Of a bearer token only its SHA-256; the token itself is shown once and kept nowhere.
    Column("digest", LargeBinary, primary_key=True),
    Column("name", String(64), nullable=False),
    Column("scope", String(16), nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("expires_at_ms", BigInteger, nullable=True),
    Column("revoked_at_ms", BigInteger, nullable=True),
    _long("digest", 32),
    CheckConstraint("scope IN ('client', 'operator')", name="scope_known"),
    sqlite_with_rowid=False,
)


_UNLESS_PRUNED: Final = {
    ("models", "update"): (
        "WHEN NOT (NEW.arrival = OLD.arrival AND NEW.digest = OLD.digest AND NEW.size = OLD.size "
        "AND EXISTS (SELECT 1 FROM prunings WHERE model = OLD.arrival)) "
    ),
    ("model_pieces", "delete"): "WHEN NOT EXISTS (SELECT 1 FROM prunings WHERE model = OLD.model) ",
}


def sqlite_triggers() -> list[str]:
    """Statements that make the triggers on SQLite. A REPLACE is caught by ``PRAGMA recursive_triggers=ON``."""
    statements = [
        f"CREATE TRIGGER {table}_no_{verb} BEFORE {verb.upper()} ON {table} {_UNLESS_PRUNED.get((table, verb), '')}"
        f"BEGIN SELECT RAISE(ABORT, '{table} never change'); END"
        for table in IMMUTABLE
        for verb in ("update", "delete")
    ]
    statements.append(
        "CREATE TRIGGER transactions_in_order BEFORE INSERT ON transactions "
        "WHEN NEW.arrival <> (SELECT coalesce(max(arrival) + 1, 0) FROM transactions) "
        "BEGIN SELECT RAISE(ABORT, 'arrivals have no gaps'); END"
    )
    return statements


_NEVER_CHANGES: Final = """\
CREATE FUNCTION ledger_never_changes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% never change', TG_TABLE_NAME USING ERRCODE = 'integrity_constraint_violation';
END $$"""
_ARRIVES_IN_ORDER: Final = """\
CREATE FUNCTION ledger_arrives_in_order() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.arrival <> (SELECT coalesce(max(arrival) + 1, 0) FROM transactions) THEN
        RAISE EXCEPTION 'arrivals have no gaps' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$"""


_MODELS_STAY: Final = """\
CREATE FUNCTION ledger_models_stay() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF NEW.arrival = OLD.arrival AND NEW.digest = OLD.digest AND NEW.size = OLD.size
            AND EXISTS (SELECT 1 FROM prunings WHERE model = OLD.arrival) THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION 'models never change' USING ERRCODE = 'integrity_constraint_violation';
END $$"""
_PIECES_STAY: Final = """\
CREATE FUNCTION ledger_pieces_stay() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND EXISTS (SELECT 1 FROM prunings WHERE model = OLD.model) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'model_pieces never change' USING ERRCODE = 'integrity_constraint_violation';
END $$"""
_GUARDED_BY: Final = {"models": "ledger_models_stay", "model_pieces": "ledger_pieces_stay"}


def postgresql_triggers() -> list[str]:
    """Statements that make the triggers, and how blobs are kept, on PostgreSQL."""
    in_order = "CREATE TRIGGER transactions_in_order BEFORE INSERT ON transactions"
    statements = [
        _NEVER_CHANGES,
        _ARRIVES_IN_ORDER,
        _MODELS_STAY,
        _PIECES_STAY,
        f"{in_order} FOR EACH ROW EXECUTE FUNCTION ledger_arrives_in_order()",
    ]
    for table in IMMUTABLE:
        changed = _GUARDED_BY.get(table, "ledger_never_changes")
        for trigger, when, each, function in (
            ("change", "UPDATE OR DELETE", "ROW", changed),
            ("truncate", "TRUNCATE", "STATEMENT", "ledger_never_changes"),
        ):
            statements.append(
                f"CREATE TRIGGER {table}_no_{trigger} BEFORE {when} ON {table} "
                f"FOR EACH {each} EXECUTE FUNCTION {function}()"
            )
    # Weights do not compress; trying would cost most of the time of a write.
    statements.append("ALTER TABLE model_pieces ALTER COLUMN data SET STORAGE EXTERNAL")
    return statements


for _name, _statements in (("sqlite", sqlite_triggers()), ("postgresql", postgresql_triggers())):
    for _statement in _statements:
        _made = DDL(_statement.replace("%", "%%"))  # type: ignore[no-untyped-call]
        event.listen(metadata, "after_create", _made.execute_if(dialect=_name))
