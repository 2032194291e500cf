"""Transaction version 2 (KIP-890): what an end that raises the epoch leaves to remember.

`next_producer_id` takes over when the end has used up the epochs; `transaction_version` says how the
last transaction was ended, and so which pair repeats that request.
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
