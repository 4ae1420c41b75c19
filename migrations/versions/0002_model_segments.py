"""Where in which segment file a model lies, for those that are not in pieces in the database."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("models", sa.Column("segment", sa.Integer, nullable=True))
    op.add_column("models", sa.Column("starts_at", sa.BigInteger, nullable=True))
