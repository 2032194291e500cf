"""Scheduled records: their rows, and the step that moves due ones into their topics.

A scheduled record is an ordinary record of its topic's partition -1, which no reader sees. The partition
has producer sequences, transactions and markers like any other. The table `eosdb_scheduled` has a row for
each record that waits (decisions/0088).
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from dataclasses import replace
from typing import Any, Final

from eosdb.coordinator.due import Due
from eosdb.errors import InvalidRecordError, InvalidTimestampError, MessageTooLargeError
from eosdb.events.kinds import MarkerWritten, RecordsScheduled, ScheduledRecordsRemoved
from eosdb.log import append, checksum, partition_rows, topics
from eosdb.log.batch import headers_from_text, prepare
from eosdb.model.config import INT64_MAX, BrokerConfig
from eosdb.model.notices import catalog
from eosdb.model.records.scheduling import delivered
from eosdb.model.values import SCHEDULED, Record, RecordBatch, ScheduledRecord, TopicPartition
from eosdb.store.schema.newest import Statement
from eosdb.store.writing.insertion import FoldedInsertion
from eosdb.store.writing.unit import STEPS_PER_UNIT, Folding, Unit

Source = Unit | sqlite3.Connection
BYTES_PER_UNIT: Final = 1024 * 1024
"""A unit that delivers ends after the record that reaches this size."""
_ADD: Final = FoldedInsertion("eosdb_scheduled", ("partition_id", '"offset"', "due", "producer_id"))
_COMMIT: Final = Statement(
    "UPDATE {eosdb_scheduled} SET producer_id = -1 "
    "WHERE partition_id = ? AND producer_id = ? AND producer_id >= 0"
)
_ABORT: Final = Statement(
    "DELETE FROM {eosdb_scheduled} WHERE partition_id = ? AND producer_id = ? AND producer_id >= 0"
)
_REMOVE: Final = Statement('DELETE FROM {eosdb_scheduled} WHERE partition_id = ? AND "offset" = ?')
NEXT_DUE: Final = "SELECT due FROM eosdb_scheduled WHERE producer_id = -1 ORDER BY due LIMIT 1"
_DUE: Final = (
    'SELECT partition_id, "offset" FROM eosdb_scheduled WHERE producer_id = -1 AND due <= ? '
    f'ORDER BY due, partition_id, "offset" LIMIT {STEPS_PER_UNIT}'
)
_BODY: Final = (
    f"SELECT key, value, headers, {checksum.CONTENT} FROM records "
    'WHERE partition_id = ? AND "offset" = ?'
)
_WAITS: Final = (
    'SELECT 1 FROM eosdb_scheduled WHERE producer_id = -1 AND partition_id = ? AND "offset" = ?'
)
_WAITING: Final = """
    SELECT s.partition_id, s."offset", p.topic, s.due
    FROM eosdb_scheduled s JOIN partitions p ON p.partition_id = s.partition_id
    WHERE s.producer_id = -1 AND ifnull(p.topic = ?, 1) ORDER BY s.due, s.partition_id, s."offset"
