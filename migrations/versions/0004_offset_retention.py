"""From when the retention of an offset counts: never while its group has members."""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

SCRIPT = """
ALTER TABLE group_offsets ADD COLUMN retain_from INT;
UPDATE group_offsets SET retain_from = max(commit_timestamp, coalesce((
    SELECT max(timestamp) FROM journal
    WHERE kind = 'GroupChanged' AND json_extract(detail, '$.group_id') = group_offsets.group_id
), 0))
WHERE substr(group_id, 1, 8) <> '__eosdb.'
    AND group_id NOT IN (SELECT group_id FROM groups WHERE state <> 'Empty');
DROP INDEX group_offsets_age;
CREATE INDEX group_offsets_retention ON group_offsets (retain_from) WHERE retain_from IS NOT NULL;
"""


def upgrade() -> None:
    for statement in SCRIPT.split(";"):
        if statement.strip():
            op.execute(statement)
