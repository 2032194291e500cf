"""The nouns: values that requests and answers carry, under Kafka's names.

Plain frozen values with next to no behaviour; named tuples where there is one per record. -1 stands for
"none" as in Kafka's protocol, and all times are milliseconds since the epoch (UTC).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Final, Generic, NamedTuple
from uuid import UUID

from eosdb.errors import ApiError
from eosdb.model.type_variables import Key, Value

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1
NO_COORDINATOR_EPOCH: Final = -1

CLASSIC: Final = 1
"""Transaction version 1: the epoch stays from transaction to transaction."""
EPOCH_PER_TRANSACTION: Final = 2
"""Transaction version 2 (KIP-890): every end raises the epoch, so each transaction has its own."""

EARLIEST: Final = -2
"""`list_offsets`: the log start offset."""
LATEST: Final = -1
"""`list_offsets`: the high watermark, or the last stable offset under read_committed."""
MAX_TIMESTAMP: Final = -3
"""`list_offsets`: the record with the largest timestamp."""

GROUP_METADATA_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final = (GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC)
"""Kafka's own: here they are tables, and their names are taken."""

Header = tuple[str, bytes | None]
Headers = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]
"""Headers as callers may hand them in; text is stored as UTF-8."""


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Record(NamedTuple):
    """A record to be sent. `timestamp` is in ms since the epoch; None is the time of the append."""

    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[Header] = ()
    timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Records that are appended together, with one range of a producer's sequence numbers."""

    records: Sequence[Record]
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    is_transactional: bool = False
    sent_bytes: int = -1
    """What max.message.bytes limits, where it was sent in another form; -1: the size of the records."""


@dataclass(frozen=True, slots=True)
class ProduceResult:
    """The result of one batch. A duplicate has the offsets of the original."""

    base_offset: int = NO_OFFSET
    last_offset: int = NO_OFFSET
    log_append_time: int = NO_TIMESTAMP
    log_start_offset: int = NO_OFFSET
    duplicate: bool = False
    error: ApiError | None = None


class TimestampType(IntEnum):
    """Who set a record's timestamp: the producer (0) or the broker at the append (1)."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """Where a partition's log begins and ends."""

    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    first_unstable_offset: int


class OffsetAndTimestamp(NamedTuple):
    """The offset and timestamp (ms since the epoch) of the record that was found."""

    offset: int
    timestamp: int


class OffsetAndMetadata(NamedTuple):
    """A group's position in a partition: the offset of the next record to read."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class ProducerIdAndEpoch(NamedTuple):
    """What identifies a producer to the log."""

    producer_id: int
    producer_epoch: int


class Coordinator(NamedTuple):
    """The coordinator partition (of 50) of a transactional id or group, and the coordinator epoch."""

    partition: int
    epoch: int


@dataclass(frozen=True, slots=True)
class ProducerState:
    """What a partition knows of one producer (Kafka: DescribeProducers)."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int


class TransactionState(Enum):
    """The coordinator's states, with Kafka's codes."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    def __init__(self, code: int) -> None:
        self.label: Final = self.name.title().replace("_", "")
        """Kafka's name of the state, such as `PrepareCommit`."""
        self.is_decided: Final = self.name in ("PREPARE_COMMIT", "PREPARE_ABORT")
        """The outcome is durable, the markers are being written."""
        self.is_complete: Final = self.name in ("COMPLETE_COMMIT", "COMPLETE_ABORT")
        """Every marker is written."""
        self.may_expire: Final = self.is_complete or self.name == "EMPTY"
        """At rest: no transaction is open or ending (Kafka: isExpirationAllowed)."""

    __hash__ = object.__hash__  # There is one of each; Enum's own hash is a call for every lookup.

    @classmethod
    def from_label(cls, label: str) -> TransactionState:
        """The state of this name. Raises KeyError."""
        return _STATES_BY_LABEL[label]


_STATES_BY_LABEL: Final = {state.label: state for state in TransactionState}


