"""Groups whose partitions the coordinator assigns (KIP-848), and the settings of groups.

They share the table of the classic groups, so that a group keeps its place when it changes over. Beside the
file's id stands what the schema asks of programs: the lowest schema that a reader must know, and the first
release that knows this one. Whoever upgrades the file writes both, with the row's checksum.
"""

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

ADDED = (
    "group_type TEXT NOT NULL DEFAULT 'classic'",
    "assignment_epoch INT NOT NULL DEFAULT 0",
    "metadata_hash INT NOT NULL DEFAULT 0",
)
COLUMNS = """ (
    group_id TEXT NOT NULL PRIMARY KEY,
    config TEXT NOT NULL
) STRICT, WITHOUT ROWID"""


NEEDS = ("read_version INT NOT NULL DEFAULT 10", "first_release TEXT NOT NULL DEFAULT '1.0'")


def upgrade() -> None:
    for column in NEEDS:
        op.execute(f"ALTER TABLE eosdb_file ADD COLUMN {column}")
    for table in ("groups", "eosdb_baseline_groups"):
        for column in ADDED:
            op.execute(f"ALTER TABLE {table} ADD COLUMN {column}")
    for table in ("eosdb_group_configs", "eosdb_baseline_group_configs"):
        op.execute(f"CREATE TABLE {table}{COLUMNS}")
