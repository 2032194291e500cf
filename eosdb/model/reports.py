"""Reports about a file, which `Database.admin` returns and the commands show."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from eosdb.model.answers import Tabular
from eosdb.model.fetched import LogRecord
from eosdb.model.values import PartitionOffsets, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedBatch:
    """A stored batch (kafka-dump-log). `count` records were appended; `records` of them are still stored.
    `coordinator_epoch` is the marker's, -1 for data."""

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
    """The folder of the file (Kafka: DescribeLogDirs), the size and free space of its file system, and the
    bytes of each partition's records."""

    path: str
    total_bytes: int
    usable_bytes: int
    sizes: dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class CompactReport(Tabular):
    """The result of `compact`: the size of the file before and after, and the seconds taken.

    `held_by` names the reader of an earlier snapshot, if there is one: the file and the WAL shrink at the
    first write after that reader has ended.
    """

    bytes_before: int
    bytes_after: int
    elapsed_s: float
    held_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessReport(Tabular):
    """Counts of a processor since it was created.

    `processed` counts the records whose handler succeeded, `produced` the records that it returned.
    `retried` and `dead_lettered` count the records that wait for a retry or went to the dead letter topic,
    `postponed` the records whose handler raised RetryAt. `failed` counts failed calls of the handler,
    `commits` and `aborts` transactions. `metrics` is the value of `Processor.metrics`.
    """

    processed: int
    produced: int
    retried: int
    dead_lettered: int
    postponed: int
    failed: int
    commits: int
    aborts: int
    metrics: dict[str, float] = field(repr=False)


@dataclass(frozen=True, slots=True)
class PublishReport(Tabular):
    """The result of a publish.

    `url` is the file's own folder, `snapshot` the name of the snapshot, `position` its last event, `size`
    the file's size in bytes; `sent_objects` and `sent_bytes` count the uploaded chunks, and
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
    """A table, an index, or free space.

    `kind` is records, journal, state (tables folded from events, sessions, the file's id), baseline (the
    start of the history) or own table; each of these also with "index"; or free, or other (SQLite's pages).
    """

    kind: str
    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class TopicStorage:
    """The storage of a topic: its rows (records and markers), the bytes of their keys, values and headers,
    and the bytes of the events that name the topic."""

    topic: str
    records: int
    record_bytes: int
    journal_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageStats(Tabular):
    """The storage of a file. The parts, largest first, add up to `total_bytes`.

    `transactions` is the number of completed ones in the journal; their events take
    `bytes_per_transaction`. With `is_estimate`, this SQLite cannot count pages (it lacks dbstat), so parts
    are estimated from their content.
    """

    total_bytes: int
    is_estimate: bool
    parts: tuple[StoragePart, ...]
    topics: tuple[TopicStorage, ...]
    transactions: int
    bytes_per_transaction: float

    def bytes_of(self, *kinds: str) -> int:
        """The total size of the parts of these kinds."""
        return sum(part.bytes for part in self.parts if part.kind in kinds)


class Lag(int):
    """The records that a reader could get now; the records after these, `held_back` by the last stable
    offset; and the offsets to be `skipped`: markers and aborted data."""

    held_back: int
    skipped: int

    def __new__(cls, readable: int, held_back: int = 0, skipped: int = 0) -> Lag:
        lag = super().__new__(cls, readable)
        lag.held_back, lag.skipped = held_back, skipped
        return lag

    @property
    def readable(self) -> int:
        """The number of records that a reader could get now."""
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
    """A stored event; `detail` is a JSON object with its values by name, as in the view `journal`."""

    position: int
    kind: str
    timestamp: int
    topic: str | None
    partition: int | None
    transactional_id: str | None
    detail: str


class HangingReason(Enum):
    """The reason why an open transaction will not end by itself soon."""

    UNKNOWN = "no transactional id of the coordinator has this producer id"
    COMPLETED = "the coordinator has completed it"
    ANOTHER_EPOCH = "the coordinator knows another epoch of its producer"
    NOT_ITS_PARTITION = "the coordinator's transaction does not hold this partition"
    REFUSED = "decided, but the partition has seen a newer coordinator than the current one"
    OVERDUE = "older than its timeout, and nobody has written since"
    OWNER_DIED = "its owner has died, and nobody has written since"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction that is open in a partition, with its coordinator's state.

    `state` is None if the coordinator does not know the transaction. `start_time_ms` is its start according
    to the coordinator, or else the time of its first record in the partition; `deadline_ms` is when it will
    be aborted automatically, -1 for never.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp: int
    transactional_id: str | None = None
    state: str | None = None
    start_time_ms: int
    deadline_ms: int = -1
    hanging: HangingReason | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition in which the transaction is open."""
        return TopicPartition(self.topic, self.partition)

    @property
    def due(self) -> str:
        """A sentence about the effect of the next write on the transaction; empty if it has no effect."""
        if self.hanging is HangingReason.OVERDUE:
            return "It is older than its timeout; the next write to the file aborts it"
        if self.hanging is HangingReason.OWNER_DIED:
            return "Its owner has died; the next write to the file aborts it"
        if self.hanging is None and self.deadline_ms < 0:
            return "It is decided; the next write to the file completes it"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPartition:
    """A group's position in one partition, and the member that reads it. `committed_offset` is -1 if there
    is none; then `lag` counts from the log start offset."""

    group_id: str
    topic: str
    partition: int
    committed_offset: int
    metadata: str
    log_end_offset: int
    lag: Lag
    pending: tuple[str, ...] = ()
    """Transactional ids whose open transactions hold a pending offset of this partition."""
    member_id: str | None = None
    client_id: str | None = None
    client_host: str | None = None
    """The member's host, if it has connected over the wire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport(Tabular):
    """A group, its state, and every partition with a committed offset or a member.

    State and members are as the next write to the file will leave them. `due` says which members it will
    remove, because their session has ended or their process has died.
    """

    group_id: str
    state: str
    members: int
    partitions: tuple[GroupPartition, ...]
    due: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis(Tabular):
    """Why a reader of a partition makes no progress: the offsets, and the transaction that holds it back.

    Beyond the last stable offset, `waiting_committed` records become readable when that transaction ends.
    `waiting_open` records belong to open transactions, including that transaction.
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
    group_due: tuple[str, ...] = ()
    """`GroupReport.due` of the group."""


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """An offset that a reset would change, or has changed; `before` is -1 if there was none."""

    topic: str
    partition: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class ViewDescription:
    """A documented SQL view: its name, its columns in order, and a sentence about its content."""

    name: str
    columns: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class CommitTimes:
    """The durations (s) of the commits of one database object.

    `counts` is a histogram: for each bound, the commits up to it and above the previous one; last, the
    commits above all bounds.
    """

    bounds_s: tuple[float, ...]
    counts: tuple[int, ...]
    total_s: float
    """The time in COMMIT itself, with its fsync."""
    lock_wait_s: float
    """The time that writers have waited for other writers before their commits began."""
