"""A partition's log as it is stored: batch by batch, as kafka-dump-log shows a segment."""

from __future__ import annotations

import json
import sqlite3
from typing import Final

from eosdb.log import fetch
from eosdb.log.partition_rows import Partition
from eosdb.log.producer_state import sequence_of
from eosdb.model.damage import reads
from eosdb.model.reports import LoggedBatch
from eosdb.model.values import NO_SEQUENCE

_NEXT: Final = """
    SELECT j.timestamp, j.transactional_id, j.detail
    FROM (
        SELECT position FROM records WHERE partition_id = ? AND "offset" >= ?
        ORDER BY "offset" LIMIT 1
    ) r JOIN journal j ON j.position = r.position
"""


@reads("journal")
def next_batch(
    connection: sqlite3.Connection, partition: Partition, offset: int
) -> LoggedBatch | None:
    """The stored batch that holds `offset`, or the first after it; None at the end.

    Records that retention or compaction has removed are missing from the batch's records, not from its
    offsets.
    """
    row = connection.execute(_NEXT, (partition.partition_id, offset)).fetchone()
    if row is None:
        return None
    append_time, transactional_id, detail = row
    event = json.loads(detail)
    is_control = "control" in event
    count = event.get("count", 1)
    base_offset = event["offset"] if is_control else event["base_offset"]
    base_serial = event.get("base_sequence", NO_SEQUENCE)
    found = fetch.fetch(
        connection,
        partition,
        max(base_offset, partition.log_start_offset),
        read_committed=False,
        max_records=count,
        max_bytes=2**62,
    )
    last_offset = base_offset + count - 1
    return LoggedBatch(
        base_offset=base_offset,
        last_offset=last_offset,
        count=count,
        base_sequence=sequence_of(base_serial),
        last_sequence=sequence_of(base_serial + count - 1) if base_serial >= 0 else NO_SEQUENCE,
        producer_id=event["producer_id"],
        producer_epoch=event["producer_epoch"],
        transactional_id=transactional_id,
        is_transactional=is_control or event["is_transactional"],
        is_control=is_control,
        coordinator_epoch=event.get("coordinator_epoch", -1),
        append_time=append_time,
        size=event.get("size", 0),
        crc=event.get("crc", -1),
        records=tuple(record for record in found.records if record.offset <= last_offset),
    )
