"""The values of requests and responses, under Kafka's names.

Plain frozen values with almost no behaviour; a value that exists for each record is a named tuple. -1
stands for "none" as in Kafka's protocol, and all times are milliseconds since the epoch (UTC).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, TypedDict
from uuid import UUID

from eosdb.errors import ApiError
from eosdb.model.answers import Tabular
from eosdb.model.clock import DeliverAt

# For ConsumerRecord without parameters, keys and values have type Any. A consumer returns `bytes | Any`, as
# typeshed does for `re.Match.group`: `bytes | None` would force every program to check for None. Type
# checkers know typing_extensions even if it is not installed, and only they see these defaults.
if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Key = TypeVar("Key", covariant=True, default=Any)
    Value = TypeVar("Value", covariant=True, default=Any)
    MadeKey = TypeVar("MadeKey", default=bytes)
    MadeValue = TypeVar("MadeValue", default=bytes)
else:
    from typing import TypeVar

    Key, Value = TypeVar("Key", covariant=True), TypeVar("Value", covariant=True)
    MadeKey, MadeValue = TypeVar("MadeKey"), TypeVar("MadeValue")

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1
NO_COORDINATOR_EPOCH: Final = -1

CLASSIC: Final = 1
"""Transaction version 1: consecutive transactions share the producer's epoch."""
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
PARTITIONS_MAX: Final = 10_000
"""The most partitions of a topic."""
INTERNAL_TOPICS: Final = (GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC)
"""Kafka's internal topics. In eosdb they are tables, and their names are reserved."""
RELAY_GROUPS: Final = "__eosdb_relay."
"""The prefix of the groups whose offsets show the progress of relays from a file."""

IsolationLevel = Literal["read_uncommitted", "read_committed"]
Durability = Literal["full", "normal", "off"]
OffsetReset = Literal["latest", "earliest", "none"]

Header = tuple[str, bytes | None]
Headers = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]
"""Headers as callers may give them; text is stored as UTF-8."""


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def waiting_partition(partition: int) -> int:
    """Return the number of the partition in which records wait for `partition`, and the reverse: -1 for 0,
    -2 for 1. Readers, listings and clients of the wire do not know these partitions (decisions/0098)."""
    return -1 - partition


class Record(NamedTuple):
    """A record to be sent. `timestamp` is in ms since the epoch; None is the time of the append."""

    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[Header] = ()
    timestamp: int | None = None


class RecordBatch(NamedTuple):
    """Records that are appended together, with one range of a producer's sequence numbers."""

    records: Sequence[Record]
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    is_transactional: bool = False
    sent_bytes: int = -1
    """The size of the batch as sent, which max.message.bytes limits; -1: the size of the records."""
    is_scheduled: bool = False
    """Whether timestamps are due times: only such a batch may go to a waiting partition."""


class ProduceResult(NamedTuple):
    """The result of one batch. A duplicate has the offsets of the original."""

    base_offset: int = NO_OFFSET
    last_offset: int = NO_OFFSET
    log_append_time: int = NO_TIMESTAMP
    log_start_offset: int = NO_OFFSET
    duplicate: bool = False
    error: ApiError | None = None


class TimestampType(IntEnum):
    """The source of a record's timestamp: the producer (0) or the broker at the append (1)."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """The offsets at which a partition's log begins and ends."""

    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    first_unstable_offset: int


class OffsetAndTimestamp(NamedTuple):
    """The offset and timestamp (ms since the epoch) of the record that `list_offsets` found."""

    offset: int
    timestamp: int


class OffsetAndMetadata(NamedTuple):
    """A group's position in a partition: the offset of the next record to read."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class ProducerIdAndEpoch(NamedTuple):
    """The identity of a producer in the log."""

    producer_id: int
    producer_epoch: int


class Coordinator(NamedTuple):
    """The coordinator partition (of 50) of a transactional id or group, and the coordinator epoch."""

    partition: int
    epoch: int


@dataclass(frozen=True, slots=True)
class ProducerState:
    """The state of one producer in a partition (Kafka: DescribeProducers)."""

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
        """The outcome is durable, and the markers are being written."""
        self.is_complete: Final = self.name in ("COMPLETE_COMMIT", "COMPLETE_ABORT")
        """Every marker is written."""
        self.may_expire: Final = self.is_complete or self.name == "EMPTY"
        """No transaction is open or ending (Kafka: isExpirationAllowed)."""

    # A state is a single object, so a hash of its identity is enough. Enum's own hash is slower.
    __hash__ = object.__hash__

    @classmethod
    def from_label(cls, label: str) -> TransactionState:
        """The state with this label. Raises KeyError."""
        return _STATES_BY_LABEL[label]


(
    EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, DEAD,
    PREPARE_EPOCH_FENCE,
) = TransactionState  # fmt: skip
"""The states as names of this module: a look-up in an Enum takes ten times as long."""
_STATES_BY_LABEL: Final = {state.label: state for state in TransactionState}


class GroupState(Enum):
    """The states of Kafka's groups: a classic group is preparing or completing a rebalance, a consumer
    group (KIP-848) is assigning or reconciling."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"


