"""Appends to a partition, inside a write unit: decide, record the event, write the record rows.

The rules are in `producer_state`; `projection` folds the resulting state from the event alone.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from eosdb import errors
from eosdb.events.kinds import BatchAppended, MarkerWritten, RecordsScheduled
from eosdb.log import checksum, lives, partition_rows, producer_rows
from eosdb.log.batch import PreparedBatch
from eosdb.log.partition_rows import Partition
from eosdb.log.producer_state import (
    RETAINED_BATCHES,
    SEQUENCE_COUNT,
    Accept,
    Duplicate,
    LookBehind,
    ProducerStateEntry,
    StoredRange,
    check_marker,
    is_ahead,
    judge,
    judge_by_rows,
    round_of,
    sequence_of,
    used_before,
)
from eosdb.log.record_rows import RECORD, insert_records
from eosdb.model.failpoints import Failpoint, reach
from eosdb.model.notices import catalog
from eosdb.model.topic_config import TopicConfig
from eosdb.model.values import (
    CLASSIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    ProduceResult,
    ProducerIdAndEpoch,
    TimestampType,
)
from eosdb.store.schema.event_names import member
from eosdb.store.writing.unit import Unit

_DAY_MS: Final = 86_400_000
_FUTURE_MS: Final = 3_600_000
"""Kafka's message.timestamp.after.max.ms, by default."""


def append(
    unit: Unit,
    partition: Partition,
    batch: PreparedBatch,
    config: TopicConfig,
    now_ms: int,
    *,
    transactional_id: str | None = None,
    begins: bool = False,
) -> ProduceResult:
    """Append the batch, unless it is a duplicate. A batch that `begins` is the first of a version 2
    transaction in this partition.
    Raises MessageTooLargeError, InvalidRecordError, PolicyViolationError (the topic has moved away) and
    the errors of `judge` and `judge_by_rows`."""
    _check_fits(partition, batch, config)
    verdict: Accept | Duplicate = Accept(NO_SEQUENCE)
    if batch.producer_id >= 0:
        verdict = _decide(unit, partition.partition_id, batch, begins=begins)
    if isinstance(verdict, Duplicate):
        return _answer_repeat(unit, partition, batch, verdict)
    if config.closed:
        raise errors.PolicyViolationError(f"{partition.topic_partition}: {config.closed}")
    return store(
        unit, partition, batch, config, now_ms,
        base_serial=verdict.base_serial, transactional_id=transactional_id,
    )  # fmt: skip


def store(
    unit: Unit,
    partition: Partition,
    batch: PreparedBatch,
    config: TopicConfig,
    now_ms: int,
    *,
    base_serial: int = NO_SEQUENCE,
    transactional_id: str | None = None,
) -> ProduceResult:
    """Record and insert a batch that is accepted. Raises OutOfOrderSequenceNumberError if only some of its
    sequences are stored."""
    assert (base_serial >= 0) == (batch.producer_id >= 0), base_serial
    assert len(batch.payload) == 2 * batch.count > 0, batch.count
    assert len(batch.content_sums) == batch.count, batch.count
    assert len(batch.headers) in (0, batch.count), batch.count
    assert len(batch.timestamps) in (1, batch.count), batch.count
    assert 0 <= batch.newest < len(batch.timestamps), batch.newest
    assert batch.stored_size >= 0, batch.stored_size
    is_scheduled = partition.partition < 0  # Its timestamps are due times.
    is_log_append_time = not is_scheduled and config.timestamp_type is TimestampType.LOG_APPEND_TIME
    log_append_time = now_ms if is_log_append_time else NO_TIMESTAMP
    times, newest_at = ([now_ms], 0) if is_log_append_time else (batch.timestamps, batch.newest)
    newest = times[newest_at]
    is_old = 0 <= config.retention_ms < now_ms - newest
    if (is_old or newest - now_ms > _FUTURE_MS) and not is_scheduled:
        _warn_of_retention(unit, partition, config, newest, now_ms)
    base_offset = partition.log_end_offset
    # `tuple.__new__` takes half as long as the class, and this runs for every batch.
    event = tuple.__new__(BatchAppended, (
        now_ms, partition.topic, partition.partition, transactional_id, partition.partition_id,
        base_offset, batch.count, batch.producer_id, batch.producer_epoch, base_serial,
        batch.is_transactional, newest, base_offset + newest_at, batch.stored_size,
        checksum.crc(batch.content_sums),
    ))  # fmt: skip
    position = unit.record(event)
    grown = partition_rows.by_id(unit, partition.partition_id)
    assert grown.log_end_offset == base_offset + batch.count, grown
    assert partition.last_stable_offset <= grown.last_stable_offset, grown
    reach(Failpoint.APPEND_RECORDED)
    try:
        insert_records(unit, event, position, batch, times, int(is_log_append_time))
    except sqlite3.IntegrityError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_CONSTRAINT_UNIQUE or event.base_sequence < 0:
            raise
        raise errors.OutOfOrderSequenceNumberError(
            f"producer {batch.producer_id}: some of the {batch.count} sequences from "
            f"{batch.base_sequence} on are stored already; expected new ones or an exact repeat"
        ) from error
    if is_scheduled:
        unit.record(_schedule(event, times))
    unit.written_bytes += batch.stored_size + 60 * batch.count
    reach(Failpoint.APPEND_UNCOMMITTED)
    return ProduceResult(
        event.base_offset, event.last_offset, log_append_time, partition.log_start_offset
    )


