"""The file's id, and the content of a sink's batches.

The program that creates or upgrades a file makes the id. A revision could not: copies of the schema would
all have the same id. The content of batches that are already stored is unknown.
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
