"""Scheduled records: the records that wait in partition -1 of their topics, and when each is due.

`producer_id` belongs to the open transaction that has sent the record; -1 after its commit.
"""

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

COLUMNS = """
    partition_id INT NOT NULL,
    "offset" INT NOT NULL,
    due INT NOT NULL,
    producer_id INT NOT NULL,{}
    PRIMARY KEY (partition_id, "offset")
) STRICT, WITHOUT ROWID"""
OPEN = " ON {0} (partition_id, producer_id) WHERE producer_id >= 0"
CHECKSUM = {
    "eosdb_scheduled": "",
    "eosdb_baseline_scheduled": "\n    checksum INT NOT NULL DEFAULT 0,",
}


def upgrade() -> None:
    for table, checksum in CHECKSUM.items():
        op.execute(f"CREATE TABLE {table} ({COLUMNS.format(checksum)}")
        op.execute(f"CREATE INDEX {table}_open{OPEN.format(table)}")
    op.execute("CREATE INDEX eosdb_scheduled_due ON eosdb_scheduled (due) WHERE producer_id = -1")
