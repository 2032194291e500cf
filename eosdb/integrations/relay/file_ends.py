"""An eosdb file as the source and as the target of a relay."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final
from uuid import UUID

from eosdb.admin.tools import Tools
from eosdb.client.producer.accumulator import ProduceFuture
from eosdb.client.producer.producer import Producer
from eosdb.database import Database
from eosdb.errors import EosdbError, MessageTooLargeError
from eosdb.integrations.relay import planning, values
from eosdb.integrations.relay.status import POSITIONS_CONFIG
from eosdb.model import requests
from eosdb.model.config import INT32_MAX
from eosdb.model.fetched import Block
from eosdb.model.topic_config import TOPIC_SETTINGS
from eosdb.model.values import RELAY_GROUPS, OffsetAndMetadata, TimestampType, TopicPartition

_FEW: Final = 16
"""With fewer records than this in a chunk, its size in bytes does not matter."""


class FileSource:
    """Reads each partition up to a consistent cut, so that a transaction arrives whole if it fits into a
    chunk. Reads nothing ahead."""

    def __init__(self, db: Database) -> None:
        self._db: Final = db
        self.where: Final = db.path
        self._topics: Sequence[values.SourceTopic] = ()
        self._positions: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._version = -1
        self._most = 2**31
        """Twice the number of records that last fitted into the bytes of a chunk."""

    def id(self) -> str:
        """The id under which positions are stored: constant as long as offsets keep their meaning."""
        return self._db.broker.cluster_id()

    def topics(self, requested: Iterable[str] | None) -> list[values.SourceTopic]:
        """The topics to relay. Raises UnknownTopicOrPartitionError for a topic that does not exist."""
        existing = {topic.name: topic for topic in self._db.broker.topic_metadata()}
        names = planning.wanted(existing, requested, self.where)
        return [
            values.SourceTopic(
                name,
                str(existing[name].topic_id),
                existing[name].partitions,
                self._db.admin.describe_topic(name).config,
            )
            for name in names
        ]

    def departure(self, mark: str) -> str | None:
        """Why the mark is not of the source's history; None if it is, or if that is unknown."""
        return Tools(self._db.admin).history_departure(mark)

    def mark(self) -> str:
        """A mark of the source's current history; empty if the source has none."""
        return Tools(self._db.admin).history_mark()

    def bounds(self, topics: Sequence[values.SourceTopic]) -> dict[TopicPartition, values.Bounds]:
        """The current start and end of each partition."""
        names = {topic.name for topic in topics}
        return {
            tp: values.Bounds(offsets.log_start_offset, offsets.last_stable_offset)
            for tp, offsets in self._db.admin.partition_offsets().items()
            if tp.topic in names
        }

    def begin(
        self, topics: Sequence[values.SourceTopic], starts: Mapping[TopicPartition, int]
    ) -> None:
        """Start reading from these offsets."""
        self._topics = topics
        self._positions = dict(starts)

    def read(self, limits: values.RelayLimits) -> values.Chunk:
        """Read the next chunk, and advance; empty if there is nothing to read."""
        return values.translating(self.where, lambda: self._read(limits))

    def _read(self, limits: values.RelayLimits) -> values.Chunk:
        self._version = self._db.broker.ask(requests.DataVersion())
        cut = self._db.admin.consistent_cut()
        self._ends = {tp: cut[tp][1] for tp in self._positions if tp in cut}
        if len(self._ends) < len(self._positions):
            raise values.InterruptedRelayError(f"{self.where}: a topic was deleted")
        most = min(limits.records, self._most)
        while True:
            ranges = planning.next_ranges(
                self._positions, self._ends, most, Tools(self._db.admin).transactions_in
            )
            chunk = self._read_ranges(ranges, limits.bytes)
            is_whole = all(chunk.positions.get(tp) == end for tp, (_, end) in ranges.items())
            if is_whole or most < _FEW:
                break
            most //= 2  # The chunk is too large: read fewer records.
        self._most = min(max(most, 1) * 2, limits.records)
        self._check_topics()
        self._positions |= chunk.positions
        return chunk

    def _read_ranges(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], max_bytes: int
    ) -> values.Chunk:
        """Read as much of the ranges as fits into `max_bytes`, at least one record."""
        records: list[values.RelayRecord] = []
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
        return values.Chunk(records, positions)

    def _check_topics(self) -> None:
        """Check that the topics still have their ids: the offsets of a recreated topic are new ones."""
        ids = {there.name: there for there in self._db.broker.topic_metadata()}
        for topic in self._topics:
            current = ids.get(topic.name)
            if current is None or str(current.topic_id) != topic.topic_id:
                raise values.InterruptedRelayError(f"{self.where}: topic {topic.name} was deleted")
            if current.partitions != topic.partitions:
                raise values.InterruptedRelayError(
                    f"{self.where}: topic {topic.name} got more partitions"
                )

    def ends(self) -> dict[TopicPartition, int]:
        """The ends of the partitions when they were last looked up."""
        return self._ends

    def is_caught_up(self) -> bool:
        """Whether the last `read` reached the end of every partition."""
        return all(self._positions[tp] >= end for tp, end in self._ends.items())

    def wait(self, timeout_ms: int, stopped: Callable[[], bool]) -> None:
        """Wait until there may be more records, `timeout_ms` have passed, or `stopped` is true."""
        self._db.broker.ask(requests.WaitForChange(self._version, timeout_ms, stopped))

    def note(self, relay: str, positions: Mapping[TopicPartition, int]) -> None:
        """Show at the source how far it was relayed. Only the positions at the target count."""
        offsets = {tp: OffsetAndMetadata(offset) for tp, offset in positions.items()}
        ids = {topic.name: UUID(topic.topic_id) for topic in self._topics}
        with contextlib.suppress(EosdbError):
            self._db.broker.offset_commit(
                RELAY_GROUPS + relay, offsets, topic_ids={tp: ids[tp.topic] for tp in offsets}
            )

    def rest(self) -> None:
        """Does nothing: no connection stays open between two reads, and the caller closes the database."""


