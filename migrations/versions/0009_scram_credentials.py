"""The server's users: their SCRAM credentials.

The names begin with eosdb_, so they cannot conflict with a user's tables.
"""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

COLUMNS = """ (
    user TEXT NOT NULL,
    mechanism TEXT NOT NULL,
    iterations INT NOT NULL,
    salt TEXT NOT NULL,
    stored_key TEXT NOT NULL,
    server_key TEXT NOT NULL,
    PRIMARY KEY (user, mechanism)
) STRICT, WITHOUT ROWID"""


def upgrade() -> None:
    for table in ("eosdb_scram_credentials", "eosdb_baseline_scram_credentials"):
        op.execute(f"CREATE TABLE {table}{COLUMNS}")