"""


_ACCEPTED: Final[dict[str, Any]] = {
    "max_message_bytes": INT64_MAX, "compact": False, "moved_to": "", "moving_to": "",
}  # fmt: skip
"""Settings that are checked when a record is scheduled, and not again when it is due."""


# -- projections ------------------------------------------------------------------------------------


def added(unit: Folding, event: RecordsScheduled, position: int) -> None:
    for at, due in enumerate(event.due, event.base_offset):
        unit.insert(_ADD, (event.partition_id, at, due, event.producer_id))
    unit.memos[Due].by(min(event.due))


def decided(unit: Folding, event: MarkerWritten) -> None:
    if event.partition == SCHEDULED:
        statement = _COMMIT if event.control == "COMMIT" else _ABORT
        unit.execute(statement, (event.partition_id, event.producer_id))
        unit.memos[Due].time_ms = None


def removed(unit: Folding, event: ScheduledRecordsRemoved, position: int) -> None:
    unit.executemany(_REMOVE, [(event.partition_id, offset) for offset in event.offsets])


# -- reading ----------------------------------------------------------------------------------------


def next_due(source: Source) -> int | None:
    """When the next committed record is due; None if none waits."""
    row = source.execute(NEXT_DUE).fetchone()
    return None if row is None else int(row[0])


def waits(unit: Unit, partition_id: int, offset: int) -> bool:
    """Whether the record is committed and waits."""
    return unit.execute(_WAITS, (partition_id, offset)).fetchone() is not None


def waiting(source: Source, topic: str | None) -> list[ScheduledRecord]:
    """The committed records that wait, by due time; damaged ones are left out."""
    found = []
    for partition_id, offset, name, due in source.execute(_WAITING, (topic,)).fetchall():
        if (body := _body(source, partition_id, offset)) is not None:
            partition, (key, value, headers, timestamp) = body
            of_record = (name, key, value, due, partition, tuple(headers), timestamp)
            found.append(ScheduledRecord(f"{partition_id}.{offset}", *of_record))
    return found


def _body(source: Source, partition_id: int, offset: int) -> tuple[int, Record] | None:
    """The partition to which a waiting record will go, and the record; None if it is damaged."""
    row: tuple[Any, ...] | None = source.execute(_BODY, (partition_id, offset)).fetchone()
    key, value, headers, content = row or (None, None, None, -1)
    if checksum.first_altered([key], [value], [headers], [content]) is not None:
        return None
    return delivered(key, value, () if headers is None else headers_from_text(headers))


# -- steps in a unit --------------------------------------------------------------------------------


def ensure_partition(unit: Unit, topic: str, now_ms: int) -> None:
    """Give the topic its partition -1 unless it has one. Raises UnknownTopicOrPartitionError."""
    if not partition_rows.exists(unit, TopicPartition(topic, SCHEDULED)):
        unit.record(topics.scheduling(unit, topic, now_ms))


def deliver(unit: Unit, config: BrokerConfig, now_ms: int) -> int:
    """Append the first due records to their topics, in the order of due time, and remove them from the
    schedule. Returns how many were due; 0 when none is left."""
    due: defaultdict[TopicPartition, list[tuple[int, int, Record]]] = defaultdict(list)
    done: defaultdict[int, list[int]] = defaultdict(list)
    lost: defaultdict[int, list[int]] = defaultdict(list)
    size = 0
    for partition_id, offset in unit.execute(_DUE, (now_ms,)).fetchall():
        if (body := _body(unit, partition_id, offset)) is None:
            lost[partition_id].append(offset)
            continue
        number, record = body
        topic = partition_rows.by_id(unit, partition_id).topic
        last = (topics.partition_count(unit, topic) or 1) - 1
        due[TopicPartition(topic, min(number, last))].append((partition_id, offset, record))
        size += sum(map(len, filter(None, record[:2])))
        if size >= BYTES_PER_UNIT:
            break
    for tp, several in due.items():
        are_in = _append(unit, tp, [record for *_, record in several], config, now_ms)
        for partition_id, offset, record in several:
            # A record that cannot be appended is left out alone: none may stop the writers.
            is_in = are_in or _append(unit, tp, [record], config, now_ms)
            (done if is_in else lost)[partition_id].append(offset)
    remove(unit, done, "delivered", now_ms)
    remove(unit, lost, "damaged", now_ms)
    unit.memos[Due].time_ms = None
    return sum(map(len, (*done.values(), *lost.values())))


def _append(
    unit: Unit, tp: TopicPartition, records: list[Record], config: BrokerConfig, now_ms: int
) -> bool:
    """Append the records to their partition. Returns False, with nothing appended, if one is refused."""
    partition = partition_rows.load(unit, tp)
    of_topic = replace(partition_rows.config(unit, partition.topic_id, config), **_ACCEPTED)
    try:
        batch = prepare(RecordBatch(records), now_ms)
        append.append(unit, partition, batch, of_topic, now_ms)
    except (InvalidRecordError, InvalidTimestampError, MessageTooLargeError):
        return False
    return True


def remove(unit: Unit, offsets_by_id: dict[int, list[int]], reason: str, now_ms: int) -> None:
    """Remove records, which must wait, from the schedule."""
    for partition_id, offsets in offsets_by_id.items():
        where = (*partition_rows.by_id(unit, partition_id).topic_partition, partition_id)
        unit.record(ScheduledRecordsRemoved(now_ms, *where, tuple(offsets), reason))
        if reason == "damaged":
            unit.untold.add(catalog.SCHEDULED_LOST, topic=where[0], offsets=offsets)
