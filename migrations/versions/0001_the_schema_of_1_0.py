"""The schema of 1.0."""

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    # eosdb runs this script, too, when it makes a new file. decisions/0003: `records` is a rowid table.
    script = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    for statement in script.split(";\n\n"):
        op.get_bind().exec_driver_sql(statement)
