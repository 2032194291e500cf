"""What operators and analysts learn about a file: values that `Database.admin` returns and the command
line shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from eosdb.model.fetched import LogRecord
from eosdb.model.values import PartitionOffsets, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedBatch:
    """One batch as it is stored (kafka-dump-log). `count` records were appended; `records` are those
    still stored. `coordinator_epoch` is a marker's, -1 for data."""

    base_offset: int
    last_offset: int
    count: int
    base_sequence: int
    last_sequence: int
    producer_id: int
    producer_epoch: int
    transactional_id: str | None
    is_transactional: bool
    is_control: bool
    coordinator_epoch: int
    append_time: int
    size: int
    crc: int
    records: tuple[LogRecord, ...]


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """The folder of the file (Kafka: DescribeLogDirs), the size of its file system and the room left in
    it, and the bytes of records of each partition."""

    path: str
    total_bytes: int
    usable_bytes: int
    sizes: dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class CompactReport:
    """The size of the file before and after, and seconds taken.

    `held_by` says who reads an earlier snapshot, if somebody does: the file, and the WAL, shrink when that
    has ended and something is written.
    """

    bytes_before: int
    bytes_after: int
    elapsed_s: float
    held_by: str = ""


@dataclass(frozen=True, slots=True)
class PublishReport:
    """What was published, and what it took.

    `url` is the file's own folder, `snapshot` the name of the snapshot, `position` its last event, `size`
    the file's size in bytes; `sent_objects` and `sent_bytes` count the chunks that were not there yet, and
    `removed_objects` old snapshots and chunks.
    """

    url: str
    snapshot: str
    position: int
    size: int
    sent_objects: int
    sent_bytes: int
    removed_objects: int


@dataclass(frozen=True, slots=True)
class StoragePart:
    """A table, an index, or what is free. `kind`: records, journal, state (folded from the events; leases,
    and the file's own notes), baseline (where the history begins), own table, each of these also as an
    index; free; other (SQLite's own)."""

    kind: str
    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class TopicStorage:
    """What is stored of a topic: rows of records, markers among them, the bytes of their keys, values and
    headers, and of the events in the journal that name the topic."""

    topic: str
    records: int
    record_bytes: int
    journal_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageStats:
    """What takes the space of a file, largest first; the parts add up to `total_bytes`.

    `transactions` have completed in the journal as it is kept; their events take `bytes_per_transaction`.
    `is_estimate`: this SQLite cannot count pages (it has no dbstat), so parts are shares by content.
    """

    total_bytes: int
    is_estimate: bool
    parts: tuple[StoragePart, ...]
    topics: tuple[TopicStorage, ...]
    transactions: int
    bytes_per_transaction: float

    def bytes_of(self, *kinds: str) -> int:
        """What all parts of these kinds take."""
        return sum(part.bytes for part in self.parts if part.kind in kinds)


class Lag(int):
    """How many records a reader could get now, and what else lies between it and the end of the log:
    records that are `held_back` by the last stable offset, and offsets to be `skipped`, which are markers
    and aborted data."""

    held_back: int
    skipped: int

    def __new__(cls, readable: int, held_back: int = 0, skipped: int = 0) -> Lag:
        lag = super().__new__(cls, readable)
        lag.held_back, lag.skipped = held_back, skipped
        return lag

    @property
    def readable(self) -> int:
        """How many records a reader could get now: the number itself."""
        return int(self)

    def __repr__(self) -> str:
        return f"Lag({int(self)}, held_back={self.held_back}, skipped={self.skipped})"


@dataclass(frozen=True, slots=True)
class JsonView:
    """A typed view over the JSON values of a topic: column types by column name."""

    name: str
    topic: str
    columns: dict[str, str]


@dataclass(frozen=True, slots=True)
class SnapshotEntry:
    """The state of one producer in a snapshot, with the field names of Kafka's snapshot dump."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    current_txn_first_offset: int
    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One event as it is stored; `detail` is its JSON object, without what follows from elsewhere
    (docs/sql.md says what that is)."""

    position: int
    kind: str
    timestamp: int
    topic: str | None
    partition: int | None
    transactional_id: str | None
    detail: str


class HangingReason(Enum):
    """Why an open transaction will not end by itself soon."""

    UNKNOWN = "no transactional id of the coordinator has this producer id"
    COMPLETED = "the coordinator has completed it"
    ANOTHER_EPOCH = "the coordinator knows another epoch of its producer"
    NOT_ITS_PARTITION = "the coordinator's transaction does not hold this partition"
    REFUSED = "decided, but the partition has seen a newer coordinator than the current one"
    OVERDUE = "older than its timeout, and nobody has written since"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction that is open in a partition, and what the coordinator knows of it.

    `state` is the coordinator's, None when it knows nothing. `start_time_ms` is when the transaction
    began, by the coordinator or else by its first record here; `deadline_ms` is when it will be aborted
    by itself, -1 for never.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp: int
    transactional_id: str | None
    state: str | None
    start_time_ms: int
    deadline_ms: int
    hanging: HangingReason | None

    @property
    def topic_partition(self) -> TopicPartition:
        """Where the transaction is open."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPartition:
    """Where a group stands in one partition, and who reads it. `committed_offset` is -1 for none;
    `lag` is None when there is nothing to measure from."""

    group_id: str
    topic: str
    partition: int
    committed_offset: int
    metadata: str
    log_end_offset: int
    lag: Lag | None
    pending: tuple[str, ...] = ()
    """Transactional ids whose open transactions hold a pending offset of this partition."""
    member_id: str | None = None
    client_id: str | None = None
    client_host: str | None = None
    """Of a member that came over the wire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """A group, its state, and every partition for which it has an offset or a reader."""

    group_id: str
    state: str
    members: int
    partitions: tuple[GroupPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Why a reader of a partition gets no further: where everything stands, and which transaction holds
    it.

    Beyond the last stable offset, `waiting_committed` records could be read at once if the holder ended,
    and `waiting_open` belong to open transactions, the holder's among them.
    """

    topic: str
    partition: int
    now_ms: int
    offsets: PartitionOffsets
    holder: OpenTransaction | None
    others_open: int
    waiting_committed: int
    waiting_open: int
    group: GroupPartition | None
    group_state: str | None


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """An offset that a reset would change, or has changed; `before` is -1 if there was none."""

    topic: str
    partition: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class ViewDescription:
    """A view of the contract: its name, its columns in order, and what it shows, in one sentence."""

    name: str
    columns: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class CommitTimes:
    """How long the commits of one database object have taken, in seconds.

    `counts` has one number for each bound, of those that took no longer and more than the bound before, and
    a last one for those that took longer than all bounds.
    """

    bounds_s: tuple[float, ...]
    counts: tuple[int, ...]
    total_s: float
    """Of COMMIT itself, with its fsync."""
    lock_wait_s: float
    """How long writers have waited for other writers, before their commits began."""
