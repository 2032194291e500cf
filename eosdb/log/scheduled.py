"""Scheduled records: their rows, and the step that moves due ones into their topics.

A record that is scheduled for a partition is an ordinary record of its waiting partition, whose
number is negative and which no reader sees. It has producer sequences, transactions and markers like any
other. The table `eosdb_scheduled` has a row for each record that waits (decisions/0098).
"""

from __future__ import annotations

import sqlite3
from array import array
from collections import defaultdict
from typing import Final, NamedTuple

from eosdb.coordinator.due import Due
from eosdb.events.kinds import MarkerWritten, RecordsScheduled, ScheduledRecordsRemoved
from eosdb.log import append, checksum, partition_rows, topics
from eosdb.log.batch import PreparedBatch, headers_from_text
from eosdb.log.partition_rows import Partition
from eosdb.model.config import BrokerConfig
from eosdb.model.notices import catalog
from eosdb.model.values import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    ScheduledRecord,
    TopicPartition,
    waiting_partition,
)
from eosdb.store.writing.table import Table
from eosdb.store.writing.unit import STEPS_PER_UNIT, Folding, Unit

Source = Unit | sqlite3.Connection
BYTES_PER_UNIT: Final = 1024 * 1024
"""A unit that delivers ends after the record that reaches this size."""
_SCHEDULED: Final = Table(
    "eosdb_scheduled", "partition_id offset due producer_id", "partition_id offset"
)
_IN_TRANSACTION: Final = "partition_id = ? AND producer_id = ? AND producer_id >= 0"
_COMMIT: Final = _SCHEDULED.set("producer_id = -1", _IN_TRANSACTION)
_ABORT: Final = _SCHEDULED.deletion(_IN_TRANSACTION)
NEXT_DUE: Final = "SELECT due FROM eosdb_scheduled WHERE producer_id = -1 ORDER BY due LIMIT 1"
_WAITING: Final = f"""
    SELECT s.partition_id, p.topic, p.partition, s."offset", s.due, r.key, r.value, r.headers, r.content
    FROM eosdb_scheduled s CROSS JOIN partitions p ON p.partition_id = s.partition_id
    LEFT JOIN (SELECT *, {checksum.CONTENT} AS content FROM records) r
        ON r.partition_id = s.partition_id AND r."offset" = s."offset"
    WHERE s.producer_id = -1 AND {{}} ORDER BY s.due, s.partition_id, s."offset"
"""
_DUE: Final = f"{_WAITING.format('s.due <= ?')} LIMIT {STEPS_PER_UNIT}"
_OF_TOPIC: Final = _WAITING.format("ifnull(p.topic = ?, 1)")
_AT: Final = _WAITING.format('s.partition_id = ? AND s."offset" = ?')


class Waiting(NamedTuple):
    """A committed record that waits, as it is stored."""

    partition_id: int
    topic: str
    partition: int
    offset: int
    due: int
    key: bytes | None
    value: bytes | None
    headers: str | None
    content: int
    """The sum of key, value and headers."""

    @property
    def size(self) -> int:
        return sum(map(len, filter(None, (self.key, self.value, self.headers))))

    @property
    def is_whole(self) -> bool:
        content = ([self.key], [self.value], [self.headers], [self.content])
        return checksum.first_altered(*content) is None


# -- projections ------------------------------------------------------------------------------------


def added(unit: Folding, event: RecordsScheduled, position: int) -> None:
    for at, due in enumerate(event.due, event.base_offset):
        unit.insert(_SCHEDULED.rows, (event.partition_id, at, due, event.producer_id))
    unit.memos[Due].by(min(event.due))


def decided(unit: Folding, event: MarkerWritten) -> None:
    if event.partition < 0:
        statement = _COMMIT if event.control == "COMMIT" else _ABORT
        unit.execute(statement, (event.partition_id, event.producer_id))
        unit.memos[Due].time_ms = None


def removed(unit: Folding, event: ScheduledRecordsRemoved, position: int) -> None:
    unit.executemany(_SCHEDULED.delete, [(event.partition_id, offset) for offset in event.offsets])