class GroupType(Enum):
    """Who assigns a group's partitions: a member (classic) or the coordinator (consumer, KIP-848)."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


@dataclass(frozen=True, slots=True)
class JoinGroupMember:
    """A member as sent to the leader, with the member's metadata for the chosen protocol."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinGroupResult:
    """The response to a join. If not `is_complete`, other members have yet to join: send the request again.

    Only the leader gets `members`. With `skip_assignment`, the leader must not compute an assignment: it
    has replaced another instance of the same static member, and the group keeps its assignment (KIP-814).
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
    """The response to a sync. If not `is_complete`, the leader has yet to sync: send the request again."""

    is_complete: bool
    protocol_type: str
    protocol_name: str | None
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupMemberDescription:
    """A member of a group; `metadata` and `assignment` are opaque bytes of its protocol. `client_host` is
    empty for a member that opened the file itself."""

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
    group_type: GroupType = GroupType.CLASSIC


class AssignedTopic(NamedTuple):
    """A member's partitions of one topic."""

    topic: str
    topic_id: UUID
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ConsumerGroupHeartbeat:
    """The response to a heartbeat of a consumer group's member (KIP-848). `assignment` is None if the
    member's partitions have not changed."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: tuple[AssignedTopic, ...] | None


@dataclass(frozen=True, slots=True)
class ConsumerGroupMemberDescription:
    """A member of a consumer group: its subscription, its current partitions, and its target assignment.

    `subscribed_topic_regex` is empty if the member has none.
    """

    member_id: str
    group_instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str
    assignment: tuple[AssignedTopic, ...]
    target_assignment: tuple[AssignedTopic, ...]
    is_classic: bool = False
    """Whether the member uses the classic protocol."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupDescription:
    """A consumer group (Kafka: ConsumerGroupDescribe); `state` is the state's name."""

    group_id: str
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[ConsumerGroupMemberDescription, ...]


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """The coordinator's state of a transactional id (Kafka: DescribeTransactions). Times are ms since the
    epoch."""

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    partitions: frozenset[TopicPartition]
    due: str = ""
    """What the next write to the file will do to it, because time has passed; empty if nothing."""


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A row of `Broker.list_transactions` (Kafka: ListTransactions)."""

    transactional_id: str
    producer_id: int
    state: str
    due: str = ""
    """As in `TransactionDescription`."""


@dataclass(frozen=True, slots=True)
class TransactionToken:
    """Identifies one transaction, so that `Database.outcome` can find its outcome after a crash."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    number: int = 0
    """The number of earlier transactions with this epoch; only under version 1, since under version 2 each
    transaction has an epoch of its own."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """The group whose offsets are committed, and the member that commits them. The coordinator verifies the
    membership (KIP-447)."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    topic_ids: Mapping[TopicPartition, UUID] = field(default_factory=dict, compare=False)
    """The ids of the topics that were read: a topic that is deleted and created again is a new topic."""


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
    """The result of `append_once`. `skipped` means that the batch, or a later one, was already in the log.
    `offsets` has the batch's first offset in each partition."""

    skipped: bool
    offsets: dict[TopicPartition, int]


class ConsumerRecord(NamedTuple, Generic[Key, Value]):
    """A record that a consumer returns. `key` and `value` are bytes or the deserializers' results. Without
    a key or value they are None, even if `Key` and `Value` do not include None."""

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
    """A record that a handler of `db.processor` returns, and its destination. Without a `topic` it is sent
    to the sink."""

    value: object = None
    key: object = None
    topic: str | None = None
    partition: int | None = None
    headers: Headers = ()
    timestamp: int | None = None
    deliver_at: DeliverAt | None = None
    """When the record enters its topic; None: at once."""


class RecordOptions(TypedDict, total=False):
    """The keyword arguments for a record's fields, except topic and value."""

    key: object
    partition: int | None
    headers: Headers
    timestamp: int | None
    deliver_at: DeliverAt | None


@dataclass(frozen=True, slots=True)
class ScheduledRecord(Tabular):
    """A record that waits until it is due, and then enters `partition`."""

    id: str
    """Identifies the record in this file, for `cancel_scheduled`."""
    topic: str
    key: bytes | None
    value: bytes | None
    deliver_at: int
    """In ms since the epoch."""
    partition: int
    headers: tuple[Header, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription(Tabular):
    """A topic, the offsets of its partitions, and its own settings."""

    name: str
    partitions: tuple[PartitionOffsets, ...]
    config: dict[str, str]


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic's id and number of partitions. A topic that is deleted and created again has a new id."""

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
class HousekeepingReport(Tabular):
    """The result of one round of housekeeping."""

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
    """Events trimmed from the history; those of stored records stay in the journal."""
    freed_bytes: int = 0
    """Free pages that were released; the file shrinks by as much at the next checkpoint."""


@dataclass(frozen=True, slots=True)
class VerifyReport(Tabular):
    """`ok` if replaying the events gives exactly the materialized tables."""

    ok: bool
    problems: tuple[str, ...]
    events: int
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class RebuildReport(Tabular):
    """The result of a rebuild: events folded, and seconds taken."""

    events: int
    elapsed_s: float
