"""Models whose bytes were dropped by policy, and bytes that a blob store still has to give back."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    big = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "prunings",
        sa.Column("model", big, autoincrement=False, nullable=False),
        sa.Column("pruned_at_ms", sa.BigInteger, nullable=False),
        sa.CheckConstraint("model > 0", name=op.f("ck_prunings_not_genesis")),
        sa.ForeignKeyConstraint(["model"], ["models.arrival"], name=op.f("fk_prunings_model")),
        sa.PrimaryKeyConstraint("model", name=op.f("pk_prunings")),
    )
    op.create_table(
        "drops",
        sa.Column("model", big, nullable=False),
        sa.Column("segment", sa.Integer, nullable=False),
        sa.Column("starts_at", sa.BigInteger, nullable=False),
        sa.ForeignKeyConstraint(["model"], ["models.arrival"], name=op.f("fk_drops_model")),
        sa.PrimaryKeyConstraint("model", "segment", "starts_at", name=op.f("pk_drops")),
        sqlite_with_rowid=False,
    )
    if op.get_bind().dialect.name == "sqlite":
        _guard_sqlite()
    else:
        _guard_postgresql()


def _guard_sqlite() -> None:
    op.execute("DROP TRIGGER models_no_update")
    op.execute(
        "CREATE TRIGGER models_no_update BEFORE UPDATE ON models "
        "WHEN NOT (NEW.arrival = OLD.arrival AND NEW.digest = OLD.digest AND NEW.size = OLD.size "
        "AND EXISTS (SELECT 1 FROM prunings WHERE model = OLD.arrival)) "
        "BEGIN SELECT RAISE(ABORT, 'models never change'); END"
    )
    op.execute("DROP TRIGGER model_pieces_no_delete")
    op.execute(
        "CREATE TRIGGER model_pieces_no_delete BEFORE DELETE ON model_pieces "
        "WHEN NOT EXISTS (SELECT 1 FROM prunings WHERE model = OLD.model) "
        "BEGIN SELECT RAISE(ABORT, 'model_pieces never change'); END"
    )


MODELS_STAY = """\
CREATE FUNCTION ledger_models_stay() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF NEW.arrival = OLD.arrival AND NEW.digest = OLD.digest AND NEW.size = OLD.size
            AND EXISTS (SELECT 1 FROM prunings WHERE model = OLD.arrival) THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION 'models never change' USING ERRCODE = 'integrity_constraint_violation';
END $$"""
PIECES_STAY = """\
CREATE FUNCTION ledger_pieces_stay() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND EXISTS (SELECT 1 FROM prunings WHERE model = OLD.model) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'model_pieces never change' USING ERRCODE = 'integrity_constraint_violation';
END $$"""


def _guard_postgresql() -> None:
    for function, table, guard in (
        (MODELS_STAY, "models", "ledger_models_stay"),
        (PIECES_STAY, "model_pieces", "ledger_pieces_stay"),
    ):
        op.execute(function)
        op.execute(f"DROP TRIGGER {table}_no_change ON {table}")
        op.execute(
            f"CREATE TRIGGER {table}_no_change BEFORE UPDATE OR DELETE ON {table} "
            f"FOR EACH ROW EXECUTE FUNCTION {guard}()"
        )
