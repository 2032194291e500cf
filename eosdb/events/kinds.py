"""What can happen: one frozen value per kind of event, and its form as a row of the journal.

The journal is the truth; every materialized table is folded from these values by the projections in
`log` and `coordinator`. `topic`, `partition` and `transactional_id` are columns of their own;
whatever else an event says is its `detail`, a JSON object with one member per field.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from eosdb.model.values import (
    CLASSIC,
    NO_PRODUCER_ID,
    OffsetAndMetadata,
    TopicPartition,
    TransactionState,
)

COLUMNS: Final = ("timestamp", "topic", "partition", "transactional_id")
"""What an event says in columns of its own; the rest is its detail."""
quoted: Final[Callable[[str], str]] = json.JSONEncoder(ensure_ascii=False).encode
"""A text as a JSON string."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened at `timestamp` (ms)."""

    timestamp: int

    def columns(self) -> tuple[str | None, int | None, str | None]:
        """Topic, partition and transactional id, None where the event has none."""
        return (
            getattr(self, "topic", None),
            getattr(self, "partition", None),
            getattr(self, "transactional_id", None),
        )

    def detail(self) -> str:
        """Everything but the journal's own columns, as a JSON object."""
        return json.dumps(
            {name: _plain(getattr(self, name)) for name in _detail_fields(type(self))},
            separators=(",", ":"),
            ensure_ascii=False,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCreated(Event):
    topic: str
    topic_id: int
    first_partition_id: int
    partitions: int
    config: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsAdded(Event):
    topic: str
    topic_id: int
    first_partition_id: int
    first_partition: int
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfigAltered(Event):
    topic: str
    topic_id: int
    config: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDeleted(Event):
    topic: str
    topic_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAppended(Event):
    """`base_sequence` counts on beyond int32 (-1: none); `size` is the batch's stored bytes, `crc` the
    CRC-32 of the sums of their content if the records have checksums (`log.checksum`), before schema 7 that
    of the content itself, and -1 in files of the first versions."""

    topic: str
    partition: int
    transactional_id: str | None
    partition_id: int
    base_offset: int
    count: int
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

    def detail(self) -> str:
        return (
            f'{{"partition_id":{self.partition_id},"base_offset":{self.base_offset},'
            f'"count":{self.count},"producer_id":{self.producer_id},'
            f'"producer_epoch":{self.producer_epoch},"base_sequence":{self.base_sequence},'
            f'"is_transactional":{"true" if self.is_transactional else "false"},'
            f'"max_timestamp":{self.max_timestamp},'
            f'"max_timestamp_offset":{self.max_timestamp_offset},"size":{self.size},'
            f'"crc":{self.crc},"has_checksums":{"true" if self.has_checksums else "false"}}}'
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerWritten(Event):
    """A control record that ends a producer's transaction in one partition."""

    topic: str
    partition: int
    transactional_id: str | None
    partition_id: int
    offset: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    control: str

    def detail(self) -> str:
        return (
            f'{{"partition_id":{self.partition_id},"offset":{self.offset},'
            f'"producer_id":{self.producer_id},"producer_epoch":{self.producer_epoch},'
            f'"coordinator_epoch":{self.coordinator_epoch},"control":"{self.control}"}}'
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStartOffsetMoved(Event):
    """`reason` is `delete_records`, `retention.ms` or `retention.bytes`."""

    topic: str
    partition: int
    partition_id: int
    log_start_offset: int
    size: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCleaned(Event):
    """Compaction: superseded records below `clean_offset` are gone.

    `horizons` are the offsets of tombstones and of markers without data that this pass saw first;
    they go `delete.retention.ms` later; `expired_horizons` are those that went now.
    """

    topic: str
    partition: int
    partition_id: int
    clean_offset: int
    removed: int
    size: int
    horizons: tuple[int, ...]
    expired_horizons: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducersExpired(Event):
    topic: str
    partition: int
    partition_id: int
    producer_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotTaken(Event):
    """The producer states of a partition as of `offset` (exclusive) were kept."""

    topic: str
    partition: int
    partition_id: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdBlockAllocated(Event):
    first_producer_id: int
    size: int
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorElected(Event):
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionStateChanged(Event):
    """The whole new state of a transactional id, as Kafka's transaction log has it."""

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

    def detail(self) -> str:
        from_state = "null" if self.from_state is None else f'"{self.from_state.label}"'
        return (
            f'{{"producer_id":{self.producer_id},"producer_epoch":{self.producer_epoch},'
            f'"last_producer_epoch":{self.last_producer_epoch},'
            f'"previous_producer_id":{self.previous_producer_id},"from_state":{from_state},'
            f'"to_state":"{self.to_state.label}","timeout_ms":{self.timeout_ms},'
            f'"start_time_ms":{self.start_time_ms},"partitions":{partitions_json(self.partitions)},'
            f'"groups":{texts_json(self.groups)},"next_producer_id":{self.next_producer_id},'
            f'"transaction_version":{self.transaction_version}}}'
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalIdExpired(Event):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChanged(Event):
    """The whole new state of a consumer group and its members."""

    group_id: str
    state: str
    protocol_type: str
    protocol_name: str | None
    generation_id: int
    leader: str | None
    members: tuple[GroupMember, ...]
    deadline_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsCommitted(Event):
    group_id: str
    offsets: tuple[OffsetCommit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetsCommitted(Event):
    """Offsets that become the group's when the transaction commits."""

    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    offsets: tuple[OffsetCommit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsDeleted(Event):
    """`reason` is `deleted`, `expired`, `group deleted` or `group expired`; the last two end the
    group, too."""

    group_id: str
    partitions: tuple[TopicPartition, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyKeyUsed(Event):
    """The record at `offset` was published under a key that is taken from now on."""

    topic: str
    partition: int
    idempotency_key: str
    offset: int
    record_timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkBatchAppended(Event):
    """Everything of a sink's batch is in the log; what it appended stands in the events before.

    `held` says what that was, in the sink's words; nothing where the sink did not say.
    """

    sink_id: str
    batch_id: int
    held: tuple[str, ...] = ()


class ViewColumn(NamedTuple):
    """A column of a typed view: the JSON field it shows, and its SQL type."""

    name: str
    path: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewCreated(Event):
    """A typed view over the JSON values of a topic."""

    topic: str
    name: str
    view_columns: tuple[ViewColumn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewDropped(Event):
    name: str


class Acl(NamedTuple):
    """One row of the access control list; `*` as name or principal `User:*` means any."""

    principal: str
    operation: str
    resource_type: str
    resource_name: str
    pattern_type: str = "literal"
    permission: str = "allow"


@dataclass(frozen=True, slots=True, kw_only=True)
class AclAdded(Event):
    acl: Acl


@dataclass(frozen=True, slots=True, kw_only=True)
class AclRemoved(Event):
    acl: Acl


KINDS: Final[dict[str, type[Event]]] = {
    event.__name__: event
    for event in (
        TopicCreated, PartitionsAdded, TopicConfigAltered, TopicDeleted, BatchAppended, MarkerWritten,
        LogStartOffsetMoved, LogCleaned, ProducersExpired, SnapshotTaken, ProducerIdBlockAllocated,
        CoordinatorElected, TransactionStateChanged, TransactionalIdExpired, OffsetsCommitted,
        TxnOffsetsCommitted, OffsetsDeleted, AclAdded, AclRemoved, GroupChanged, IdempotencyKeyUsed,
        SinkBatchAppended, ViewCreated, ViewDropped,
    )
}  # fmt: skip

_DETAIL_FIELDS: Final = {
    kind: tuple(field.name for field in dataclasses.fields(kind) if field.name not in COLUMNS)
    for kind in KINDS.values()
}


def _detail_fields(kind: type[Event]) -> tuple[str, ...]:
    return _DETAIL_FIELDS[kind]


def partitions_json(partitions: Iterable[TopicPartition]) -> str:
    """Partitions as the contract shows them: a JSON array of topic and partition."""
    return (
        "["
        + ",".join([f'{{"topic":{quoted(tp[0])},"partition":{tp[1]}}}' for tp in partitions])
        + "]"
    )


def texts_json(texts: Iterable[str]) -> str:
    """A JSON array of texts."""
    return "[" + ",".join(map(quoted, texts)) + "]"


def _plain(value: object) -> object:
    match value:
        case TransactionState():
            return value.label
        case TopicPartition():
            return {"topic": value.topic, "partition": value.partition}
        case tuple() if hasattr(value, "_asdict"):
            return value._asdict()
        case tuple():
            return [_plain(item) for item in value]
        case _:
            return value
