"""The kinds of events: a named tuple for each.

The projections in `log` and `coordinator` fold all materialized tables from the journal's events.
`encoding` derives the form of rows from the classes, so a new field is added only here: last, and with a
default for the events of earlier schemas.
"""

from __future__ import annotations

from typing import Final, NamedTuple, get_args

from eosdb.model.protocol.members import Member
from eosdb.model.protocol.scram import ScramCredential
from eosdb.model.values import (
    CLASSIC,
    NO_PRODUCER_ID,
    OffsetAndMetadata,
    TopicPartition,
    TransactionState,
)

COLUMNS: Final = ("timestamp", "topic", "partition", "transactional_id")
"""The columns of the journal for an event's first fields; the other fields are its detail."""


class TopicCreated(NamedTuple):
    timestamp: int
    topic: str
    topic_id: int
    first_partition_id: int
    partitions: int
    config: dict[str, str]


class PartitionsAdded(NamedTuple):
    timestamp: int
    topic: str
    topic_id: int
    first_partition_id: int
    first_partition: int
    partitions: int


class TopicConfigAltered(NamedTuple):
    timestamp: int
    topic: str
    topic_id: int
    config: dict[str, str]


class TopicDeleted(NamedTuple):
    timestamp: int
    topic: str
    topic_id: int


class BatchAppended(NamedTuple):
    """A batch of records was appended. `base_sequence` is the sequence number without wrapping at int32
    (-1: none). `size` is the batch's stored bytes. `crc` is the CRC-32 of the sums of the records' content
    (`log.checksum.crc`)."""

    timestamp: int
    topic: str
    partition: int
    transactional_id: str | None
    partition_id: int
    base_offset: int
    count: int  # type: ignore[assignment]  # Replaces `tuple.count`.
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    max_timestamp: int
    max_timestamp_offset: int
    size: int
    crc: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.count - 1


class MarkerWritten(NamedTuple):
    """A control record that ends a producer's transaction in one partition."""

    timestamp: int
    topic: str
    partition: int
    transactional_id: str | None
    partition_id: int
    offset: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    control: str


class LogStartOffsetMoved(NamedTuple):
    """The log start offset moved; `reason` is `delete_records`, `retention.ms` or `retention.bytes`."""

    timestamp: int
    topic: str
    partition: int
    partition_id: int
    log_start_offset: int
    size: int
    reason: str
    cleaned_sum: int
    """The sum (`log.checksum.of`) of the records below the new log start that compaction had passed."""


class LogCleaned(NamedTuple):
    """Compaction: superseded records below `clean_offset` were removed.

    `horizons` are the offsets of tombstones, and of markers without data, that no earlier pass saw;
    a pass at least `delete.retention.ms` later removes them. `expired_horizons` were removed by this pass.
    `unindexed` are timestamps removed from the time index, since no record is left for them. `passed_sum`
    is the sum (`log.checksum.of`) of the records that no earlier pass read. `removed_sum` is the sum of the
    removed records.
    """

    timestamp: int
    topic: str
    partition: int
    partition_id: int
    clean_offset: int
    removed: int
    size: int
    horizons: tuple[int, ...]
    expired_horizons: tuple[int, ...]
    unindexed: tuple[int, ...]
    passed_sum: int
    removed_sum: int


class ProducersExpired(NamedTuple):
    timestamp: int
    topic: str
    partition: int
    partition_id: int
    producer_ids: tuple[int, ...]


class SnapshotTaken(NamedTuple):
    """A snapshot of a partition's producer states was taken; it covers the records below `offset`."""

    timestamp: int
    topic: str
    partition: int
    partition_id: int
    offset: int


class ProducerIdBlockAllocated(NamedTuple):
    timestamp: int
    first_producer_id: int
    size: int
    version: int


class LifeBegan(NamedTuple):
    """The first writer of a copied or restored file began a new life. The copied history gave out the
    producer ids below `ended_producer_id`; the new life gives out ids from `first_producer_id` on."""

    timestamp: int
    life: int
    life_id: str
    ended_producer_id: int
    first_producer_id: int


class CoordinatorElected(NamedTuple):
    timestamp: int
    epoch: int


class TransactionStateChanged(NamedTuple):
    """The complete new state of a transactional id, as in Kafka's transaction log."""

    timestamp: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    last_producer_epoch: int
    previous_producer_id: int
    from_state: TransactionState | None
    to_state: TransactionState
    timeout_ms: int
    start_time_ms: int
    partitions: tuple[TopicPartition, ...]
    groups: tuple[str, ...]
    transaction_version: int = CLASSIC
    next_producer_id: int = NO_PRODUCER_ID


class TransactionalIdExpired(NamedTuple):
    timestamp: int
    transactional_id: str
    producer_id: int
    producer_epoch: int


class ProducerIdsForgotten(NamedTuple):
    """Producer ids were forgotten that have neither a transactional id nor records any more."""

    timestamp: int
    producer_ids: tuple[int, ...]


