"""The name of this journal: random, so that a copy that was put back from a backup is not taken for the one before."""

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    journal = op.create_table(
        "journal",
        sa.Column("number", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("epoch", sa.LargeBinary, nullable=False),
        sa.CheckConstraint("number = 1", name=op.f("ck_journal_one_row")),
        sa.CheckConstraint("length(epoch) = 16", name=op.f("ck_journal_epoch_size")),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_journal")),
    )
    if op.get_bind().exec_driver_sql("SELECT 1 FROM transactions WHERE arrival = 0").first():
        op.bulk_insert(journal, [{"number": 1, "epoch": secrets.token_bytes(16)}])


def downgrade() -> None:
    op.drop_table("journal")
