"""Each transaction's row says what follows from its ancestors, so that a server need not hold these: depth, step bound.

The rows that are there are filled in from the first to the last, as a server once did when it started. What a server
sums up of them is kept too.
"""

import sqlalchemy as sa
from alembic import op

from fl_core.dag.transaction import decode_header

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

PAGE = 1000


def upgrade() -> None:
    op.add_column("transactions", sa.Column("depth", sa.BigInteger, server_default=sa.text("0"), nullable=False))
    op.add_column("transactions", sa.Column("bounded_by", sa.LargeBinary, nullable=True))
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    if is_sqlite:
        op.execute("DROP TRIGGER transactions_no_update")
    else:
        op.execute("ALTER TABLE transactions DISABLE TRIGGER transactions_no_change")
    _fill_in(op.get_bind())
    if is_sqlite:
        op.execute(
            "CREATE TRIGGER transactions_no_update BEFORE UPDATE ON transactions "
            "BEGIN SELECT RAISE(ABORT, 'transactions never change'); END"
        )
    else:
        op.execute("ALTER TABLE transactions ENABLE TRIGGER transactions_no_change")
    op.create_index("ix_transactions_depth", "transactions", ["depth", "id"])
    op.create_index("ix_transactions_model_digest", "transactions", ["model_digest"])
    op.create_table(
        "summaries",
        sa.Column("number", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("epoch", sa.LargeBinary, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.CheckConstraint("number = 1", name=op.f("ck_summaries_one_row")),
        sa.CheckConstraint("length(epoch) = 16", name=op.f("ck_summaries_epoch_size")),
        sa.CheckConstraint("length(digest) = 32", name=op.f("ck_summaries_digest_size")),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_summaries")),
    )


def _fill_in(connection: sa.Connection) -> None:
    page = sa.text("SELECT arrival, header FROM transactions WHERE arrival > :after ORDER BY arrival LIMIT :limit")
    parent_rows = sa.text("SELECT header, depth, bounded_by FROM transactions WHERE id IN :ids").bindparams(
        sa.bindparam("ids", expanding=True)
    )
    fill = sa.text("UPDATE transactions SET depth = :depth, bounded_by = :bounded_by WHERE arrival = :arrival")
    after = 0  # genesis has no parents
    while rows := connection.execute(page, {"after": after, "limit": PAGE}).all():
        for row in rows:
            header = decode_header(row.header)
            ids = [bytes.fromhex(each) for each in header.parents]
            parents = connection.execute(parent_rows, {"ids": ids}).all()
            filled = {"arrival": row.arrival, "depth": 1 + max(each.depth for each in parents), "bounded_by": None}
            if len(parents) == 1:
                parent = decode_header(parents[0].header)
                if parent.author == header.author and parent.parents:  # what bounded that bounds this
                    its_parents = b"".join(map(bytes.fromhex, parent.parents))
                    filled["bounded_by"] = parents[0].bounded_by or its_parents
            connection.execute(fill, filled)
        after = rows[-1].arrival