_ABORTED: Final = (
    "SELECT 1 FROM transaction_index WHERE partition_id = ? AND producer_id = ? AND first_offset <= ? "
    "AND last_offset > ?"
)
_STORED_ROWS: Final = (
    'SELECT "offset" - ?, timestamp_type, timestamp, key, value, headers FROM records '
    'WHERE partition_id = ? AND "offset" BETWEEN ? AND ? ORDER BY "offset"'
)
_CRC: Final = f"""
SELECT {member(BatchAppended, "crc")} FROM eosdb_journal
WHERE position > (SELECT max(position) FROM eosdb_journal) - 10000 AND kind = 'BatchAppended'
    AND {member(BatchAppended, "partition_id")} = ?
    AND {member(BatchAppended, "base_offset")} = ?
"""
"""SQL: the checksum of a batch whose records are removed, if its event is among the newest."""


# decisions/0095: Kafka compares sequences only, and loses what a client sends under a used one.
def _repeated(
    unit: Unit, partition_id: int, batch: PreparedBatch, stored: Duplicate, *, timed: bool = False
) -> int | None:
    """Return the stored append time (-1: none) if the batch has the stored keys, values and headers; else
    None. A client's repeat may have new timestamps; `timed` compares them, too."""
    if stored.last_offset - stored.base_offset + 1 != batch.count:
        return None
    headers = batch.headers or [None] * batch.count
    given = [*zip(batch.payload[::2], batch.payload[1::2], headers, strict=True)]
    base, last = stored.base_offset, stored.last_offset
    rows = unit.execute(_STORED_ROWS, (base, partition_id, base, last)).fetchall()
    for at, is_append_time, timestamp, *content in rows:
        is_late = is_append_time or timestamp == batch.timestamps[at % len(batch.timestamps)]
        if given[at] != (*content,) or (timed and not is_late):
            return None
    if len(rows) < batch.count:
        crc = unit.execute(_CRC, (partition_id, base)).fetchone()
        if crc is not None and crc[0] != checksum.crc(batch.content_sums):
            return None
    return rows[0][2] if rows and rows[0][1] else NO_TIMESTAMP


def _answer_repeat(
    unit: Unit, partition: Partition, batch: PreparedBatch, stored: Duplicate
) -> ProduceResult:
    """Return the stored result. Raises OutOfOrderSequenceNumberError for another or aborted batch."""
    partition_id, offset = partition.partition_id, stored.base_offset
    append_time = _repeated(unit, partition_id, batch, stored)
    if append_time is None or _is_aborted(unit, partition_id, batch.producer_id, offset):
        raise errors.OutOfOrderSequenceNumberError(
            f"producer {batch.producer_id}: the {batch.count} sequences from {batch.base_sequence} on are "
            f"stored at offset {offset} with other records, or aborted; expected new sequences or an exact "
            "repeat"
        )
    return ProduceResult(
        offset, stored.last_offset, append_time, partition.log_start_offset, duplicate=True
    )


def _is_aborted(unit: Unit, partition_id: int, producer_id: int, offset: int) -> bool:
    found = unit.execute(_ABORTED, (partition_id, producer_id, offset, offset)).fetchone()
    return found is not None


