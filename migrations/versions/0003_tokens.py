"""Bearer tokens: who may ask, where a server's settings require a token."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "tokens",
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("scope", sa.String(16), nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.Column("expires_at_ms", sa.BigInteger, nullable=True),
        sa.Column("revoked_at_ms", sa.BigInteger, nullable=True),
        sa.CheckConstraint("length(digest) = 32", name=op.f("ck_tokens_digest_size")),
        sa.CheckConstraint("scope IN ('client', 'operator')", name=op.f("ck_tokens_scope_known")),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_tokens")),
        sqlite_with_rowid=False,
    )
