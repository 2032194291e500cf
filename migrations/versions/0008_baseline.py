"""The baseline: a second copy of the folded tables, as of an earlier event. It begins empty, at position 0.

Events at or before the baseline may be deleted. Idempotency keys get the time of their use, after which
they expire; existing keys get it from their events, as in a replay.
"""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

KEYS = """
ALTER TABLE eosdb_idempotency_keys ADD COLUMN used_time INT NOT NULL DEFAULT 0;

CREATE TEMP TABLE used (topic TEXT, key TEXT, time INT, PRIMARY KEY (topic, key)) WITHOUT ROWID;
INSERT OR REPLACE INTO used
SELECT topic, json_extract(detail, '$.idempotency_key'), timestamp
FROM journal
WHERE kind = 'IdempotencyKeyUsed' AND EXISTS (SELECT 1 FROM eosdb_idempotency_keys)
ORDER BY position;

UPDATE eosdb_idempotency_keys AS mine SET used_time = coalesce((
    SELECT time FROM used WHERE topic = mine.topic AND key = mine.idempotency_key
), 0);
DROP TABLE used;

CREATE INDEX eosdb_idempotency_keys_used ON eosdb_idempotency_keys (used_time)
"""
FOLDED = (
    "counters", "topics", "partitions", "partition_producers", "transaction_index", "time_index",
    "delete_horizons", "snapshots", "snapshot_entries", "producer_ids", "transactional_ids",
    "group_offsets", "pending_group_offsets", "acls", "groups", "eosdb_idempotency_keys", "eosdb_sinks",
    "eosdb_json_views", "eosdb_sink_batches",
)  # fmt: skip
INDEXED = """
CREATE INDEX eosdb_baseline_partitions_topic_id ON eosdb_baseline_partitions (topic_id);

CREATE INDEX eosdb_baseline_partition_producers_open
    ON eosdb_baseline_partition_producers (partition_id, current_txn_start_offset)
    WHERE current_txn_start_offset >= 0;

CREATE INDEX eosdb_baseline_group_offsets_topic ON eosdb_baseline_group_offsets (topic);

CREATE INDEX eosdb_baseline_pending_group_offsets_group
    ON eosdb_baseline_pending_group_offsets (group_id, topic, partition)
"""
BASELINE = """
CREATE TABLE eosdb_baseline (
    position INT NOT NULL PRIMARY KEY,
    timestamp INT NOT NULL,
    measured_position INT NOT NULL,
    measured_bytes INT NOT NULL,
    checksum INT NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO eosdb_baseline VALUES (0, 0, 0, 0, 2705125007)
"""
TRIGGERS = (
    """
CREATE TRIGGER eosdb_baseline_refuses_to_go_back BEFORE UPDATE ON eosdb_baseline
    WHEN NEW.position < OLD.position
    BEGIN SELECT RAISE(ABORT, 'the baseline moves forward only'); END
""",
    """
CREATE TRIGGER eosdb_baseline_refuses_delete BEFORE DELETE ON eosdb_baseline
    BEGIN SELECT RAISE(ABORT, 'the baseline moves forward only'); END
""",
    "DROP TRIGGER journal_refuses_delete",
    """
CREATE TRIGGER journal_refuses_delete BEFORE DELETE ON journal
    WHEN OLD.position > coalesce((SELECT position FROM eosdb_baseline), 0)
    BEGIN SELECT RAISE(ABORT, 'the journal is append only'); END
""",
)


def upgrade() -> None:
    execute = op.get_bind().exec_driver_sql
    for statement in KEYS.split(";"):
        execute(statement.strip())
    for table in FOLDED:
        # The text after the table's name is the same; foreign keys also refer to the copy.
        ((sql,),) = execute(
            "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)
        )
        head, columns = f"CREATE TABLE {table} (", sql.partition("(")[2]
        assert sql.startswith(head), sql
        columns = columns.replace("REFERENCES ", "REFERENCES eosdb_baseline_")
        execute(f"CREATE TABLE eosdb_baseline_{table.removeprefix('eosdb_')} ({columns}")
    for statement in (*INDEXED.split(";"), *BASELINE.split(";"), *TRIGGERS):
        execute(statement.strip())