def records_of(tp: TopicPartition, block: Block, end: int) -> list[values.RelayRecord]:
    rows = block.rows
    headers = rows.headers or [()] * block.size
    columns = zip(rows.offset, rows.timestamp, rows.key, rows.value, headers, strict=True)
    return [
        values.RelayRecord(tp.topic, tp.partition, offset, timestamp, key, value, own)
        for offset, timestamp, key, value, own in columns
        if offset < end
    ]


class FileTarget:
    """Writes with a transactional producer of the file."""

    def __init__(self, db: Database, positions_topic: str) -> None:
        self._db: Final = db
        self._positions: Final = TopicPartition(positions_topic, 0)
        self.where: Final = db.path
        self._producer: Producer | None = None

    def id(self) -> str:
        """The id of the target; must differ from the source's."""
        return self._db.broker.cluster_id()

    def ready(self) -> None:
        """Create the position topic if it does not exist."""
        self._db.admin.create_topic(self._positions.topic, 1, POSITIONS_CONFIG, exist_ok=True)

    def take_over(self, transactional_id: str, stopped: Callable[[], bool]) -> None:
        """Initialise the transactional id: end its previous holder's transaction and fence the holder.
        `stopped` is polled to interrupt waits, in this call and in later ones."""
        self._producer = self._db.producer(
            transactional_id=transactional_id, max_request_size=INT32_MAX
        )
        values.translating(self.where, self._producer.init_transactions)

    def position_records(self) -> Iterator[tuple[bytes | None, bytes | None]]:
        """Key and value of each committed record of the position topic, up to its current end."""
        with self._db.consumer() as consumer:
            consumer.assign([self._positions])
            consumer.seek_to_beginning()
            end = self._db.broker.offsets(self._positions).high_watermark
            while consumer.position(self._positions) < end:
                for record in values.translating(self.where, lambda: consumer.poll(1_000)):
                    yield record.key, record.value

    def facts(self, topics: Iterable[str]) -> dict[str, values.TopicFacts]:
        """Facts about the topics of this list that exist."""
        existing = {result.name: result for result in self._db.broker.topic_metadata()}
        result = {}
        for name in topics:
            if name in existing:
                config = Tools(self._db.admin).topic_config(name)
                append_time = config.timestamp_type is TimestampType.LOG_APPEND_TIME
                result[name] = values.TopicFacts(
                    existing[name].partitions,
                    append_time,
                    config.max_message_bytes,
                    str(existing[name].topic_id),
                )
        return result

    def create(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        """Create a topic with those settings that the target knows."""
        settings = planning.config_to_copy(config, TOPIC_SETTINGS)
        self._db.admin.create_topic(name, partitions, settings, exist_ok=True)

    def write(self, records: Sequence[values.RelayRecords]) -> None:
        """Write the records in one transaction, and commit it."""
        values.translating(self.where, lambda: self._write(records))

    def _write(self, records: Sequence[values.RelayRecords]) -> None:
        producer = self._producer
        assert producer is not None, "no transactional id has been taken"
        producer.begin_transaction()
        sent: list[tuple[values.RelayRecords, ProduceFuture]] = []
        try:
            for record in records:
                future = producer.send(
                    record.topic,
                    record.value,
                    key=record.key,
                    partition=record.partition,
                    headers=record.headers,
                    timestamp=record.timestamp,
                )
                sent.append((record, future))
            producer.commit_transaction()
        except MessageTooLargeError as error:
            producer.abort_transaction()
            raise values.TooLargeError(f"{self.where}: {error}", _refused(sent)) from error

    def release(self) -> None:
        """Abort an open transaction, if that is possible soon, and close the producer and connections."""
        if self._producer is not None:
            with contextlib.suppress(EosdbError):
                self._producer.abort_transaction()
            with contextlib.suppress(EosdbError):
                self._producer.close()
            self._producer = None


def _refused(sent: Iterable[tuple[values.RelayRecords, ProduceFuture]]) -> list[values.RelayRecord]:
    """The records that were too large. Only single records can be: a batch of several is never larger than
    a topic allows by default."""
    return [
        record.origin
        for record, future in sent
        if record.origin is not None
        and future.done()
        and isinstance(error := future.exception(), MessageTooLargeError)
        and error.__cause__ is None  # Otherwise it was never sent, behind one that was.
    ]
