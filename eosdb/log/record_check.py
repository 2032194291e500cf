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
_BATCHES: Final = f"""
WITH asked (partition, first, last) AS (VALUES %s)
SELECT CAST(group_concat((
    SELECT count(*) || ' ' || min(position) || ' ' || max(position) || ' ' || max(timestamp) || ' ' ||
        min({_SERIAL}) || ' ' || max({_SERIAL}) || ' ' || group_concat({STORED_CONTENT}, '')
    FROM records WHERE partition_id = asked.partition AND "offset" BETWEEN asked.first AND asked.last
), '') AS BLOB)
FROM asked
"""
"""The rows of many batches as one string of bytes: for each some numbers, and its content."""
_MARKERS: Final = """
WITH asked (partition, "offset") AS (VALUES %s)
SELECT r.position, r.partition_id, r."offset", r.control
FROM asked CROSS JOIN records r ON r.partition_id = asked.partition AND r."offset" = asked."offset"
"""
_CONTENT: Final = (
    'SELECT key, value, headers FROM records WHERE partition_id = ? AND "offset" BETWEEN ? AND ? '
    'ORDER BY "offset"'
)
_AT_ONCE: Final = 100
_AT_ONCE_BYTES: Final = 1024 * 1024


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
        self._batches: list[tuple[int, BatchAppended]] = []
        self._batch_bytes = 0
        self._markers: list[tuple[int, MarkerWritten]] = []
        self._rows = 0
        self.problems: list[str] = []

    def inspect(self, position: int, event: Event) -> None:
        """Compare one event with its rows, now or with the next ones."""
        if type(event) is BatchAppended:
            kept_from = self._kept_from.get(event.partition_id, event.base_offset + 1)
            # Without a CRC one query is not enough, and where records have gone it is of no use.
            if event.crc < 0 or event.base_offset < kept_from or event.size > _AT_ONCE_BYTES:
                self._range(position, event, event.base_offset, event.last_offset)
                return
            self._batches.append((position, event))
            self._batch_bytes += event.size
            if len(self._batches) == _AT_ONCE or self._batch_bytes > _AT_ONCE_BYTES:
                self._look_at_batches()
        elif type(event) is MarkerWritten:
            self._markers.append((position, event))
            if len(self._markers) == _AT_ONCE:
                self._look_at_markers()

    def finish(self) -> list[str]:
        """What is wrong, once every event has been seen."""
        self._look_at_batches()
        self._look_at_markers()
        (rows,) = self._connection.execute("SELECT count(*) FROM records").fetchone()
        if rows != self._rows:
            self.problems.append(
                f"records: {rows} rows are stored, the events account for {self._rows}"
            )
        return self.problems

    def _look_at_batches(self) -> None:
        """Look at them one by one, unless they are all right."""
        batches, self._batches, self._batch_bytes = self._batches, [], 0
        if batches and self._are_whole(batches):
            self._rows += sum([event.count for _, event in batches])
            return
        for position, event in batches:
            self._range(position, event, event.base_offset, event.last_offset)

    def _are_whole(self, batches: list[tuple[int, BatchAppended]]) -> bool:
        """Whether everything that `_range` looks at is there and right, in one query for all.

        SQLite promises no order to group_concat, which follows the index here, and calls bytes text: what
        differs is a reason to look closer, not a finding.
        """
        asked: list[int] = []
        expected: list[tuple[bytes, int, int]] = []
        for position, event in batches:
            first, count, serial = event.base_offset, event.count, event.base_sequence
            asked += (event.partition_id, first, first + count - 1)
            last_serial = serial + count - 1 if serial >= 0 else -1
            numbers = b"%d %d %d %d %d %d " % (
                count, position, position, event.max_timestamp, serial, last_serial
            )  # fmt: skip
            expected.append((numbers, event.size, event.crc))
        query = _BATCHES % ", ".join(["(?, ?, ?)"] * len(batches))
        (found,) = self._connection.execute(query, asked).fetchone()
        if found is None:
            return False
        view, at = memoryview(found), 0
        for numbers, size, crc in expected:
            start = at + len(numbers)
            at = start + size
            if not found.startswith(numbers, start - len(numbers)) or crc32(view[start:at]) != crc:
                return False
        return at == len(found)

    def _look_at_markers(self) -> None:
        """As `_look_at_batches`."""
        markers, self._markers = self._markers, []
        if not markers:
            return
        expected = [(at, event.partition_id, event.offset, event.control) for at, event in markers]
        query = _MARKERS % ", ".join(["(?, ?)"] * len(markers))
        asked = [number for row in expected for number in row[1:3]]
        if self._connection.execute(query, asked).fetchall() == expected:
            self._rows += len(markers)
            return
        for position, event in markers:
            self._range(position, event, event.offset, event.offset)

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