class OffsetCommit(NamedTuple):
    """One partition of an offset commit."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str

    @classmethod
    def of(cls, tp: TopicPartition, committed: OffsetAndMetadata) -> OffsetCommit:
        return cls(
            tp.topic, tp.partition, committed.offset, committed.leader_epoch, committed.metadata
        )


class GroupChanged(NamedTuple):
    """The new state of a group of either protocol, its new or changed members, and the ids of removed ones.
    `group_type` is a GroupType. `generation_id` is the group's epoch in the new protocol (KIP-848).
    `assignment_epoch` and `metadata_hash` are 0 in a classic group."""

    timestamp: int
    group_id: str
    group_type: str
    state: str
    protocol_type: str
    protocol_name: str | None
    generation_id: int
    leader: str | None
    deadline_ms: int
    assignment_epoch: int
    metadata_hash: int
    members: tuple[Member, ...]
    removed: tuple[str, ...]


class GroupConfigAltered(NamedTuple):
    """The new settings of a group."""

    timestamp: int
    group_id: str
    config: dict[str, str]


class OffsetsCommitted(NamedTuple):
    timestamp: int
    group_id: str
    offsets: tuple[OffsetCommit, ...]


class TxnOffsetsCommitted(NamedTuple):
    """Offsets were added to a transaction; they become the group's offsets when it commits."""

    timestamp: int
    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    offsets: tuple[OffsetCommit, ...]


class OffsetsDeleted(NamedTuple):
    """Offsets were deleted; `reason` is `deleted`, `expired`, `group deleted` or `group expired`. The
    last two also delete the group."""

    timestamp: int
    group_id: str
    partitions: tuple[TopicPartition, ...]
    reason: str


class IdempotencyKeyUsed(NamedTuple):
    """The record at `offset` was published with an idempotency key, which later records cannot use."""

    timestamp: int
    topic: str
    partition: int
    idempotency_key: str
    offset: int
    record_timestamp: int


class IdempotencyKeysExpired(NamedTuple):
    """Idempotency keys have expired and may be used again."""

    timestamp: int
    topic: str
    idempotency_keys: tuple[str, ...]


class RecordsScheduled(NamedTuple):
    """The records of the batch before this event, from `base_offset` on in a waiting partition, wait until
    due. If they belong to a transaction (`producer_id` is not -1), they are scheduled when it commits."""

    timestamp: int
    topic: str
    partition: int
    partition_id: int
    base_offset: int
    producer_id: int
    due: tuple[int, ...]


class ScheduledRecordsRemoved(NamedTuple):
    """These records of a waiting partition wait no longer; `reason` is `delivered` (by the batches before
    this event), `cancelled` or `damaged`."""

    timestamp: int
    topic: str
    partition: int
    partition_id: int
    offsets: tuple[int, ...]
    reason: str


class SinkBatchAppended(NamedTuple):
    """A sink's batch was appended completely, by the events before this one. `held` are the sink's
    identifiers for the content; may be empty."""

    timestamp: int
    sink_id: str
    batch_id: int
    held: tuple[str, ...]


class SinksExpired(NamedTuple):
    """Sinks have expired because their last batch is too old; their next batch counts as the first."""

    timestamp: int
    sink_ids: tuple[str, ...]


class ViewColumn(NamedTuple):
    """A column of a typed view: the JSON field it shows, and its SQL type."""

    name: str
    path: str
    type: str


class ViewCreated(NamedTuple):
    """A typed view over the JSON values of a topic."""

    timestamp: int
    topic: str
    name: str
    view_columns: tuple[ViewColumn, ...]


class ViewDropped(NamedTuple):
    timestamp: int
    name: str


class Acl(NamedTuple):
    """One row of the access control list. `*` is any resource name, `User:*` is any principal."""

    principal: str
    operation: str
    resource_type: str
    resource_name: str
    pattern_type: str = "literal"
    permission: str = "allow"


class AclAdded(NamedTuple):
    timestamp: int
    acl: Acl


class AclRemoved(NamedTuple):
    timestamp: int
    acl: Acl


class ScramCredentialSet(NamedTuple):
    timestamp: int
    credential: ScramCredential


class ScramCredentialRemoved(NamedTuple):
    timestamp: int
    user: str
    mechanism: str


Event = (
    TopicCreated
    | PartitionsAdded
    | TopicConfigAltered
    | TopicDeleted
    | BatchAppended
    | MarkerWritten
    | LogStartOffsetMoved
    | LogCleaned
    | ProducersExpired
    | SnapshotTaken
    | ProducerIdBlockAllocated
    | LifeBegan
    | CoordinatorElected
    | TransactionStateChanged
    | TransactionalIdExpired
    | ProducerIdsForgotten
    | GroupChanged
    | GroupConfigAltered
    | OffsetsCommitted
    | TxnOffsetsCommitted
    | OffsetsDeleted
    | IdempotencyKeyUsed
    | IdempotencyKeysExpired
    | RecordsScheduled
    | ScheduledRecordsRemoved
    | SinkBatchAppended
    | SinksExpired
    | ViewCreated
    | ViewDropped
    | AclAdded
    | AclRemoved
    | ScramCredentialSet
    | ScramCredentialRemoved
)
KINDS: Final[dict[str, type[Event]]] = {kind.__name__: kind for kind in get_args(Event)}
assert len(KINDS) == len(get_args(Event)), "a kind has a name of its own"
assert all(kind._fields[0] == COLUMNS[0] for kind in KINDS.values()), "an event has its time"
