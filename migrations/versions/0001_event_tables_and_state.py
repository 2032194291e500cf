"""The first schema: the journal and its records, and the state that is folded from them.

Plain SQL, and no import from eosdb: a revision must not change when the code does. Views hold no
data; every upgrade creates them again from eosdb/store/views.
"""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# decisions/0003: `records` is a rowid table, for values of a few kB; its second index is partial.
EVENTS = """
CREATE TABLE journal (
    position INT NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL,
    timestamp INT NOT NULL,
    topic TEXT,
    partition INT,
    transactional_id TEXT,
    detail TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX journal_transactions ON journal (transactional_id, position)
    WHERE kind = 'TransactionStateChanged';

CREATE TABLE records (
    partition_id INT NOT NULL,
    "offset" INT NOT NULL,
    timestamp INT NOT NULL,
    timestamp_type INT NOT NULL,
    key BLOB,
    value BLOB,
    headers TEXT,
    producer_id INT NOT NULL,
    producer_epoch INT NOT NULL,
    sequence INT NOT NULL,
    sequence_round INT NOT NULL,
    is_transactional INT NOT NULL,
    control TEXT,
    position INT NOT NULL
) STRICT;
CREATE UNIQUE INDEX records_offset ON records (partition_id, "offset");
CREATE UNIQUE INDEX records_sequence ON records
    (partition_id, producer_id, producer_epoch, sequence_round, sequence) WHERE sequence >= 0;
"""

LOG_STATE = """
CREATE TABLE counters (
    name TEXT NOT NULL PRIMARY KEY,
    value INT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE topics (
    topic_id INTEGER NOT NULL PRIMARY KEY,
    topic TEXT NOT NULL UNIQUE,
    partitions INT NOT NULL,
    config TEXT NOT NULL,
    created_time INT NOT NULL
) STRICT;

CREATE TABLE partitions (
    partition_id INTEGER NOT NULL PRIMARY KEY,
    topic_id INT NOT NULL REFERENCES topics (topic_id),
    topic TEXT NOT NULL,
    partition INT NOT NULL,
    log_start_offset INT NOT NULL,
    log_end_offset INT NOT NULL,
    last_stable_offset INT NOT NULL,
    first_unstable_offset INT NOT NULL,
    size_bytes INT NOT NULL,
    max_timestamp INT NOT NULL,
    max_timestamp_offset INT NOT NULL,
    indexed_timestamp INT NOT NULL,
    bytes_since_index INT NOT NULL,
    clean_offset INT NOT NULL,
    snapshot_offset INT NOT NULL,
    UNIQUE (topic, partition)
) STRICT;
CREATE INDEX partitions_topic_id ON partitions (topic_id);

CREATE TABLE partition_producers (
    partition_id INT NOT NULL,
    producer_id INT NOT NULL,
    producer_epoch INT NOT NULL,
    coordinator_epoch INT NOT NULL,
    last_sequence INT NOT NULL,
    last_offset INT NOT NULL,
    last_timestamp INT NOT NULL,
    last_append_time INT NOT NULL,
    current_txn_start_offset INT NOT NULL,
    batches TEXT NOT NULL,
    PRIMARY KEY (partition_id, producer_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX partition_producers_open ON partition_producers (partition_id, current_txn_start_offset)
    WHERE current_txn_start_offset >= 0;
CREATE INDEX partition_producers_idle ON partition_producers (last_append_time)
    WHERE current_txn_start_offset < 0;

CREATE TABLE transaction_index (
    partition_id INT NOT NULL,
    producer_id INT NOT NULL,
    first_offset INT NOT NULL,
    last_offset INT NOT NULL,
    last_stable_offset INT NOT NULL,
    PRIMARY KEY (partition_id, last_offset)
) STRICT, WITHOUT ROWID;
CREATE INDEX transaction_index_producer ON transaction_index
    (partition_id, producer_id, last_offset, first_offset);

CREATE TABLE time_index (
    partition_id INT NOT NULL,
    timestamp INT NOT NULL,
    "offset" INT NOT NULL,
    PRIMARY KEY (partition_id, timestamp)
) STRICT, WITHOUT ROWID;

CREATE TABLE delete_horizons (
    partition_id INT NOT NULL,
    "offset" INT NOT NULL,
    since INT NOT NULL,
    PRIMARY KEY (partition_id, "offset")
) STRICT, WITHOUT ROWID;

CREATE TABLE snapshots (
    partition_id INT NOT NULL,
    snapshot_offset INT NOT NULL,
    taken_time INT NOT NULL,
    PRIMARY KEY (partition_id, snapshot_offset)
) STRICT, WITHOUT ROWID;

CREATE TABLE snapshot_entries (
    partition_id INT NOT NULL,
    snapshot_offset INT NOT NULL,
    producer_id INT NOT NULL,
    producer_epoch INT NOT NULL,
    first_sequence INT NOT NULL,
    last_sequence INT NOT NULL,
    last_offset INT NOT NULL,
    offset_delta INT NOT NULL,
    timestamp INT NOT NULL,
    coordinator_epoch INT NOT NULL,
    current_txn_first_offset INT NOT NULL,
    PRIMARY KEY (partition_id, snapshot_offset, producer_id)
) STRICT, WITHOUT ROWID;
"""

