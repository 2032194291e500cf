"""Tables for idempotency keys, the last batches of sinks, and typed views.

The names begin with eosdb_, so they cannot conflict with a user's tables.
"""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

SCRIPT = """
CREATE TABLE eosdb_idempotency_keys (
    topic TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    partition INT NOT NULL,
    "offset" INT NOT NULL,
    timestamp INT NOT NULL,
    PRIMARY KEY (topic, idempotency_key)
) STRICT, WITHOUT ROWID;

CREATE TABLE eosdb_sinks (
    sink_id TEXT NOT NULL PRIMARY KEY,
    batch_id INT NOT NULL,
    timestamp INT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE eosdb_json_views (
    name TEXT NOT NULL PRIMARY KEY,
    topic TEXT NOT NULL,
    columns TEXT NOT NULL,
    created_time INT NOT NULL
) STRICT, WITHOUT ROWID;
"""


def upgrade() -> None:
    for statement in SCRIPT.split(";"):
        if statement.strip():
            op.execute(statement)
