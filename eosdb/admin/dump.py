"""Dumps a partition's log as stored: batch by batch, as kafka-dump-log shows a segment."""

from __future__ import annotations

import sqlite3
from typing import Final

from eosdb.coordinator.transactions.rows import COORDINATOR_EPOCH
from eosdb.log.partition_rows import Partition
from eosdb.log.producer_state import sequence_of
from eosdb.log.reading import block
from eosdb.log.reading.block import Limits
from eosdb.model.damage import reads
from eosdb.model.fetched import Want
from eosdb.model.reports import LoggedBatch
from eosdb.model.values import NO_SEQUENCE

_NEXT: Final = """
    SELECT b.position, b.timestamp, b.transactional_id, b.base_offset, b.count, b.base_sequence,
        r.producer_id, r.producer_epoch, b.is_transactional, b.control, b.size,
        ifnull(json_extract(j.detail, '$.crc'), -1), json_extract(j.detail, '$.coordinator_epoch')
    FROM (
        SELECT position, producer_id, producer_epoch FROM records
        WHERE partition_id = ? AND "offset" >= ? ORDER BY "offset" LIMIT 1
    ) r
    JOIN record_batches b ON b.position = r.position JOIN journal j ON j.position = r.position
"""
_ELECTIONS: Final = (
    "SELECT position, json_extract(detail, '$.epoch') FROM journal "
    "WHERE kind = 'CoordinatorElected' AND position > ? AND position <= ? ORDER BY position"
)

_AT_BASELINE: Final = (
    "SELECT b.position, c.value FROM eosdb_baseline b JOIN eosdb_baseline_counters c "
    f"ON c.name = '{COORDINATOR_EPOCH}' WHERE b.position > 0"
)


class Elections:
    """The coordinator epochs, as far as the journal has been read for them: a marker does not store the
    epoch if it is the current one."""

    def __init__(self) -> None:
        self._until = 0
        self._found: list[tuple[int, int]] = []

    def epoch_at(self, connection: sqlite3.Connection, position: int) -> int:
        """Return the coordinator epoch at the position; -1 if the journal does not tell."""
        if not self._until:
            self._found += connection.execute(_AT_BASELINE)
        if position > self._until:
            self._found += connection.execute(_ELECTIONS, (self._until, position))
            self._until = position
        before = [epoch for at, epoch in self._found if at < position]
        return before[-1] if before else -1


@reads("journal")
def next_batch(
    connection: sqlite3.Connection, partition: Partition, offset: int, elections: Elections
) -> LoggedBatch | None:
    """Return the stored batch that contains `offset`, or the first after it; None at the end.

    Records removed by retention or compaction are absent, but the batch keeps its original base and last
    offset.
    """
    row = connection.execute(_NEXT, (partition.partition_id, offset)).fetchone()
    if row is None:
        return None
    (
        position, append_time, transactional_id, base_offset, count, base_serial, producer_id,
        producer_epoch, is_transactional, control, size, crc, coordinator_epoch,
    ) = row  # fmt: skip
    is_control = control is not None
    if is_control and coordinator_epoch is None:
        coordinator_epoch = elections.epoch_at(connection, position)
    last_offset = base_offset + count - 1
    found = block.read(
        connection,
        partition,
        max(base_offset, partition.log_start_offset),
        partition.log_end_offset,
        committed=False,
        want=Want.STORED,
        limits=Limits(count, 2**62),
    )
    return LoggedBatch(
        base_offset=base_offset,
        last_offset=last_offset,
        count=count,
        base_sequence=sequence_of(base_serial),
        last_sequence=sequence_of(base_serial + count - 1) if base_serial >= 0 else NO_SEQUENCE,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional_id=transactional_id,
        is_transactional=bool(is_transactional),
        is_control=is_control,
        coordinator_epoch=coordinator_epoch if is_control else -1,
        append_time=append_time,
        size=size,
        crc=crc,
        records=tuple(record for record in found.records() if record.offset <= last_offset),
    )
