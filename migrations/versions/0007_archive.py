"""Evidence may be emptied once an archive holds it, and come back; up to where it was is kept."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_IS_FORBIDDEN = "NEW.digest <> OLD.digest OR (length(OLD.data) > 0 AND length(NEW.data) > 0)"


def upgrade() -> None:
    op.add_column("journal", sa.Column("archived", sa.BigInteger, server_default=sa.text("0"), nullable=False))
    if op.get_bind().dialect.name == "sqlite":
        op.execute("DROP TRIGGER attachments_no_update")
        op.execute(
            f"CREATE TRIGGER attachments_no_update BEFORE UPDATE ON attachments WHEN {_IS_FORBIDDEN} "
            "BEGIN SELECT RAISE(ABORT, 'attachments never change'); END"
        )
        return
    op.execute("DROP TRIGGER attachments_no_change ON attachments")
    op.execute(
        "CREATE TRIGGER attachments_no_delete BEFORE DELETE ON attachments "
        "FOR EACH ROW EXECUTE FUNCTION ledger_never_changes()"
    )
    op.execute(
        f"CREATE TRIGGER attachments_no_update BEFORE UPDATE ON attachments FOR EACH ROW WHEN ({_IS_FORBIDDEN}) "
        "EXECUTE FUNCTION ledger_never_changes()"
    )
