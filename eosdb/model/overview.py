"""The figures of a file at one instant, and rates between two instants, for `eosdb top`, `eosdb ui` and
Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from eosdb.model.answers import Tabular
from eosdb.model.reports import OpenTransaction
from eosdb.model.values import PartitionOffsets, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFigures:
    """The figures of a partition. `max_timestamp` is the highest timestamp of its records (epoch ms), -1 if
    it has none."""

    topic: str
    partition: int
    offsets: PartitionOffsets
    size_bytes: int
    """The uncompressed size of all its records: keys, values and headers."""
    max_timestamp: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Behind(int):
    """The lag of a group: the records that it could read now.

    Unless `is_exact`, the number is an upper bound: beyond a partition's newest thousand records it counts
    offsets, including markers and aborted records. `Admin.describe_group_offsets` gives the exact lag.
    """

    is_exact: bool

    def __new__(cls, records: int, *, is_exact: bool = True) -> Behind:
        behind = super().__new__(cls, records)
        behind.is_exact = is_exact
        return behind


class GroupPosition(NamedTuple):
    """A group's position in one partition. A named tuple, because a file may have thousands."""

    topic: str
    partition: int
    committed_offset: int
    behind: Behind
    """From the position or, without one (-1), from the log start."""
    still_since_ms: int = -1
    """The time (epoch ms) since which nothing was committed although a record waits; -1 for less than a
    minute. Only known where a reader is expected: for groups with members, and for relays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFigures:
    """A consumer group: its state (Kafka's name), its number of members, and its positions. For `due`, see
    `GroupReport`."""

    group_id: str
    state: str
    members: int
    positions: tuple[GroupPosition, ...]
    due: tuple[str, ...] = ()
    failed_ms: int = -1
    """When (epoch ms) the group's newest processor stopped without a commit; -1 if it had committed. Only
    known for a group without members that is behind, or has committed nothing."""

    @property
    def behind(self) -> Behind:
        lags = [position.behind for position in self.positions]
        return Behind(sum(lags), is_exact=all(lag.is_exact for lag in lags))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFigures:
    """A topic with dead letters."""

    topic: str
    waiting: int
    """Dead letters that were not replayed; an estimate for a thousand offsets or more in one partition."""
    newest_timestamp: int
    """The timestamp of the newest dead letter (epoch ms)."""


class ScheduledFigures(NamedTuple):
    """The committed records of a topic that wait until they are due."""

    topic: str
    waiting: int
    overdue: int
    """Records that are due, but no program has written, polled, served or run housekeeping since."""
    first_due_ms: int
    """When the first is due (epoch ms)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview(Tabular):
    """The figures of a file at one instant, as far as the principal may describe them."""

    path: str
    file_id: str
    now_ms: int
    size_bytes: int
    wal_bytes: int
    free_bytes: int
    """The free pages of the file."""
    journal_position: int
    """The position of the newest event."""
    partitions: tuple[PartitionFigures, ...]
    groups: tuple[GroupFigures, ...]
    transactions: tuple[OpenTransaction, ...]
    """The open transactions, one entry for each partition of a transaction, by topic, partition and
    offset."""
    dead_letters: tuple[DeadLetterFigures, ...]
    scheduled: tuple[ScheduledFigures, ...] = ()
    closed_topics: tuple[tuple[str, str, bool], ...] = ()
    """Topics closed for a move to Kafka: name, address of the cluster, whether the move is complete."""
    is_read_only: bool = False
    """Whether the file's mode or its file system is read-only."""
    disk_free_bytes: int = -1
    """The free space of the file system; -1 if unknown."""
    wal_held_by: str = ""
    """The readers that keep a WAL of a MiB or more from shrinking."""
    write_held_by: str = ""
    """The process that holds the write lock for long; `db.why()` looks for it."""

    def holders(self) -> Iterator[OpenTransaction]:
        """The open transactions that hold back the last stable offset of a partition."""
        held = {one.topic_partition: one.offsets.last_stable_offset for one in self.partitions}
        return (
            one for one in self.transactions if held.get(one.topic_partition) == one.start_offset
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Increases per second between two overviews."""

    events: float
    offsets: dict[TopicPartition, float]
    """Offsets of records and markers, by partition that has grown."""
    groups: dict[str, float]
    """The movement of positions, by group; a new position counts as 0."""
    file_bytes: float
    """Growth of the file and its WAL together; may be negative."""


def between(before: Overview, after: Overview) -> Rates | None:
    """The rates between two overviews; None if no time has passed, or they are of different files."""
    elapsed = (after.now_ms - before.now_ms) / 1000
    if elapsed <= 0 or before.file_id != after.file_id:
        return None
    ends = {one.topic_partition: one.offsets.log_end_offset for one in before.partitions}
    added = {
        one.topic_partition: one.offsets.log_end_offset - ends.get(one.topic_partition, 0)
        for one in after.partitions
    }
    grown = after.size_bytes + after.wal_bytes - before.size_bytes - before.wal_bytes
    return Rates(
        events=(after.journal_position - before.journal_position) / elapsed,
        offsets={tp: count / elapsed for tp, count in added.items() if count > 0},
        groups={group: count / elapsed for group, count in _advances(before, after).items()},
        file_bytes=grown / elapsed,
    )


def _advances(before: Overview, after: Overview) -> dict[str, int]:
    were = {
        (group.group_id, one.topic, one.partition): one.committed_offset
        for group in before.groups
        for one in group.positions
        if one.committed_offset >= 0
    }
    return {
        group.group_id: sum(
            max(one.committed_offset - were.get(key, one.committed_offset), 0)
            for one in group.positions
            for key in [(group.group_id, one.topic, one.partition)]
        )
        for group in after.groups
    }
