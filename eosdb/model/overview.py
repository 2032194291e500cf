"""What a file looks like at one instant, in figures: what `eosdb top`, the page of `eosdb ui` and the
Prometheus text show. And what happened between two such instants, as rates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from eosdb.model.reports import OpenTransaction
from eosdb.model.values import PartitionOffsets, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFigures:
    """One partition. `max_timestamp` is the highest of its records in epoch ms, -1 if there is none."""

    topic: str
    partition: int
    offsets: PartitionOffsets
    size_bytes: int
    """Of all records that it has, uncompressed: keys, values and headers."""
    max_timestamp: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class GroupPosition(NamedTuple):
    """Where a group stands in one partition. A named tuple, because a file may have thousands."""

    topic: str
    partition: int
    committed_offset: int
    behind: int
    """Offsets from there to the log end: at least the records that are still to be read, since markers
    and aborted records take offsets, too. `Admin.describe_group_offsets` counts the records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFigures:
    """One consumer group: its state as Kafka names it, how many members it has, where it stands."""

    group_id: str
    state: str
    members: int
    positions: tuple[GroupPosition, ...]

    @property
    def behind(self) -> int:
        return sum(position.behind for position in self.positions)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFigures:
    """A topic that holds dead letters."""

    topic: str
    waiting: int
    """Dead letters that have not been replayed; an estimate when they are many (a thousand offsets or more
    in one partition)."""
    newest_timestamp: int
    """In epoch ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """A file at one instant. What the principal may not describe is left out."""

    path: str
    file_id: str
    now_ms: int
    size_bytes: int
    wal_bytes: int
    free_bytes: int
    """Pages in the file that hold nothing."""
    journal_position: int
    """Of the newest event."""
    partitions: tuple[PartitionFigures, ...]
    groups: tuple[GroupFigures, ...]
    transactions: tuple[OpenTransaction, ...]
    """One for each partition that a transaction is open in, in order of topic, partition and offset."""
    dead_letters: tuple[DeadLetterFigures, ...]

    def holders(self) -> Iterator[OpenTransaction]:
        """The open transactions that hold the last stable offset of a partition."""
        held = {one.topic_partition: one.offsets.last_stable_offset for one in self.partitions}
        return (
            one for one in self.transactions if held.get(one.topic_partition) == one.start_offset
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What was added per second between two overviews."""

    events: float
    offsets: dict[TopicPartition, float]
    """Of partitions in which something was added: records and markers."""
    groups: dict[str, float]
    """Offsets by which each group's positions have moved on; new positions count nothing."""
    file_bytes: float
    """Growth of the file and its WAL together; negative when they shrank."""


def between(before: Overview, after: Overview) -> Rates | None:
    """None if no time has passed, or the two are not of one file."""
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
    }
    return {
        group.group_id: sum(
            max(one.committed_offset - were.get(key, one.committed_offset), 0)
            for one in group.positions
            for key in [(group.group_id, one.topic, one.partition)]
        )
        for group in after.groups
    }
