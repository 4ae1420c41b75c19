"""A database notes whose server serves it, so that one with another key notices."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("journal", sa.Column("server_key", sa.LargeBinary, nullable=True))
