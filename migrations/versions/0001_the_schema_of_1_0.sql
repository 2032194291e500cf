CREATE TABLE eosdb_journal (
    position INT NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL,
    timestamp INT NOT NULL,
    topic TEXT,
    partition INT,
    transactional_id TEXT,
    detail TEXT NOT NULL,
    checksum INT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX eosdb_journal_transactions ON eosdb_journal (transactional_id, position)
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
    position INT NOT NULL,
    checksum INT NOT NULL
) STRICT;

CREATE UNIQUE INDEX records_offset ON records (partition_id, "offset");

CREATE UNIQUE INDEX records_sequence ON records
    (partition_id, producer_id, producer_epoch, sequence_round, sequence) WHERE sequence >= 0;

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
    last_aborted_offset INT NOT NULL,
    cleaned_sum INT NOT NULL,
    checksum INT NOT NULL,
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
    previous_offset INT NOT NULL,
    checksum INT NOT NULL,
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
    groups TEXT NOT NULL,
    next_producer_id INT NOT NULL,
    transaction_version INT NOT NULL
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
    retain_from INT,
    PRIMARY KEY (group_id, topic, partition)
) STRICT, WITHOUT ROWID;

CREATE INDEX group_offsets_topic ON group_offsets (topic);

CREATE INDEX group_offsets_retention ON group_offsets (retain_from) WHERE retain_from IS NOT NULL;

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

