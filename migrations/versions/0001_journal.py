"""The journal: transactions, models, attachments, selections.

Written out, not taken from ``tables.py``: a step must do tomorrow what it did when it was released.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

PIECE_BYTES = 1_048_576
IMMUTABLE = ("transactions", "attachments", "acts", "act_signatures")


def upgrade() -> None:
    big = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "journal",
        sa.Column("number", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("epoch", sa.LargeBinary, nullable=False),
        sa.Column("id", sa.LargeBinary, nullable=False),
        sa.Column("models", sa.String(16), nullable=False),
        sa.CheckConstraint("number = 1", name=op.f("ck_journal_one_row")),
        sa.CheckConstraint("length(epoch) = 16", name=op.f("ck_journal_epoch_size")),
        sa.CheckConstraint("length(id) = 16", name=op.f("ck_journal_id_size")),
        sa.CheckConstraint("models IN ('database', 'directory', 's3')", name=op.f("ck_journal_models_known")),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_journal")),
    )
    op.create_table(
        "models",
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("pruned_at_ms", sa.BigInteger, nullable=True),
        sa.CheckConstraint("length(digest) = 32", name=op.f("ck_models_digest_size")),
        sa.CheckConstraint("size > 0", name=op.f("ck_models_size_positive")),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_models")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "model_pieces",
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.CheckConstraint("length(digest) = 32", name=op.f("ck_model_pieces_digest_size")),
        sa.CheckConstraint(f"length(data) BETWEEN 1 AND {PIECE_BYTES}", name=op.f("ck_model_pieces_data_size")),
        sa.PrimaryKeyConstraint("digest", "number", name=op.f("pk_model_pieces")),
    )
    op.create_table(
        "attachments",
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.CheckConstraint("length(digest) = 32", name=op.f("ck_attachments_digest_size")),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_attachments")),
    )
    op.create_table(
        "selections",
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("kept_at_ms", sa.BigInteger, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.CheckConstraint("length(digest) = 32", name=op.f("ck_selections_digest_size")),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_selections")),
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
        sa.Column("figures", sa.LargeBinary, nullable=False),
        sa.Column("received_at_ms", sa.BigInteger, nullable=False),
        sa.CheckConstraint("length(id) = 32", name=op.f("ck_transactions_id_size")),
        sa.CheckConstraint("length(author_signature) = 64", name=op.f("ck_transactions_author_signature_size")),
        sa.CheckConstraint("length(receipt) = 112", name=op.f("ck_transactions_receipt_size")),
        sa.CheckConstraint("arrival >= 0", name=op.f("ck_transactions_arrival_not_negative")),
        sa.ForeignKeyConstraint(["model_digest"], ["models.digest"], name=op.f("fk_transactions_model_digest")),
        sa.ForeignKeyConstraint(
            ["attachment_digest"], ["attachments.digest"], name=op.f("fk_transactions_attachment_digest")
        ),
        sa.PrimaryKeyConstraint("arrival", name=op.f("pk_transactions")),
    )
    op.create_index("uq_transactions_id", "transactions", ["id"], unique=True)
    op.create_table(
        "acts",
        sa.Column("id", sa.LargeBinary, nullable=False),
        sa.Column("act", sa.LargeBinary, nullable=False),
        sa.CheckConstraint("length(id) = 32", name=op.f("ck_acts_id_size")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_acts")),
    )
    op.create_table(
        "act_signatures",
        sa.Column("act", sa.LargeBinary, nullable=False),
        sa.Column("signer", sa.LargeBinary, nullable=False),
        sa.Column("signature", sa.LargeBinary, nullable=False),
        sa.CheckConstraint("length(signer) = 32", name=op.f("ck_act_signatures_signer_size")),
        sa.CheckConstraint("length(signature) = 64", name=op.f("ck_act_signatures_signature_size")),
        sa.ForeignKeyConstraint(["act"], ["acts.id"], name=op.f("fk_act_signatures_act")),
        sa.PrimaryKeyConstraint("act", "signer", name=op.f("pk_act_signatures")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "checkpoints",
        sa.Column("member", sa.LargeBinary, nullable=False),
        sa.Column("served", sa.LargeBinary, nullable=False),
        sa.CheckConstraint("length(member) = 32", name=op.f("ck_checkpoints_member_size")),
        sa.PrimaryKeyConstraint("member", name=op.f("pk_checkpoints")),
    )
    if op.get_bind().dialect.name == "sqlite":
        _guard_sqlite()
    else:
        _guard_postgresql()


def _guard_sqlite() -> None:
    # A REPLACE is caught by ``PRAGMA recursive_triggers=ON``.
    for table in IMMUTABLE:
        for verb in ("update", "delete"):
            op.execute(
                f"CREATE TRIGGER {table}_no_{verb} BEFORE {verb.upper()} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, '{table} never change'); END"
            )


NEVER_CHANGES = """\
CREATE FUNCTION ledger_never_changes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% never change', TG_TABLE_NAME USING ERRCODE = 'integrity_constraint_violation';
END $$"""


def _guard_postgresql() -> None:
    op.execute(NEVER_CHANGES)
    for table in IMMUTABLE:
        op.execute(
            f"CREATE TRIGGER {table}_no_change BEFORE UPDATE OR DELETE ON {table} "
            "FOR EACH ROW EXECUTE FUNCTION ledger_never_changes()"
        )
        op.execute(
            f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION ledger_never_changes()"
        )
    # Weights do not compress; trying would cost most of the time of a write.
    op.execute("ALTER TABLE model_pieces ALTER COLUMN data SET STORAGE EXTERNAL")
