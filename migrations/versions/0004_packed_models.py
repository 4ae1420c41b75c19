"""Models that are superseded may be kept coded, by the author's next one."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("models", sa.Column("base", sa.LargeBinary, nullable=True))
    op.add_column("models", sa.Column("packed_size", sa.BigInteger, nullable=True))
    op.create_index("ix_models_base", "models", ["base"])