CREATE TABLE groups (
    group_id TEXT NOT NULL PRIMARY KEY,
    state TEXT NOT NULL,
    protocol_type TEXT NOT NULL,
    protocol_name TEXT,
    generation_id INT NOT NULL,
    leader TEXT,
    members TEXT NOT NULL,
    deadline INT NOT NULL,
    group_type TEXT NOT NULL,
    assignment_epoch INT NOT NULL,
    metadata_hash INT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX groups_deadline ON groups (deadline) WHERE deadline >= 0;

CREATE INDEX groups_with_members ON groups (group_id) WHERE state <> 'Empty';

CREATE TABLE group_sessions (
    group_id TEXT NOT NULL,
    member_id TEXT NOT NULL,
    expires INT NOT NULL,
    checksum INT NOT NULL,
    PRIMARY KEY (group_id, member_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX group_sessions_expires ON group_sessions (expires);

CREATE TABLE eosdb_idempotency_keys (
    topic TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    partition INT NOT NULL,
    "offset" INT NOT NULL,
    timestamp INT NOT NULL,
    used_time INT NOT NULL,
    PRIMARY KEY (topic, idempotency_key)
) STRICT, WITHOUT ROWID;

CREATE INDEX eosdb_idempotency_keys_used ON eosdb_idempotency_keys (used_time);

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

CREATE TABLE eosdb_file (
    file_id TEXT NOT NULL PRIMARY KEY,
    read_version INT NOT NULL,
    first_release TEXT NOT NULL,
    place TEXT,
    checksum INT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE eosdb_sink_batches (
    sink_id TEXT NOT NULL,
    batch_id INT NOT NULL,
    held TEXT NOT NULL,
    PRIMARY KEY (sink_id, batch_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE eosdb_scram_credentials (
    user TEXT NOT NULL,
    mechanism TEXT NOT NULL,
    iterations INT NOT NULL,
    salt TEXT NOT NULL,
    stored_key TEXT NOT NULL,
    server_key TEXT NOT NULL,
    PRIMARY KEY (user, mechanism)
) STRICT, WITHOUT ROWID;

CREATE TABLE eosdb_group_configs (
    group_id TEXT NOT NULL PRIMARY KEY,
    config TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE eosdb_scheduled (
    partition_id INT NOT NULL,
    "offset" INT NOT NULL,
    due INT NOT NULL,
    producer_id INT NOT NULL,
    PRIMARY KEY (partition_id, "offset")
) STRICT, WITHOUT ROWID;

CREATE INDEX eosdb_scheduled_open ON eosdb_scheduled (partition_id, producer_id) WHERE producer_id >= 0;

CREATE INDEX eosdb_scheduled_due ON eosdb_scheduled (due) WHERE producer_id = -1;

CREATE TABLE eosdb_lives (
    life INT NOT NULL PRIMARY KEY,
    life_id TEXT NOT NULL,
    position INT NOT NULL,
    began_time INT NOT NULL,
    ended_producer_id INT NOT NULL,
    first_producer_id INT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE eosdb_leader_epochs (
    partition_id INT NOT NULL,
    leader_epoch INT NOT NULL,
    start_offset INT NOT NULL,
    PRIMARY KEY (partition_id, leader_epoch)
) STRICT, WITHOUT ROWID;

CREATE TABLE eosdb_baseline (
    position INT NOT NULL PRIMARY KEY,
    timestamp INT NOT NULL,
    measured_position INT NOT NULL,
    measured_bytes INT NOT NULL,
    rows_sum INT NOT NULL,
    checksum INT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE eosdb_baseline_counters (
    name TEXT NOT NULL PRIMARY KEY,
    value INT NOT NULL,
    checksum INT NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE eosdb_baseline_topics (
    topic_id INTEGER NOT NULL PRIMARY KEY,
    topic TEXT NOT NULL UNIQUE,
    partitions INT NOT NULL,
    config TEXT NOT NULL,
    created_time INT NOT NULL,
    checksum INT NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE eosdb_baseline_partitions (
    partition_id INTEGER NOT NULL PRIMARY KEY,
    topic_id INT NOT NULL REFERENCES eosdb_baseline_topics (topic_id),
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
    last_aborted_offset INT NOT NULL,
    cleaned_sum INT NOT NULL,
    checksum INT NOT NULL,
    UNIQUE (topic, partition)
) STRICT;

CREATE INDEX eosdb_baseline_partitions_topic_id ON eosdb_baseline_partitions (topic_id);

CREATE TABLE eosdb_baseline_partition_producers (
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
    checksum INT NOT NULL DEFAULT 0,
    PRIMARY KEY (partition_id, producer_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX eosdb_baseline_partition_producers_open
    ON eosdb_baseline_partition_producers (partition_id, current_txn_start_offset)
    WHERE current_txn_start_offset >= 0;

CREATE TABLE eosdb_baseline_transaction_index (
    partition_id INT NOT NULL,
    producer_id INT NOT NULL,
    first_offset INT NOT NULL,
    last_offset INT NOT NULL,
    last_stable_offset INT NOT NULL,
    previous_offset INT NOT NULL,
    checksum INT NOT NULL,
    PRIMARY KEY (partition_id, last_offset)
) STRICT, WITHOUT ROWID;

CREATE TABLE eosdb_baseline_time_index (
    partition_id INT NOT NULL,
    timestamp INT NOT NULL,
    "offset" INT NOT NULL,
    checksum INT NOT NULL DEFAULT 0,
    PRIMARY KEY (partition_id, timestamp)
) STRICT, WITHOUT ROWID;

CREATE TABLE eosdb_baseline_delete_horizons (
    partition_id INT NOT NULL,
    "offset" INT NOT NULL,
    since INT NOT NULL,
    checksum INT NOT NULL DEFAULT 0,
    PRIMARY KEY (partition_id, "offset")
) STRICT, WITHOUT ROWID;

CREATE TABLE eosdb_baseline_snapshots (
    partition_id INT NOT NULL,
    snapshot_offset INT NOT NULL,
    taken_time INT NOT NULL,
    checksum INT NOT NULL DEFAULT 0,
    PRIMARY KEY (partition_id, snapshot_offset)
) STRICT, WITHOUT ROWID;

CREATE TABLE eosdb_baseline_snapshot_entries (
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
    checksum INT NOT NULL DEFAULT 0,
    PRIMARY KEY (partition_id, snapshot_offset, producer_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE eosdb_baseline_producer_ids (
    producer_id INTEGER NOT NULL PRIMARY KEY,
    transactional_id TEXT NOT NULL,
    checksum INT NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE eosdb_baseline_transactional_ids (
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
    groups TEXT NOT NULL,
    next_producer_id INT NOT NULL,
    transaction_version INT NOT NULL,
    checksum INT NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE eosdb_baseline_group_offsets (
    group_id TEXT NOT NULL,
    topic TEXT NOT NULL,
    partition INT NOT NULL,
    committed_offset INT NOT NULL,
    leader_epoch INT NOT NULL,
    metadata TEXT NOT NULL,
    commit_timestamp INT NOT NULL,
    commit_position INT NOT NULL,
    retain_from INT,
    checksum INT NOT NULL DEFAULT 0,
    PRIMARY KEY (group_id, topic, partition)
) STRICT, WITHOUT ROWID;

CREATE INDEX eosdb_baseline_group_offsets_topic ON eosdb_baseline_group_offsets (topic);

CREATE TABLE eosdb_baseline_pending_group_offsets (
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
    checksum INT NOT NULL DEFAULT 0,
    PRIMARY KEY (producer_id, group_id, topic, partition)
) STRICT, WITHOUT ROWID;

CREATE INDEX eosdb_baseline_pending_group_offsets_group
    ON eosdb_baseline_pending_group_offsets (group_id, topic, partition);

CREATE TABLE eosdb_baseline_acls (
    principal TEXT NOT NULL,
    operation TEXT NOT NULL,
    resource_type TEXT NOT NULL,
    resource_name TEXT NOT NULL,
    pattern_type TEXT NOT NULL,
    permission TEXT NOT NULL,
    checksum INT NOT NULL DEFAULT 0,
    PRIMARY KEY (principal, operation, resource_type, resource_name, pattern_type, permission)
) STRICT, WITHOUT ROWID;

CREATE TABLE eosdb_baseline_groups (
    group_id TEXT NOT NULL PRIMARY KEY,
    state TEXT NOT NULL,
    protocol_type TEXT NOT NULL,
    protocol_name TEXT,
    generation_id INT NOT NULL,
    leader TEXT,
    members TEXT NOT NULL,
    deadline INT NOT NULL,
    group_type TEXT NOT NULL,
    assignment_epoch INT NOT NULL,
    metadata_hash INT NOT NULL,
    checksum INT NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE eosdb_baseline_idempotency_keys (
    topic TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    partition INT NOT NULL,
    "offset" INT NOT NULL,
    timestamp INT NOT NULL,
    used_time INT NOT NULL,
    checksum INT NOT NULL DEFAULT 0,
    PRIMARY KEY (topic, idempotency_key)
) STRICT, WITHOUT ROWID;

CREATE TABLE eosdb_baseline_sinks (
    sink_id TEXT NOT NULL PRIMARY KEY,
    batch_id INT NOT NULL,
    timestamp INT NOT NULL,
    checksum INT NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE eosdb_baseline_json_views (
    name TEXT NOT NULL PRIMARY KEY,
    topic TEXT NOT NULL,
    columns TEXT NOT NULL,
    created_time INT NOT NULL,
    checksum INT NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE eosdb_baseline_sink_batches (
    sink_id TEXT NOT NULL,
    batch_id INT NOT NULL,
    held TEXT NOT NULL,
    checksum INT NOT NULL DEFAULT 0,
    PRIMARY KEY (sink_id, batch_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE eosdb_baseline_scram_credentials (
    user TEXT NOT NULL,
    mechanism TEXT NOT NULL,
    iterations INT NOT NULL,
    salt TEXT NOT NULL,
    stored_key TEXT NOT NULL,
    server_key TEXT NOT NULL,
    checksum INT NOT NULL DEFAULT 0,
    PRIMARY KEY (user, mechanism)
) STRICT, WITHOUT ROWID;

CREATE TABLE eosdb_baseline_group_configs (
    group_id TEXT NOT NULL PRIMARY KEY,
    config TEXT NOT NULL,
    checksum INT NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE eosdb_baseline_scheduled (
    partition_id INT NOT NULL,
    "offset" INT NOT NULL,
    due INT NOT NULL,
    producer_id INT NOT NULL,
    checksum INT NOT NULL DEFAULT 0,
    PRIMARY KEY (partition_id, "offset")
) STRICT, WITHOUT ROWID;

CREATE INDEX eosdb_baseline_scheduled_open ON eosdb_baseline_scheduled (partition_id, producer_id)
    WHERE producer_id >= 0;

CREATE TABLE eosdb_baseline_lives (
    life INT NOT NULL PRIMARY KEY,
    life_id TEXT NOT NULL,
    position INT NOT NULL,
    began_time INT NOT NULL,
    ended_producer_id INT NOT NULL,
    first_producer_id INT NOT NULL,
    checksum INT NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE eosdb_baseline_leader_epochs (
    partition_id INT NOT NULL,
    leader_epoch INT NOT NULL,
    start_offset INT NOT NULL,
    checksum INT NOT NULL DEFAULT 0,
    PRIMARY KEY (partition_id, leader_epoch)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER eosdb_journal_refuses_update BEFORE UPDATE ON eosdb_journal
    BEGIN SELECT RAISE(ABORT, 'the journal is append only'); END;

CREATE TRIGGER records_refuse_update BEFORE UPDATE ON records
    BEGIN SELECT RAISE(ABORT, 'records are append only'); END;

CREATE TRIGGER records_refuse_delete BEFORE DELETE ON records
    WHEN EXISTS (
        SELECT 1 FROM partitions p
        WHERE p.partition_id = OLD.partition_id
            AND OLD."offset" >= p.log_start_offset AND OLD."offset" >= p.clean_offset
    )
    BEGIN SELECT RAISE(ABORT, 'records go only by retention or compaction'); END;

CREATE TRIGGER eosdb_baseline_refuses_to_go_back BEFORE UPDATE ON eosdb_baseline
    WHEN NEW.position < OLD.position
    BEGIN SELECT RAISE(ABORT, 'the baseline moves forward only'); END;

CREATE TRIGGER eosdb_baseline_refuses_delete BEFORE DELETE ON eosdb_baseline
    BEGIN SELECT RAISE(ABORT, 'the baseline moves forward only'); END;

CREATE TRIGGER eosdb_journal_refuses_delete BEFORE DELETE ON eosdb_journal
    WHEN OLD.position > coalesce((SELECT position FROM eosdb_baseline), 0)
    BEGIN SELECT RAISE(ABORT, 'the journal is append only'); END;

INSERT INTO eosdb_baseline VALUES (0, 0, 0, 0, 0, 1374930442);
