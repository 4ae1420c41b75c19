"""The tables and their constraints, as statements are built from them.

``migrations/`` must arrive at exactly this; ``tests/contract/test_schema.py`` holds the two to each other on
both databases. What the tables themselves refuse, no fault of the program can write:

* a transaction without its model's row or its attachment (foreign keys);
* two transactions of one arrival or of one id;
* any change of a transaction, an attachment or a member's act (triggers, which the migrations make), but that an
  attachment may be emptied, once an archive holds it, and come back. Selections may go, and a model be marked as pruned
  or not.

Ids are 32 raw bytes (``HexBytes``), not 64 digits: half as long in every index, and what the header holds. Tables of
large rows have SQLite's rowids: without them it reads a dozen models in full to find the place of a new one. Nothing
refers to ``model_pieces``: models may as well lie in a directory or a bucket (``store.blobs``).
"""

from collections.abc import Collection
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    TypeDecorator,
    text,
    update,
)
from sqlalchemy.engine import Dialect

PIECE_BYTES: Final = 1 << 20
"""Bytes of a model in one row; readers and writers of one database must agree on it."""

metadata: MetaData = MetaData(
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


class HexBytes(TypeDecorator[str]):
    """Bytes that the program writes as hexadecimal digits: ids, digests and keys."""

    impl = LargeBinary
    cache_ok: bool = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> bytes | None:  # noqa: ARG002 -- SQLAlchemy's
        return None if value is None else bytes.fromhex(value)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> str | None:  # noqa: ARG002 -- as above
        return None if value is None else value.hex()


def _hex(name: str, *rest: Any, **options: Any) -> Column[str]:
    return Column(name, HexBytes, *rest, **{"nullable": False, **options})


def _bytes(name: str, *, nullable: bool = False) -> Column[bytes]:
    return Column(name, LargeBinary, nullable=nullable)


def _long(column: str, size: int) -> CheckConstraint:
    return CheckConstraint(f"length({column}) = {size}", name=f"{column}_size")


journal: Table = Table(
    "journal",
    metadata,
    # One row, written with genesis.
    Column("number", Integer, primary_key=True, autoincrement=False),
    # Names the order of arrival: it changes when the database was put back from a copy.
    _hex("epoch"),
    # Names the models' directory or bucket as this journal's; never changes.
    _hex("id"),
    Column("models", String(16), nullable=False),
    # Grows with what else processes that serve the ledger keep in memory: acts, checkpoints, and models until pruned.
    Column("changes", BigInteger, nullable=False, server_default=text("0")),
    # The public key of the server that serves it; null: it has not been served, or not since it was put back.
    _hex("server_key", nullable=True),
    # How many transactions there are up to the last whose evidence was archived.
    Column("archived", BigInteger, nullable=False, server_default=text("0")),
    CheckConstraint("number = 1", name="one_row"),
    _long("epoch", 16),
    _long("id", 16),
    CheckConstraint("models IN ('database', 'directory', 's3')", name="models_known"),
)
CHANGED: Final = update(journal).values(changes=journal.c.changes + 1)
"""Tells every process that serves the ledger to look again at what it holds in memory."""

models: Table = Table(
    "models",
    metadata,
    _hex("digest", primary_key=True),
    Column("size", BigInteger, nullable=False),
    # When the bytes were dropped by decision; null: they are here, also when they were published again since.
    Column("pruned_at_ms", BigInteger, nullable=True),
    # The model by which its bytes are coded (``fl_core.step_coding``), zeros for none; null: they are whole.
    _hex("base", nullable=True),
    # How many bytes lie there, where they are coded.
    Column("packed_size", BigInteger, nullable=True),
    _long("digest", 32),
    CheckConstraint("size > 0", name="size_positive"),
    Index("ix_models_base", "base"),
    sqlite_with_rowid=False,
)

model_pieces: Table = Table(
    "model_pieces",
    metadata,
    _hex("digest"),
    Column("number", Integer, nullable=False),
    _bytes("data"),
    PrimaryKeyConstraint("digest", "number"),
    _long("digest", 32),
    CheckConstraint(f"length(data) BETWEEN 1 AND {PIECE_BYTES}", name="data_size"),
)

sketches: Table = Table(
    "sketches",
    metadata,
    # What is compared of a held model where that is a sketch: a thousandth of what would have to be read.
    _hex("model", ForeignKey("models.digest"), primary_key=True),
    _hex("digest"),
    _bytes("data"),
    _long("model", 32),
    _long("digest", 32),
)

attachments: Table = Table(
    "attachments",
    metadata,
    _hex("digest", primary_key=True),
    # Empty: an archive holds it (``store.evidence``).
    _bytes("data"),
    _long("digest", 32),
)

selections: Table = Table(
    "selections",
    metadata,
    _hex("digest", primary_key=True),
    Column("kept_at_ms", BigInteger, nullable=False),
    _bytes("data"),
    _long("digest", 32),
)

averages: Table = Table(
    "averages",
    metadata,
    # Of which updates a model is the average that a client was told of lately; ids, one after another.
    _hex("digest", primary_key=True),
    Column("kept_at_ms", BigInteger, nullable=False),
    _bytes("parents"),
    _long("digest", 32),
)

transactions: Table = Table(
    "transactions",
    metadata,
    Column("arrival", _Big, primary_key=True, autoincrement=False),
    _hex("id"),
    _bytes("header"),
    _bytes("author_signature", nullable=True),
    _bytes("receipt"),
    _hex("model_digest", ForeignKey("models.digest")),
    _hex("attachment_digest", ForeignKey("attachments.digest"), nullable=True),
    # ``fl_core.dag.figures``: computed at admission, since the model may be pruned later.
    _bytes("figures"),
    Column("received_at_ms", BigInteger, nullable=False),
    # What follows from its ancestors (``fl_core.dag.graph.Node``), so that a row answers for itself.
    Column("depth", BigInteger, nullable=False, server_default=text("0")),
    # Ids, one after another; null: its parents'.
    _bytes("bounded_by", nullable=True),
    _long("id", 32),
    _long("author_signature", 64),
    _long("receipt", 112),
    CheckConstraint("arrival >= 0", name="arrival_not_negative"),
    Index("uq_transactions_id", "id", unique=True),
    Index("ix_transactions_depth", "depth", "id"),
    Index("ix_transactions_model_digest", "model_digest"),
)

acts: Table = Table(
    "acts",
    metadata,
    _hex("id", primary_key=True),
    _bytes("act"),
    _long("id", 32),
)

act_signatures: Table = Table(
    "act_signatures",
    metadata,
    _hex("act", ForeignKey("acts.id")),
    _hex("signer"),
    _bytes("signature"),
    PrimaryKeyConstraint("act", "signer"),
    _long("signer", 32),
    _long("signature", 64),
    sqlite_with_rowid=False,
)

summaries: Table = Table(
    "summaries",
    metadata,
    # One row, written now and again: what a server that starts need not read the whole journal for.
    Column("number", Integer, primary_key=True, autoincrement=False),
    _hex("epoch"),
    _hex("digest"),
    _bytes("data"),
    CheckConstraint("number = 1", name="one_row"),
    _long("epoch", 16),
    _long("digest", 32),
)

checkpoints: Table = Table(
    "checkpoints",
    metadata,
    # The newest of each member by whom this server joined, as it was served.
    _hex("member", primary_key=True),
    _bytes("served"),
    _long("member", 32),
)


def padded(ids: Collection[str]) -> list[str]:
    """Ids for an ``IN``, the last so often that they are a power of two: PostgreSQL keeps plans of few statements."""
    found = sorted(ids)
    wanted = 1 << max(len(found) - 1, 0).bit_length()
    return found + found[-1:] * (wanted - len(found))
