"""Transaction version 2 (KIP-890): columns for an end of a transaction that raises the epoch.

`next_producer_id` takes over if the end has used up the epochs. `transaction_version` is the version of
the last end, which tells which producer id and epoch repeat that request.
"""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for column, default in (("next_producer_id", -1), ("transaction_version", 1)):
        op.execute(
            f"ALTER TABLE transactional_ids ADD COLUMN {column} INT NOT NULL DEFAULT {default}"
        )