COORDINATOR_STATE = """
CREATE TABLE producer_ids (
    producer_id INTEGER NOT NULL PRIMARY KEY,
    transactional_id TEXT NOT NULL
) STRICT;

CREATE TABLE transactional_ids (
    transactional_id TEXT NOT NULL PRIMARY KEY,
    producer_id INT NOT NULL,
    producer_epoch INT NOT NULL,
    last_producer_epoch INT NOT NULL,
    previous_producer_id INT NOT NULL,
    state TEXT NOT NULL,
    timeout_ms INT NOT NULL,
    start_time INT NOT NULL,
    last_update_time INT NOT NULL,
    partitions TEXT NOT NULL,
    groups TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX transactional_ids_producer ON transactional_ids (producer_id);
CREATE INDEX transactional_ids_ongoing ON transactional_ids (start_time + timeout_ms)
    WHERE state = 'Ongoing';
CREATE INDEX transactional_ids_decided ON transactional_ids (last_update_time)
    WHERE state IN ('PrepareCommit', 'PrepareAbort');
CREATE INDEX transactional_ids_idle ON transactional_ids (last_update_time)
    WHERE state IN ('Empty', 'CompleteCommit', 'CompleteAbort');

CREATE TABLE group_offsets (
    group_id TEXT NOT NULL,
    topic TEXT NOT NULL,
    partition INT NOT NULL,
    committed_offset INT NOT NULL,
    leader_epoch INT NOT NULL,
    metadata TEXT NOT NULL,
    commit_timestamp INT NOT NULL,
    commit_position INT NOT NULL,
    PRIMARY KEY (group_id, topic, partition)
) STRICT, WITHOUT ROWID;
CREATE INDEX group_offsets_age ON group_offsets (commit_timestamp);
CREATE INDEX group_offsets_topic ON group_offsets (topic);

CREATE TABLE pending_group_offsets (
    producer_id INT NOT NULL,
    group_id TEXT NOT NULL,
    topic TEXT NOT NULL,
    partition INT NOT NULL,
    producer_epoch INT NOT NULL,
    "offset" INT NOT NULL,
    leader_epoch INT NOT NULL,
    metadata TEXT NOT NULL,
    commit_timestamp INT NOT NULL,
    commit_position INT NOT NULL,
    PRIMARY KEY (producer_id, group_id, topic, partition)
) STRICT, WITHOUT ROWID;
CREATE INDEX pending_group_offsets_group ON pending_group_offsets (group_id, topic, partition);

CREATE TABLE acls (
    principal TEXT NOT NULL,
    operation TEXT NOT NULL,
    resource_type TEXT NOT NULL,
    resource_name TEXT NOT NULL,
    pattern_type TEXT NOT NULL,
    permission TEXT NOT NULL,
    PRIMARY KEY (principal, operation, resource_type, resource_name, pattern_type, permission)
) STRICT, WITHOUT ROWID;
"""

TRIGGERS = (
    """
    CREATE TRIGGER journal_refuses_update BEFORE UPDATE ON journal
    BEGIN SELECT RAISE(ABORT, 'the journal is append only'); END
    """,
    """
    CREATE TRIGGER journal_refuses_delete BEFORE DELETE ON journal
    BEGIN SELECT RAISE(ABORT, 'the journal is append only'); END
    """,
    """
    CREATE TRIGGER records_refuse_update BEFORE UPDATE ON records
    BEGIN SELECT RAISE(ABORT, 'records are append only'); END
    """,
    """
    CREATE TRIGGER records_refuse_delete BEFORE DELETE ON records
    WHEN EXISTS (
        SELECT 1 FROM partitions p
        WHERE p.partition_id = OLD.partition_id
            AND OLD."offset" >= p.log_start_offset AND OLD."offset" >= p.clean_offset
    )
    BEGIN SELECT RAISE(ABORT, 'records go only by retention or compaction'); END
    """,
)


def upgrade() -> None:
    for script in (EVENTS, LOG_STATE, COORDINATOR_STATE):
        for statement in script.split(";"):
            if statement.strip():
                op.execute(statement)
    for trigger in TRIGGERS:
        op.execute(trigger)
