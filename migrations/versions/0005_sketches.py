"""Sketches of models are kept beside them, so that a server that starts need not read the models."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "sketches",
        sa.Column("model", sa.LargeBinary, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.CheckConstraint("length(model) = 32", name=op.f("ck_sketches_model_size")),
        sa.CheckConstraint("length(digest) = 32", name=op.f("ck_sketches_digest_size")),
        sa.ForeignKeyConstraint(["model"], ["models.digest"], name=op.f("fk_sketches_model")),
        sa.PrimaryKeyConstraint("model", name=op.f("pk_sketches")),
    )