# -- reading ----------------------------------------------------------------------------------------


def next_due(source: Source) -> int | None:
    """When the next committed record is due; None if none waits."""
    row = source.execute(NEXT_DUE).fetchone()
    return None if row is None else int(row[0])


def waiting(source: Source, topic: str | None) -> list[ScheduledRecord]:
    """The committed records that wait, by due time; damaged ones are left out."""
    return [
        ScheduledRecord(
            f"{it.partition_id}.{it.offset}", it.topic, it.key, it.value, it.due,
            waiting_partition(it.partition), headers_from_text(it.headers or "[]"),
        )
        for it in map(Waiting._make, source.execute(_OF_TOPIC, (topic,)))
        if it.is_whole
    ]  # fmt: skip


def find(source: Source, partition_id: int, offset: int) -> Waiting | None:
    """The record at this place, if it is committed and waits."""
    row = source.execute(_AT, (partition_id, offset)).fetchone()
    return None if row is None else Waiting(*row)


# -- steps in a unit --------------------------------------------------------------------------------


def load(unit: Unit, tp: TopicPartition, now_ms: int) -> Partition:
    """Load a partition, as `partition_rows.load`. A waiting partition is made when it is first needed."""
    if tp.partition < 0 and not partition_rows.exists(unit, tp):
        partition_rows.load(unit, TopicPartition(tp.topic, waiting_partition(tp.partition)))
        unit.record(topics.waiting(unit, tp, now_ms))
    return partition_rows.load(unit, tp)


def deliver(unit: Unit, config: BrokerConfig, now_ms: int) -> int:
    """Append the first due records to their partitions, in the order of due time, and remove them from the
    schedule. Returns how many were due; 0 when none is left."""
    whole, lost = defaultdict[int, list[Waiting]](list), defaultdict[int, list[Waiting]](list)
    size = 0
    for record in map(Waiting._make, unit.execute(_DUE, (now_ms,))):
        is_whole = record.is_whole
        (whole if is_whole else lost)[record.partition_id] += [record]
        size += record.size if is_whole else 0
        if size >= BYTES_PER_UNIT:
            break
    for records in whole.values():
        _append(unit, records, config, now_ms)
        remove(unit, records, "delivered", now_ms)
    for records in lost.values():
        remove(unit, records, "damaged", now_ms)
        offsets = [record.offset for record in records]
        _, topic, number, *_ = records[0]
        unit.untold.add(catalog.SCHEDULED_LOST, topic=topic, partition=number, offsets=offsets)
    unit.memos[Due].time_ms = None
    return sum(map(len, (*whole.values(), *lost.values())))


def _append(unit: Unit, records: list[Waiting], config: BrokerConfig, now_ms: int) -> None:
    """Append the records, of one waiting partition, to the partition for which they wait."""
    assert records[0].partition == records[-1].partition, records[0]
    tp = TopicPartition(records[0].topic, waiting_partition(records[0].partition))
    partition = partition_rows.load(unit, tp)
    headers = [record.headers for record in records]
    size = sum(record.size for record in records)
    batch = PreparedBatch(
        NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, is_transactional=False, count=len(records),
        payload=[part for record in records for part in (record.key, record.value)],
        timestamps=[now_ms], newest=0, headers=headers if any(headers) else [],
        content_sums=array("q", [record.content for record in records]),
        size=size, stored_size=size, has_null_key=False,
    )  # fmt: skip
    # The topic's settings were checked when the records were sent, and are not checked again.
    append.store(
        unit, partition, batch, partition_rows.config(unit, partition.topic_id, config), now_ms
    )


def remove(unit: Unit, records: list[Waiting], reason: str, now_ms: int) -> None:
    """Remove records of one waiting partition, which must wait, from the schedule."""
    assert records[0].partition_id == records[-1].partition_id, records[0]
    partition_id, topic, partition, *_ = records[0]
    offsets = tuple([record.offset for record in records])
    unit.record(ScheduledRecordsRemoved(now_ms, topic, partition, partition_id, offsets, reason))
