"""A partition's materialized row, read through the unit's memo and written back."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from eosdb.errors import CorruptDatabaseError, UnknownTopicOrPartitionError
from eosdb.log import topics
from eosdb.model.config import BrokerConfig
from eosdb.model.damage import parsed, reads
from eosdb.model.topic_config import TopicConfig
from eosdb.model.values import PartitionOffsets, TopicPartition
from eosdb.store.schema.row_checksum import row_checksum
from eosdb.store.writing.table import TableOf
from eosdb.store.writing.unit import TRANSACTIONS, Folding, Memo, Unit

_PAGE: Final = 10_000
"""The partitions searched on one snapshot, which keeps the WAL from shrinking: a few milliseconds."""


class Partition(NamedTuple):
    """One row of `partitions` without its checksum. A named tuple: every append creates two."""

    partition_id: int
    topic_id: int
    topic: str
    partition: int
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    first_unstable_offset: int
    size_bytes: int
    max_timestamp: int
    max_timestamp_offset: int
    indexed_timestamp: int
    bytes_since_index: int
    clean_offset: int
    snapshot_offset: int
    last_aborted_offset: int
    """The last offset of the newest entry in the transaction index; -1 if there is none."""
    cleaned_sum: int
    """The sum (`log.checksum.of`) of the records from the log start to the clean offset."""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def offsets(self) -> PartitionOffsets:
        return PartitionOffsets(
            self.log_start_offset,
            self.log_end_offset,
            self.log_end_offset,
            self.last_stable_offset,
            self.first_unstable_offset,
        )

    def stability(self, first_unstable_offset: int, log_end_offset: int) -> tuple[int, int]:
        """Return the first unstable offset (-1: none), at least the log start, and the resulting last
        stable offset (Kafka: UnifiedLog.maybeIncrementFirstUnstableOffset)."""
        if first_unstable_offset < 0:
            return first_unstable_offset, log_end_offset
        first = max(first_unstable_offset, self.log_start_offset)
        return first, first


@dataclass(slots=True)
class _PartitionMemo(Memo):
    ids: dict[TopicPartition, int] = field(default_factory=dict)
    rows: dict[int, Partition] = field(default_factory=dict)
    configs: dict[int, TopicConfig] = field(default_factory=dict)
    survives = TRANSACTIONS

    def forget_partitions(self, ids: set[int]) -> None:
        for partition_id in ids & self.rows.keys():
            del self.rows[partition_id]


_CELLS: Final = (*[str if name == "topic" else int for name in Partition._fields],)
"""Types are checked besides the checksum, because a number and its text have one checksum."""


def _partition(row: tuple[Any, ...]) -> Partition:
    """Build the partition from its row. Raises CorruptDatabaseError for a wrong checksum, because every
    number in the row affects readers."""
    *columns, checksum = row
    partition = Partition(*columns)
    if row_checksum(*columns) != checksum or (*map(type, columns),) != _CELLS:
        raise CorruptDatabaseError(
            f"partitions: the row of {partition.topic_partition} does not fit its checksum; "
            "`eosdb inspect rebuild` restores it from the events, `eosdb verify` shows what else is damaged"
        )
    return partition


PARTITIONS: Final = TableOf(
    "partitions", (*Partition._fields, "checksum"), "partition_id", _partition,
    fixed="topic_id topic partition",
)  # fmt: skip
BY_NAME: Final = PARTITIONS.where("topic = ? AND partition = ?")
_ALL: Final = PARTITIONS.where("partition >= ? ORDER BY topic, partition")
_OF_TOPIC: Final = PARTITIONS.where("topic = ? AND partition >= 0 ORDER BY partition")
_WITHOUT_INDEX: Final = "SELECT 1 FROM partitions NOT INDEXED WHERE topic = ? AND partition = ?"


def unknown(tp: TopicPartition, guess: str = "") -> UnknownTopicOrPartitionError:
    return UnknownTopicOrPartitionError(
        f"{tp}: there is no such topic or partition{guess}; create it first"
    )


def load(unit: Unit, tp: TopicPartition) -> Partition:
    """Load a partition through the unit's memo. Raises UnknownTopicOrPartitionError."""
    memo = unit.memos[_PartitionMemo]
    partition_id = memo.ids.get(tp)
    if partition_id is not None:
        return memo.rows.get(partition_id) or by_id(unit, partition_id)
    partition = find(unit, tp)
    if partition is None:
        raise unknown(tp, topics.alike(unit, tp.topic))
    memo = unit.memos[_PartitionMemo]
    memo.ids[tp] = partition.partition_id
    memo.rows[partition.partition_id] = partition
    return partition


def exists(unit: Unit, tp: TopicPartition) -> bool:
    return tp in unit.memos[_PartitionMemo].ids or find(unit, tp) is not None


def by_id(unit: Folding, partition_id: int) -> Partition:
    rows = unit.memos[_PartitionMemo].rows
    partition = rows.get(partition_id)
    if partition is None:
        partition = _partition(unit.execute(PARTITIONS.at_key, (partition_id,)).fetchone())
        rows[partition_id] = partition
    return partition


def find_by_id(unit: Unit, partition_id: int) -> Partition | None:
    """The partition; None if its topic was deleted."""
    return PARTITIONS.find(unit, partition_id)


