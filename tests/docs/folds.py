"""The materialized tables that each kind of event is folded into."""

from __future__ import annotations

TABLES = {
    "TopicCreated": "topics partitions counters eosdb_leader_epochs",
    "PartitionsAdded": "topics partitions counters eosdb_leader_epochs",
    "TopicConfigAltered": "topics",
    "TopicDeleted": (
        "topics partitions partition_producers transaction_index time_index delete_horizons "
        "snapshots snapshot_entries group_offsets pending_group_offsets eosdb_idempotency_keys "
        "eosdb_scheduled eosdb_leader_epochs"
    ),
    "BatchAppended": "partitions partition_producers time_index",
    "MarkerWritten": "partitions partition_producers transaction_index time_index eosdb_scheduled",
    "LogStartOffsetMoved": "partitions transaction_index time_index delete_horizons",
    "LogCleaned": "partitions time_index delete_horizons",
    "ProducersExpired": "partition_producers",
    "SnapshotTaken": "snapshots snapshot_entries partitions",
    "ProducerIdBlockAllocated": "counters",
    "LifeBegan": "eosdb_lives eosdb_leader_epochs counters",
    "CoordinatorElected": "counters",
    "TransactionStateChanged": "transactional_ids producer_ids pending_group_offsets group_offsets",
    "TransactionalIdExpired": "transactional_ids",
    "ProducerIdsForgotten": "producer_ids",
    "GroupChanged": "groups group_offsets",
    "GroupConfigAltered": "eosdb_group_configs",
    "OffsetsCommitted": "group_offsets",
    "TxnOffsetsCommitted": "pending_group_offsets",
    "OffsetsDeleted": "group_offsets pending_group_offsets groups",
    "IdempotencyKeyUsed": "eosdb_idempotency_keys",
    "IdempotencyKeysExpired": "eosdb_idempotency_keys",
    "RecordsScheduled": "eosdb_scheduled",
    "ScheduledRecordsRemoved": "eosdb_scheduled",
    "SinkBatchAppended": "eosdb_sinks eosdb_sink_batches",
    "SinksExpired": "eosdb_sinks eosdb_sink_batches",
    "ViewCreated": "eosdb_json_views",
    "ViewDropped": "eosdb_json_views",
    "AclAdded": "acls",
    "AclRemoved": "acls",
    "ScramCredentialSet": "eosdb_scram_credentials",
    "ScramCredentialRemoved": "eosdb_scram_credentials",
}
