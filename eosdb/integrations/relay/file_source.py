"""An eosdb file as the source of a relay."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from eosdb.database import Database
from eosdb.errors import EosdbError, UnknownTopicOrPartitionError
from eosdb.integrations.relay import planning
from eosdb.integrations.relay.failure import InterruptedRelayError, translating
from eosdb.integrations.relay.values import Bounds, Chunk, Limits, RelayRecord, SourceTopic
from eosdb.model.fetched import Block
from eosdb.model.values import OffsetAndMetadata, TopicPartition

GROUP_PREFIX: Final = "__eosdb_relay."
"""The prefix of the group whose offsets show the relay's progress in the file."""


_FEW: Final = 16
"""With fewer records than this in a chunk, its size in bytes does not matter."""


class FileSource:
    """Reads each partition up to a consistent cut, so that a transaction arrives whole if it fits into a
    chunk. Nothing is read ahead."""

    def __init__(self, db: Database) -> None:
        self._db: Final = db
        self.where: Final = db.path
        self._topics: Sequence[SourceTopic] = ()
        self._positions: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._version = -1
        self._most = 2**31
        """Twice the number of records that last fitted into the bytes of a chunk."""

    def id(self) -> str:
        return self._db.broker.cluster_id()

    def topics(self, requested: Iterable[str] | None) -> list[SourceTopic]:
        existing = {topic.name: topic for topic in self._db.broker.topic_metadata()}
        names = planning.wanted(existing, requested)
        if missing := [name for name in names if name not in existing]:
            raise UnknownTopicOrPartitionError(
                f"{self.where} has no topic {missing[0]!r}; it has {', '.join(sorted(existing)) or 'none'}"
            )
        return [
            SourceTopic(
                name,
                str(existing[name].topic_id),
                existing[name].partitions,
                self._db.admin.describe_topic(name).config,
            )
            for name in names
        ]

    def departure(self, mark: str) -> str | None:
        return self._db.admin._history_departure(mark)

    def mark(self) -> str:
        return self._db.admin._history_mark()

    def bounds(self, topics: Sequence[SourceTopic]) -> dict[TopicPartition, Bounds]:
        names = {topic.name for topic in topics}
        return {
            tp: Bounds(offsets.log_start_offset, offsets.last_stable_offset)
            for tp, offsets in self._db.admin.partition_offsets().items()
            if tp.topic in names
        }

    def begin(self, topics: Sequence[SourceTopic], starts: Mapping[TopicPartition, int]) -> None:
        self._topics = topics
        self._positions = dict(starts)

    def read(self, limits: Limits) -> Chunk:
        return translating(self.where, lambda: self._read(limits))

    def _read(self, limits: Limits) -> Chunk:
        self._version = self._db.broker._data_version()
        cut = self._db.admin.consistent_cut()
        self._ends = {tp: cut[tp][1] for tp in self._positions if tp in cut}
        if len(self._ends) < len(self._positions):
            raise InterruptedRelayError(f"{self.where}: a topic was deleted")
        most = min(limits.records, self._most)
        while True:
            ranges = planning.next_ranges(
                self._positions, self._ends, most, self._db.admin._transactions_in
            )
            chunk = self._read_ranges(ranges, limits.bytes)
            is_whole = all(chunk.positions.get(tp) == end for tp, (_, end) in ranges.items())
            if is_whole or most < _FEW:
                break
            most //= 2  # Too many bytes, so fewer records.
        self._most = min(max(most, 1) * 2, limits.records)
        self._check_topics()
        self._positions |= chunk.positions
        return chunk

    def _read_ranges(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], max_bytes: int
    ) -> Chunk:
        """Read as much of the ranges as fits into `max_bytes`, at least one record."""
        records: list[RelayRecord] = []
        positions: dict[TopicPartition, int] = {}
        for tp, (start, end) in ranges.items():
            at = start
            while at < end and (max_bytes > 0 or not records):
                block = self._db.broker.fetch_data(
                    tp,
                    at,
                    isolation_level="read_committed",
                    max_records=end - at,
                    max_bytes=max(max_bytes, 0),
                )
                taken = records_of(tp, block, end)
                max_bytes -= sum(record.size for record in taken)
                records += taken
                positions[tp] = at = min(block.stop, end)
        return Chunk(records, positions)

    def _check_topics(self) -> None:
        """Check that the topics still have their ids: the offsets of a recreated topic are new ones."""
        ids = {there.name: there for there in self._db.broker.topic_metadata()}
        for topic in self._topics:
            current = ids.get(topic.name)
            if current is None or str(current.topic_id) != topic.topic_id:
                raise InterruptedRelayError(f"{self.where}: topic {topic.name} was deleted")
            if current.partitions != topic.partitions:
                raise InterruptedRelayError(f"{self.where}: topic {topic.name} was widened")

    def ends(self) -> dict[TopicPartition, int]:
        return self._ends

    def is_caught_up(self) -> bool:
        return all(self._positions[tp] >= end for tp, end in self._ends.items())

    def wait(self, timeout_ms: int, stopped: Callable[[], bool]) -> None:
        self._db.broker._wait_for_change(self._version, timeout_ms, stopped)

    def note(self, relay: str, positions: Mapping[TopicPartition, int]) -> None:
        offsets = {tp: OffsetAndMetadata(offset) for tp, offset in positions.items()}
        ids = {topic.name: UUID(topic.topic_id) for topic in self._topics}
        with contextlib.suppress(EosdbError):
            self._db.broker.offset_commit(
                GROUP_PREFIX + relay, offsets, topic_ids={tp: ids[tp.topic] for tp in offsets}
            )

    def rest(self) -> None:
        """Does nothing: nothing is held between two reads."""

    def close(self) -> None:
        """Does nothing: the caller closes the database."""


def records_of(tp: TopicPartition, block: Block, end: int) -> list[RelayRecord]:
    rows = block.rows
    headers = rows.headers or [()] * block.size
    columns = zip(rows.offset, rows.timestamp, rows.key, rows.value, headers, strict=True)
    return [
        RelayRecord(tp.topic, tp.partition, offset, timestamp, key, value, own)
        for offset, timestamp, key, value, own in columns
        if offset < end
    ]