def page(
    connection: sqlite3.Connection, after: int, condition: str
) -> tuple[list[Partition], int | None]:
    """Return the partitions that meet the SQL condition in a page of those with ids above `after`, and the
    id after which the next page begins; None after the last page."""
    (last,) = connection.execute(
        "SELECT max(partition_id) FROM (SELECT partition_id FROM partitions WHERE partition_id > ? "
        "ORDER BY partition_id LIMIT ?)",
        (after, _PAGE),
    ).fetchone()
    some = PARTITIONS.where(
        f"partition_id > ? AND partition_id <= ? AND {condition} ORDER BY partition_id"
    )
    return [*PARTITIONS.read(connection, some, (after, last))], last


def of_topics(
    connection: sqlite3.Connection,
    topic_ids: Sequence[int],
    condition: str,
    parameters: Sequence[object],
) -> list[Partition]:
    """Return the partitions of these topics that meet the SQL condition."""
    found = connection.execute(
        f"SELECT {PARTITIONS.columns} FROM json_each(?) CROSS JOIN partitions "
        f"ON topic_id = json_each.value WHERE {condition}",
        (json.dumps(topic_ids), *parameters),
    )
    return [_partition(row) for row in found]


def read(connection: sqlite3.Connection, tp: TopicPartition) -> Partition:
    """Read a partition. Raises UnknownTopicOrPartitionError."""
    partition = find(connection, tp)
    if partition is None:
        raise unknown(tp, topics.alike(connection, tp.topic))
    return partition


def find(source: Unit | sqlite3.Connection, tp: TopicPartition) -> Partition | None:
    """Return the partition if it exists. Raises CorruptDatabaseError."""
    row = source.execute(BY_NAME, tp).fetchone()
    if row is None:
        # Search again without the index, because a damaged index may hide a topic.
        if source.execute(_WITHOUT_INDEX, tp).fetchone() is None:
            return None
    elif (partition := _partition(row)).topic_partition == tp:
        return partition
    raise CorruptDatabaseError(
        f"partitions: the index does not lead to the row of {tp}; `eosdb verify` shows what else is "
        "damaged, and a backup restores it"
    )


def read_all(connection: sqlite3.Connection, least: int = 0) -> list[Partition]:
    """The partitions with numbers from `least` on; those of waiting partitions are negative."""
    return [*PARTITIONS.read(connection, _ALL, (least,))]


def read_topic(connection: sqlite3.Connection, topic: str) -> list[Partition]:
    return [*PARTITIONS.read(connection, _OF_TOPIC, (topic,))]


def sound(
    connection: sqlite3.Connection, source: str, parameters: Sequence[object]
) -> Iterator[Partition]:
    """Yield the undamaged partitions of `source`, the SQL after FROM."""
    for row in connection.execute(f"SELECT {PARTITIONS.columns} FROM {source}", parameters):
        with suppress(CorruptDatabaseError):
            yield _partition(row)


def save(unit: Folding, partition: Partition) -> None:
    unit.save("partitions", partition.partition_id, PARTITIONS.update, _row, partition)
    unit.memos[_PartitionMemo].rows[partition.partition_id] = partition


def _row(partition: Partition) -> tuple[object, ...]:
    return (*partition[4:], row_checksum(*partition), partition.partition_id)


def insert(unit: Folding, partition_id: int, topic_id: int, tp: TopicPartition) -> None:
    partition = Partition(partition_id, topic_id, *tp, 0, 0, 0, -1, 0, -1, -1, -1, 0, 0, 0, -1, 0)
    unit.execute(PARTITIONS.insert, (*partition, row_checksum(*partition)))


def config(unit: Unit, topic_id: int, broker: BrokerConfig) -> TopicConfig:
    configs = unit.memos[_PartitionMemo].configs
    cached = configs.get(topic_id)
    if cached is None:
        cached = configs[topic_id] = read_config(unit, topic_id, broker)
    return cached


def save_config(unit: Folding, topic_id: int, config: dict[str, str]) -> None:
    unit.execute(topics.SAVE_CONFIG, (json.dumps(config, sort_keys=True), topic_id))
    unit.memos[_PartitionMemo].configs.pop(topic_id, None)


@reads("topics")
def read_config(
    connection: Unit | sqlite3.Connection, topic_id: int, broker: BrokerConfig
) -> TopicConfig:
    """The topic's settings, resolved with the broker's defaults."""
    (text,) = connection.execute(
        "SELECT config FROM topics WHERE topic_id = ?", (topic_id,)
    ).fetchone()
    return TopicConfig.resolve(broker, parsed(text))


@reads("topics")
def topics_by_config(
    connection: sqlite3.Connection, broker: BrokerConfig
) -> dict[TopicConfig, list[int]]:
    """The numbers of all topics by their settings, resolved with the broker's defaults."""
    found: dict[TopicConfig, list[int]] = {}
    for text, numbers in connection.execute(
        "SELECT config, json_group_array(topic_id) FROM topics GROUP BY config"
    ):
        found.setdefault(TopicConfig.resolve(broker, parsed(text)), []).extend(parsed(numbers))
    return found
