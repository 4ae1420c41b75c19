"""The journal: transactions, their parents, models in pieces, attachments, selections.

Written out, not taken from ``tables.py``: a step must do tomorrow what it did when it was released.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

PIECE_BYTES = 1_048_576
IMMUTABLE = ("transactions", "parents", "models", "model_pieces", "attachments")


def upgrade() -> None:
    big = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "models",
        sa.Column("arrival", big, autoincrement=False, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.CheckConstraint("length(digest) = 32", name=op.f("ck_models_digest_size")),
        sa.CheckConstraint("size > 0", name=op.f("ck_models_size_positive")),
        sa.PrimaryKeyConstraint("arrival", name=op.f("pk_models")),
    )
    op.create_index("uq_models_digest", "models", ["digest"], unique=True)
    op.create_table(
        "attachments",
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.CheckConstraint("length(digest) = 32", name=op.f("ck_attachments_digest_size")),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_attachments")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "selections",
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("kept_at_ms", sa.BigInteger, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.CheckConstraint("length(digest) = 32", name=op.f("ck_selections_digest_size")),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_selections")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "model_pieces",
        sa.Column("model", big, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.CheckConstraint(f"length(data) BETWEEN 1 AND {PIECE_BYTES}", name=op.f("ck_model_pieces_data_size")),
        sa.ForeignKeyConstraint(["model"], ["models.arrival"], name=op.f("fk_model_pieces_model")),
        sa.PrimaryKeyConstraint("model", "number", name=op.f("pk_model_pieces")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "transactions",
        sa.Column("arrival", big, autoincrement=False, nullable=False),
        sa.Column("id", sa.LargeBinary, nullable=False),
        sa.Column("header", sa.LargeBinary, nullable=False),
        sa.Column("author_signature", sa.LargeBinary, nullable=True),
        sa.Column("receipt", sa.LargeBinary, nullable=False),
        sa.Column("model_digest", sa.LargeBinary, nullable=False),
        sa.Column("attachment_digest", sa.LargeBinary, nullable=True),
        sa.Column("norm", sa.Double, nullable=False),
        sa.Column("received_at_ms", sa.BigInteger, nullable=False),
        sa.CheckConstraint("length(id) = 32", name=op.f("ck_transactions_id_size")),
        sa.CheckConstraint("length(author_signature) = 64", name=op.f("ck_transactions_author_signature_size")),
        sa.CheckConstraint("length(receipt) = 112", name=op.f("ck_transactions_receipt_size")),
        sa.CheckConstraint("arrival >= 0", name=op.f("ck_transactions_arrival_not_negative")),
        sa.CheckConstraint("norm >= 0", name=op.f("ck_transactions_norm_not_negative")),
        sa.ForeignKeyConstraint(["model_digest"], ["models.digest"], name=op.f("fk_transactions_model_digest")),
        sa.ForeignKeyConstraint(
            ["attachment_digest"], ["attachments.digest"], name=op.f("fk_transactions_attachment_digest")
        ),
        sa.PrimaryKeyConstraint("arrival", name=op.f("pk_transactions")),
    )
    op.create_index("uq_transactions_id", "transactions", ["id"], unique=True)
    op.create_table(
        "parents",
        sa.Column("child", big, nullable=False),
        sa.Column("parent", big, nullable=False),
        sa.CheckConstraint("parent < child", name=op.f("ck_parents_parent_before_child")),
        sa.ForeignKeyConstraint(["child"], ["transactions.arrival"], name=op.f("fk_parents_child")),
        sa.ForeignKeyConstraint(["parent"], ["transactions.arrival"], name=op.f("fk_parents_parent")),
        sa.PrimaryKeyConstraint("child", "parent", name=op.f("pk_parents")),
        sqlite_with_rowid=False,
    )
    if op.get_bind().dialect.name == "sqlite":
        _guard_sqlite()
    else:
        _guard_postgresql()


def _guard_sqlite() -> None:
    for table in IMMUTABLE:
        for verb in ("update", "delete"):
            op.execute(
                f"CREATE TRIGGER {table}_no_{verb} BEFORE {verb.upper()} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, '{table} never change'); END"
            )
    op.execute(
        "CREATE TRIGGER transactions_in_order BEFORE INSERT ON transactions "
        "WHEN NEW.arrival <> (SELECT coalesce(max(arrival) + 1, 0) FROM transactions) "
        "BEGIN SELECT RAISE(ABORT, 'arrivals have no gaps'); END"
    )


NEVER_CHANGES = """\
CREATE FUNCTION ledger_never_changes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% never change', TG_TABLE_NAME USING ERRCODE = 'integrity_constraint_violation';
END $$"""
ARRIVES_IN_ORDER = """\
CREATE FUNCTION ledger_arrives_in_order() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.arrival <> (SELECT coalesce(max(arrival) + 1, 0) FROM transactions) THEN
        RAISE EXCEPTION 'arrivals have no gaps' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$"""


def _guard_postgresql() -> None:
    op.execute(NEVER_CHANGES)
    op.execute(ARRIVES_IN_ORDER)
    op.execute(
        "CREATE TRIGGER transactions_in_order BEFORE INSERT ON transactions "
        "FOR EACH ROW EXECUTE FUNCTION ledger_arrives_in_order()"
    )
    for table in IMMUTABLE:
        op.execute(
            f"CREATE TRIGGER {table}_no_change BEFORE UPDATE OR DELETE ON {table} "
            "FOR EACH ROW EXECUTE FUNCTION ledger_never_changes()"
        )
        op.execute(
            f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION ledger_never_changes()"
        )
    op.execute("ALTER TABLE model_pieces ALTER COLUMN data SET STORAGE EXTERNAL")
