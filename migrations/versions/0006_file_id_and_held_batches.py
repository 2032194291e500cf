"""Which file this is, and what the batches of a sink held.

The file's id is not made here, where it would be the same for whoever folds or copies the schema, but by
whoever makes or upgrades a file. What batches held is not known of those that are in already.
"""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

SCRIPT = """
CREATE TABLE eosdb_file (
    file_id TEXT NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;

CREATE TABLE eosdb_sink_batches (
    sink_id TEXT NOT NULL,
    batch_id INT NOT NULL,
    held TEXT NOT NULL,
    PRIMARY KEY (sink_id, batch_id)
) STRICT, WITHOUT ROWID;
"""


def upgrade() -> None:
    for statement in SCRIPT.split(";"):
        if statement.strip():
            op.execute(statement)