def _schedule(event: BatchAppended, timestamps: list[int]) -> RecordsScheduled:
    due = (*timestamps,) * (event.count // len(timestamps))
    assert len(due) == event.count, due
    assert event.partition < 0, event.partition
    producer_id = event.producer_id if event.is_transactional else NO_PRODUCER_ID
    return RecordsScheduled(
        event.timestamp, event.topic, event.partition, event.partition_id, event.base_offset,
        producer_id, due,
    )  # fmt: skip


def _check_fits(partition: Partition, batch: PreparedBatch, config: TopicConfig) -> None:
    """Check the batch against the topic's settings. Raises MessageTooLargeError and InvalidRecordError."""
    if batch.size > config.max_message_bytes:
        raise errors.MessageTooLargeError(
            f"{partition.topic_partition}: the batch has {batch.size} bytes, max.message.bytes is "
            f"{config.max_message_bytes}; send fewer or smaller records"
        )
    if config.compact and batch.has_null_key:
        keyless = errors.InvalidRecordError(
            f"{partition.topic_partition}: the topic is compacted, every record needs a key"
        )
        keyless.records = [at for at, key in enumerate(batch.payload[::2]) if key is None]
        raise keyless


def _warn_of_retention(
    unit: Unit, partition: Partition, config: TopicConfig, newest: int, now_ms: int
) -> None:
    """Log a warning, once per topic, if a batch is older than the topic's retention, or of the future."""
    is_old = newest <= now_ms
    if (is_old and not config.delete) or partition.topic_id in unit.said:
        return
    unit.said.add(partition.topic_id)
    if not is_old:
        days = (newest - now_ms) / _DAY_MS
        unit.untold.add(catalog.FUTURE_RECORDS, topic=partition.topic, days=days)
        return
    unit.untold.add(
        catalog.OLD_RECORDS,
        topic=partition.topic,
        retention_ms=config.retention_ms,
        age_days=(now_ms - newest) / _DAY_MS,
        retention_days=config.retention_ms / _DAY_MS,
    )


def append_marker(
    unit: Unit,
    partition: Partition,
    producer: ProducerIdAndEpoch,
    coordinator_epoch: int,
    *,
    committed: bool,
    transactional_id: str | None,
    now_ms: int,
    transaction_version: int = CLASSIC,
) -> None:
    """Write the control record that ends the producer's transaction in this partition. Raises
    InvalidProducerEpochError and TransactionCoordinatorFencedError (see `check_marker`)."""
    producer_id, producer_epoch = producer
    assert producer_id >= 0, producer
    assert coordinator_epoch >= -1, coordinator_epoch
    entry = producer_rows.load(unit, partition.partition_id, producer_id)
    check_marker(entry, producer_epoch, coordinator_epoch, transaction_version)
    control = "COMMIT" if committed else "ABORT"
    offset = partition.log_end_offset
    event = tuple.__new__(MarkerWritten, (
        now_ms, partition.topic, partition.partition, transactional_id, partition.partition_id, offset,
        producer_id, producer_epoch, coordinator_epoch, control,
    ))  # fmt: skip
    position = unit.record(event)
    grown = partition_rows.by_id(unit, partition.partition_id)
    assert grown.log_end_offset == offset + 1, grown
    unit.insert(RECORD, (
        partition.partition_id, offset, now_ms, 0, producer_id, 1, producer_epoch, NO_SEQUENCE, 0, position,
        control, None, None, None, checksum.MARKER,
    ))  # fmt: skip
    reach(Failpoint.MARKER_WRITTEN)


def has_open_transaction(
    unit: Unit, partition_id: int, producer_id: int, producer_epoch: int
) -> bool:
    """Whether the producer has a transaction of this epoch open in the partition."""
    entry = producer_rows.load(unit, partition_id, producer_id)
    return (
        entry is not None
        and entry.current_txn_first_offset >= 0
        and entry.producer_epoch == producer_epoch
    )


def check_begins_at_zero(unit: Unit, partition_id: int, batch: PreparedBatch) -> None:
    """Check that a version 2 transaction begins with sequence 0 (KAFKA-18202). Each transaction has its own
    epoch and counts from 0, so a first batch with another sequence has overtaken its predecessor. Raises
    OutOfOrderSequenceNumberError."""
    if batch.base_sequence and producer_rows.load(unit, partition_id, batch.producer_id) is None:
        raise errors.OutOfOrderSequenceNumberError(
            f"producer {batch.producer_id}, epoch {batch.producer_epoch}: got sequence "
            f"{batch.base_sequence}, expected 0, the first of the transaction in this partition"
        )


def _decide(
    unit: Unit, partition_id: int, batch: PreparedBatch, *, begins: bool
) -> Accept | Duplicate:
    entry = producer_rows.load(unit, partition_id, batch.producer_id)
    newest = NO_SEQUENCE
    if not (begins and batch.base_sequence == 0) and (
        entry is None
        or entry.producer_epoch != batch.producer_epoch
        or len(entry.batches) < RETAINED_BATCHES
    ):
        newest = _newest_stored_serial(unit, partition_id, batch.producer_id, batch.producer_epoch)
    used, next_serial = used_before(entry, batch)
    if (
        used is not None
        and _is_aborted(unit, partition_id, batch.producer_id, used.base_offset)
        and _repeated(unit, partition_id, batch, used, timed=True) is None
    ):
        return Accept(next_serial)
    try:
        return _judged(unit, partition_id, entry, batch, newest)
    except errors.OutOfOrderSequenceNumberError:
        # decisions/0094: after a restore, a producer may be ahead of the state that the file has.
        if entry is None or not is_ahead(entry, batch):
            raise
        if entry.last_offset >= lives.began_at(unit, partition_id, batch.producer_id):
            raise
        newest = _newest_stored_serial(unit, partition_id, batch.producer_id, batch.producer_epoch)
        return _judged(unit, partition_id, None, batch, newest)


def _judged(
    unit: Unit,
    partition_id: int,
    entry: ProducerStateEntry | None,
    batch: PreparedBatch,
    newest: int,
) -> Accept | Duplicate:
    verdict = judge(entry, batch, newest)
    if isinstance(verdict, LookBehind):
        stored = _stored_range(unit, partition_id, batch, verdict.base_serial)
        verdict = judge_by_rows(batch.producer_id, batch, verdict, stored)
    return verdict


def _newest_stored_serial(
    unit: Unit, partition_id: int, producer_id: int, producer_epoch: int
) -> int:
    row = unit.select(
        RECORD,
        "SELECT sequence_round, sequence FROM records WHERE partition_id = ? AND producer_id = ? "
        "AND producer_epoch = ? AND sequence >= 0 ORDER BY sequence_round DESC, sequence DESC LIMIT 1",
        (partition_id, producer_id, producer_epoch),
        lambda waiting: waiting[0] == partition_id,
    ).fetchone()
    if row is None:
        return NO_SEQUENCE
    sequence_round, sequence = row
    return int(sequence_round * SEQUENCE_COUNT + sequence)


def _stored_range(
    unit: Unit, partition_id: int, batch: PreparedBatch, base_serial: int
) -> StoredRange:
    """Return the stored batch that begins at the serial, and whether any of its serials is stored."""
    if base_serial < 0:
        return StoredRange()
    last_serial = base_serial + batch.count - 1
    row = unit.execute(
        'SELECT "offset", position, sequence_round, sequence FROM records WHERE partition_id = ? '
        "AND producer_id = ? AND producer_epoch = ? AND sequence >= 0 "
        "AND (sequence_round, sequence) >= (?, ?) ORDER BY sequence_round, sequence LIMIT 1",
        (
            partition_id, batch.producer_id, batch.producer_epoch, round_of(base_serial),
            sequence_of(base_serial),
        ),
    ).fetchone()  # fmt: skip
    if row is None:
        return StoredRange()
    offset, position, sequence_round, sequence = row
    serial = sequence_round * SEQUENCE_COUNT + sequence
    if serial != base_serial:
        return StoredRange(occupied=serial <= last_serial)
    base_offset, count = unit.execute(_PLACE, (position,)).fetchone()
    if base_offset != offset:
        return StoredRange(occupied=True)
    return StoredRange(Duplicate(offset, offset + count - 1), count, occupied=True)


_PLACE: Final = (
    f"SELECT {member(BatchAppended, 'base_offset')}, {member(BatchAppended, 'count')} "
    "FROM eosdb_journal WHERE position = ?"
)
