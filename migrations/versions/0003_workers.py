"""What several processes that serve one ledger must tell each other: that acts or models have changed, and averages."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("journal", sa.Column("changes", sa.BigInteger, server_default=sa.text("0"), nullable=False))
    op.create_table(
        "averages",
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("kept_at_ms", sa.BigInteger, nullable=False),
        sa.Column("parents", sa.LargeBinary, nullable=False),
        sa.CheckConstraint("length(digest) = 32", name=op.f("ck_averages_digest_size")),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_averages")),
    )