class GroupState(Enum):
    """The states of Kafka's classic consumer groups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class JoinGroupMember:
    """A member as the leader sees it: the metadata it sent for the chosen protocol."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinGroupResult:
    """The answer to a join. While `is_complete` is False others have yet to join: ask again.

    Only the leader gets `members`. `skip_assignment`: it leads a group whose assignment stays as it is, for
    it has taken over from another instance of the same static member (KIP-814).
    """

    member_id: str
    is_complete: bool
    generation_id: int
    protocol_type: str
    protocol_name: str | None
    leader: str | None
    members: tuple[JoinGroupMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncGroupResult:
    """The answer to a sync. While `is_complete` is False the leader has yet to sync: ask again."""

    is_complete: bool
    protocol_type: str
    protocol_name: str | None
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupMemberDescription:
    """One member of a group; `metadata` and `assignment` are opaque bytes of its protocol. `client_host` is
    empty for one that opened the file itself."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    metadata: bytes
    assignment: bytes
    client_host: str = ""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group and its members; `state` is the state's name."""

    group_id: str
    state: str
    protocol_type: str
    protocol_name: str | None
    generation_id: int
    leader: str | None
    members: tuple[GroupMemberDescription, ...]


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id as its coordinator knows it (Kafka: DescribeTransactions). Times are ms since the
    epoch."""

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """One row of `Broker.list_transactions` (Kafka: ListTransactions)."""

    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionToken:
    """Identifies one transaction, so that `Database.outcome` can look it up after any crash."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    number: int = 0
    """How many transactions came before it under this epoch. Version 1 only: under version 2 each has an
    epoch of its own."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """The group that commits offsets, and the membership to be checked (KIP-447)."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    topic_ids: Mapping[TopicPartition, UUID] = field(default_factory=dict, compare=False)
    """Which topics the committer has read: offsets are not those of a topic made anew under the name."""


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """The offset of a sent record; -1 if the record is stored but its offset is not known."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class AppendOnceResult:
    """`skipped` when the batch, or a later one, was already in the log. `offsets` are the first offsets
    of the batch in its partitions."""

    skipped: bool
    offsets: dict[TopicPartition, int]


class ConsumerRecord(NamedTuple, Generic[Key, Value]):
    """A record that a consumer returns. `key` and `value` are bytes, or what the deserializers make of
    them; None where the record has none, whatever `Key` and `Value` say."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: Key
    value: Value
    headers: tuple[Header, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerRecord:
    """What handlers of `db.processor` return: what to send, and where. Without a `topic` it goes to the
    sink."""

    value: object = None
    key: object = None
    topic: str | None = None
    partition: int | None = None
    headers: Headers = ()
    timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic, the offsets of its partitions, and its own configs."""

    name: str
    partitions: tuple[PartitionOffsets, ...]
    config: dict[str, str]


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic as clients learn of it: its id and how many partitions it has. A topic made anew under an old
    name has another id."""

    name: str
    topic_id: UUID
    partitions: int


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """A producer-state snapshot: the state after all records below `offset`."""

    topic: str
    partition: int
    offset: int
    producers: int


@dataclass(frozen=True, slots=True)
class HousekeepingReport:
    """What one round of housekeeping did."""

    recovered_transactions: int = 0
    aborted_transactions: int = 0
    expired_transactional_ids: int = 0
    expired_producers: int = 0
    expired_offsets: int = 0
    changed_groups: int = 0
    """Groups that lost members, or whose rebalance timed out."""
    deleted_records: int = 0
    compacted_records: int = 0
    snapshots: int = 0
    expired_idempotency_keys: int = 0
    expired_sinks: int = 0
    trimmed_events: int = 0
    """Events that the history no longer goes back to; those of stored records stay in the journal."""
    freed_bytes: int = 0
    """Free pages that were given back; the file shrinks by as much at the next checkpoint."""


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """`ok` when replaying the events gives exactly the materialized tables."""

    ok: bool
    problems: tuple[str, ...]
    events: int
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """The result of a rebuild: events folded, and seconds taken."""

    events: int
    elapsed_s: float
