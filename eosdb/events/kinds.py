"""The kinds of events: one class of values for each.

The journal is the truth; every materialized table is folded from these values by the projections in `log`
and `coordinator`. An event's first fields are columns of the journal; whatever else it says is its
`detail`, a JSON object with one member per field. `encoding` derives all of that from the classes: a
field is added here alone. One that existing files lack comes last and has a default. What follows from
elsewhere is left out of some rows (`lean`), but not of these values.
"""

from __future__ import annotations

from typing import Final, NamedTuple, get_args

from eosdb.model.protocol.scram import ScramCredential
from eosdb.model.values import (
    CLASSIC,
    NO_PRODUCER_ID,
    OffsetAndMetadata,
    TopicPartition,
    TransactionState,
)

COLUMNS: Final = ("timestamp", "topic", "partition", "transactional_id")
"""What an event says in columns of its own, its first fields; the rest is its detail."""


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
    """`base_sequence` counts on beyond int32 (-1: none); `size` is the batch's stored bytes, `crc` the
    CRC-32 of the sums of their content if the records have checksums (`log.checksum`), before schema 7 that
    of the content itself, and -1 in files of the first versions."""

    timestamp: int
    topic: str
    partition: int
    transactional_id: str | None
    partition_id: int
    base_offset: int
    count: int  # type: ignore[assignment]  # Instead of what tuples call so.
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    max_timestamp: int
    max_timestamp_offset: int
    size: int
    crc: int = -1
    has_checksums: bool = False

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
    """`reason` is `delete_records`, `retention.ms` or `retention.bytes`."""

    timestamp: int
    topic: str
    partition: int
    partition_id: int
    log_start_offset: int
    size: int
    reason: str


class LogCleaned(NamedTuple):
    """Compaction: superseded records below `clean_offset` have been removed.

    `horizons` are the offsets of tombstones and of markers without data that this pass saw first; they
    are removed `delete.retention.ms` later; `expired_horizons` are those removed now.
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


class ProducersExpired(NamedTuple):
    timestamp: int
    topic: str
    partition: int
    partition_id: int
    producer_ids: tuple[int, ...]


class SnapshotTaken(NamedTuple):
    """A snapshot of a partition's producer states as of `offset` (exclusive) was taken."""

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


class CoordinatorElected(NamedTuple):
    timestamp: int
    epoch: int


class TransactionStateChanged(NamedTuple):
    """The whole new state of a transactional id, as Kafka's transaction log has it."""

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
    next_producer_id: int = NO_PRODUCER_ID
    transaction_version: int = CLASSIC


class TransactionalIdExpired(NamedTuple):
    timestamp: int
    transactional_id: str
    producer_id: int
    producer_epoch: int


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


class GroupMember(NamedTuple):
    """One member of a group; bytes are base64."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, str], ...]
    assignment: str
    has_joined: bool
    client_host: str = ""
    """Of members that came over the wire."""
    owner_lock: int = 0
    """Of members whose process holds a lock while it lives: its number (decisions/0034)."""


class GroupChanged(NamedTuple):
    """The whole new state of a consumer group and its members."""

    timestamp: int
    group_id: str
    state: str
    protocol_type: str
    protocol_name: str | None
    generation_id: int
    leader: str | None
    members: tuple[GroupMember, ...]
    deadline_ms: int


class OffsetsCommitted(NamedTuple):
    timestamp: int
    group_id: str
    offsets: tuple[OffsetCommit, ...]


class TxnOffsetsCommitted(NamedTuple):
    """Offsets that become the group's when the transaction commits."""

    timestamp: int
    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    offsets: tuple[OffsetCommit, ...]


class OffsetsDeleted(NamedTuple):
    """`reason` is `deleted`, `expired`, `group deleted` or `group expired`; the last two end the
    group, too."""

    timestamp: int
    group_id: str
    partitions: tuple[TopicPartition, ...]
    reason: str


class IdempotencyKeyUsed(NamedTuple):
    """The record at `offset` was published under a key that is used up from now on."""

    timestamp: int
    topic: str
    partition: int
    idempotency_key: str
    offset: int
    record_timestamp: int


class IdempotencyKeysExpired(NamedTuple):
    """Keys whose use was too long ago; each may be used again."""

    timestamp: int
    topic: str
    idempotency_keys: tuple[str, ...]


class SinkBatchAppended(NamedTuple):
    """A sink's batch is in the log in full; the events before this one say what it appended.

    `held` says what that was, in the sink's words; nothing where the sink did not say.
    """

    timestamp: int
    sink_id: str
    batch_id: int
    held: tuple[str, ...] = ()


class SinksExpired(NamedTuple):
    """Sinks whose last batch was too long ago; what comes next is their first."""

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
    """One row of the access control list; `*` as name or principal `User:*` means any."""

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
    | CoordinatorElected
    | TransactionStateChanged
    | TransactionalIdExpired
    | GroupChanged
    | OffsetsCommitted
    | TxnOffsetsCommitted
    | OffsetsDeleted
    | IdempotencyKeyUsed
    | IdempotencyKeysExpired
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
