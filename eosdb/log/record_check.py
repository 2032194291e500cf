"""Whether the record rows are those that the events brought, no more and no fewer.

Counts, positions, sequences, the newest timestamp, the total size and the CRC of the content are
compared, batch by batch. A batch that retention or compaction has thinned out is compared by number only.
"""

from __future__ import annotations

import sqlite3
from typing import Final
from zlib import crc32

from eosdb.events import BatchAppended, Event, MarkerWritten
from eosdb.log.batch import STORED_CONTENT, STORED_SIZE, stored_crc
from eosdb.log.producer_state import SEQUENCE_COUNT

_SERIAL: Final = f"sequence_round * {SEQUENCE_COUNT} + sequence"
_RANGE: Final = f"""
SELECT count(*), min(position), max(position),
    min({_SERIAL}), max({_SERIAL}), min(control), max(timestamp),
    sum({STORED_SIZE})
FROM records WHERE partition_id = ? AND "offset" BETWEEN ? AND ?
"""
_WHOLE_BATCH: Final = f"""
SELECT count(*), min(position), max(position), max(timestamp), min({_SERIAL}), max({_SERIAL}),
    CAST(group_concat({STORED_CONTENT}, '') AS BLOB)
FROM records WHERE partition_id = ? AND "offset" BETWEEN ? AND ?
"""
_CONTENT: Final = (
    'SELECT key, value, headers FROM records WHERE partition_id = ? AND "offset" BETWEEN ? AND ? '
    'ORDER BY "offset"'
)
_MARKER: Final = 'SELECT position, control FROM records WHERE partition_id = ? AND "offset" = ?'
_AT_ONCE_BYTES: Final = 16 * 1024 * 1024


class RecordCheck:
    """Looks at every append event and the rows it should have; `problems` tells what is wrong."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._kept_from = {
            partition_id: max(log_start_offset, clean_offset)
            for partition_id, log_start_offset, clean_offset in connection.execute(
                "SELECT partition_id, log_start_offset, clean_offset FROM partitions"
            )
        }
        self._rows = 0
        self.problems: list[str] = []

    def inspect(self, position: int, event: Event) -> None:
        """Compare one event with its rows."""
        if type(event) is BatchAppended:
            if not self._is_whole(position, event):
                self._range(position, event, event.base_offset, event.last_offset)
        elif type(event) is MarkerWritten and not self._is_marker(position, event):
            self._range(position, event, event.offset, event.offset)

    def finish(self) -> list[str]:
        """What is wrong, once every event has been seen."""
        (rows,) = self._connection.execute("SELECT count(*) FROM records").fetchone()
        if rows != self._rows:
            self.problems.append(
                f"records: {rows} rows are stored, the events account for {self._rows}"
            )
        return self.problems

    def _is_whole(self, position: int, event: BatchAppended) -> bool:
        """Whether everything that `_range` looks at is there and right, in one query.

        SQLite promises no order to group_concat, which follows the index here, and calls bytes text: what
        differs is a reason to look closer, not a finding. Nor is anything found without a CRC.
        """
        first, serial, count = event.base_offset, event.base_sequence, event.count
        if event.crc < 0 or event.size > _AT_ONCE_BYTES:
            return False
        *numbers, first_serial, last_serial, content = self._connection.execute(
            _WHOLE_BATCH, (event.partition_id, first, first + count - 1)
        ).fetchone()
        if (
            numbers != [count, position, position, event.max_timestamp]
            or (serial >= 0 and (first_serial, last_serial) != (serial, serial + count - 1))
            or len(content) != event.size
            or crc32(content) != event.crc
        ):
            return False
        self._rows += count
        return True

    def _is_marker(self, position: int, event: MarkerWritten) -> bool:
        """As `_is_whole`."""
        found = self._connection.execute(_MARKER, (event.partition_id, event.offset)).fetchone()
        if found != (position, event.control):
            return False
        self._rows += 1
        return True

    def _range(
        self, position: int, event: BatchAppended | MarkerWritten, first: int, last: int
    ) -> None:
        count, low, high, first_serial, last_serial, control, newest, size = (
            self._connection.execute(_RANGE, (event.partition_id, first, last)).fetchone()
        )
        self._rows += count
        where = f"records: {event.topic}-{event.partition} offsets {first} to {last}"
        kept_from = self._kept_from.get(event.partition_id, last + 1)
        expected = last - max(first, kept_from) + 1
        if count < expected:
            self.problems.append(f"{where}: {count} rows are stored, expected {expected}")
        if count and (low != position or high != position):
            self.problems.append(
                f"{where}: rows name journal positions {low} to {high}, expected {position}"
            )
        if count != last - first + 1:
            return
        if isinstance(event, MarkerWritten):
            if control != event.control:
                self.problems.append(f"{where}: control is {control!r}, expected {event.control!r}")
            return
        if event.base_sequence >= 0 and (first_serial, last_serial) != (
            event.base_sequence,
            event.base_sequence + event.count - 1,
        ):
            self.problems.append(
                f"{where}: sequences {first_serial} to {last_serial} are stored, expected "
                f"{event.base_sequence} to {event.base_sequence + event.count - 1}"
            )
        if (newest, size) != (event.max_timestamp, event.size):
            self.problems.append(
                f"{where}: {size} bytes up to time {newest} are stored, expected {event.size} up to "
                f"{event.max_timestamp}"
            )
        elif event.crc >= 0:
            rows = self._connection.execute(_CONTENT, (event.partition_id, first, last))
            crc = stored_crc(rows)
            if crc != event.crc:
                self.problems.append(
                    f"{where}: the content's CRC is {crc:08x}, expected {event.crc:08x}; a key, a "
                    "value or a header has been altered"
                )
