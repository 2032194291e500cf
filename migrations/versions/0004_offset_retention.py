"""The time from which the retention of an offset runs; none while its group has members.

The new column gets the values that a replay of the journal gives. Retention runs from the commit or, if
the group has changed since the offset was stored, from that change. An offset of a transaction was stored
when the transaction completed, not at its own position.
"""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

SCRIPT = """
ALTER TABLE group_offsets ADD COLUMN retain_from INT;

CREATE TEMP TABLE last_change (
    group_id TEXT PRIMARY KEY,
    position INT NOT NULL,
    timestamp INT NOT NULL
) WITHOUT ROWID;
INSERT INTO last_change
SELECT json_extract(detail, '$.group_id'), max(position), timestamp
FROM journal WHERE kind = 'GroupChanged' GROUP BY 1;

CREATE TEMP TABLE completed (
    transactional_id TEXT NOT NULL,
    position INT NOT NULL,
    PRIMARY KEY (transactional_id, position)
) WITHOUT ROWID;
INSERT INTO completed
SELECT transactional_id, position FROM journal
WHERE kind = 'TransactionStateChanged' AND json_extract(detail, '$.to_state') = 'CompleteCommit'
    AND EXISTS (SELECT 1 FROM last_change);

CREATE TEMP TABLE put_at (
    commit_position INT PRIMARY KEY,
    position INT NOT NULL
);
INSERT INTO put_at
SELECT j.position, CASE j.kind WHEN 'TxnOffsetsCommitted' THEN coalesce((
    SELECT min(c.position) FROM completed c
    WHERE c.transactional_id = j.transactional_id AND c.position > j.position
), j.position) ELSE j.position END
FROM journal j WHERE j.position IN (SELECT commit_position FROM group_offsets);

UPDATE group_offsets SET retain_from = coalesce((
    SELECT max(commit_timestamp, l.timestamp) FROM last_change l
    WHERE l.group_id = group_offsets.group_id AND l.position > (
        SELECT p.position FROM put_at p WHERE p.commit_position = group_offsets.commit_position)
), commit_timestamp)
WHERE substr(group_id, 1, 8) <> '__eosdb.'
    AND group_id NOT IN (SELECT group_id FROM groups WHERE state <> 'Empty');

DROP TABLE last_change;
DROP TABLE completed;
DROP TABLE put_at;
DROP INDEX group_offsets_age;
CREATE INDEX group_offsets_retention ON group_offsets (retain_from) WHERE retain_from IS NOT NULL;
"""


def upgrade() -> None:
    for statement in SCRIPT.split(";"):
        if statement.strip():
            op.execute(statement)
