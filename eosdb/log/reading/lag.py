"""Which of many partitions have something new for a reader, and the lag of a position in records.

End offset minus position would be wrong: markers and aborted data have offsets, too. Data rows are
counted by offset, aborted ones by the transaction index. So a long lag costs a tenth of counting it in
the view `committed_records`, against which a test checks it.
"""

from __future__ import annotations

import json
import sqlite3
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from eosdb.log import partition_rows
from eosdb.log.partition_rows import Partition
from eosdb.model import finished
from eosdb.model.damage import parsed, reads
from eosdb.model.overview import Behind
from eosdb.model.reports import Lag
from eosdb.model.values import OffsetAndMetadata, TopicPartition

_PLACES: Final = "json_each(?) AS named, json_each(named.value) AS place"
_ON: Final = "ON topic = named.key AND partition = place.key"
_END: Final = {True: "last_stable_offset", False: "log_end_offset"}
"""The column of the end, by whether only committed data is read."""
_MOVED: Final = {
    read_committed: f"SELECT named.key, CAST(place.key AS INT) FROM {_PLACES} "
    f"LEFT JOIN partitions {_ON} WHERE {end} IS NOT place.value"
    for read_committed, end in _END.items()
}
_AT_END: Final = {
    read_committed: f"{_PLACES} CROSS JOIN partitions {_ON} WHERE {end} = place.value"
    for read_committed, end in _END.items()
}


def listed(offsets: Mapping[TopicPartition, int]) -> str:
    """Partitions and offsets as JSON, for `have_moved`."""
    by_topic: dict[str, dict[int, int]] = {}
    for tp, offset in offsets.items():
        by_topic.setdefault(tp.topic, {})[tp.partition] = offset
    return json.dumps(by_topic)


def have_moved(connection: sqlite3.Connection, ends: str, *, read_committed: bool) -> bool:
    """Whether any partition's end differs from `ends`, or a partition is gone. The rows are not checked
    here: the reader reads and checks them next."""
    return connection.execute(_MOVED[read_committed], (ends,)).fetchone() is not None


def moved(
    connection: sqlite3.Connection, ends: Mapping[str, Mapping[int, int]], *, read_committed: bool
) -> list[TopicPartition]:
    """Like `have_moved`, but return these partitions."""
    rows = connection.execute(_MOVED[read_committed], (json.dumps(ends),))
    return [*map(TopicPartition._make, rows)]


def idle(
    connection: sqlite3.Connection, positions: Mapping[TopicPartition, int], *, read_committed: bool
) -> Iterator[Partition]:
    """Return the undamaged partitions that end at these positions."""
    return partition_rows.sound(connection, _AT_END[read_committed], (listed(positions),))


_ROWS: Final = (
    "SELECT count(*), count(*) - count(control) FROM records "
    'WHERE partition_id = ? AND "offset" >= ? AND "offset" < ?'
)
_ABORTED: Final = """
    SELECT count(*) FROM (SELECT ? AS asked, ? AS start, ? AS bound, * FROM transaction_index) a
    CROSS JOIN records r ON r.partition_id = a.partition_id
        AND r."offset" >= max(a.first_offset, start) AND r."offset" < min(a.last_offset, bound)
    WHERE a.partition_id = asked AND a.last_offset > start AND a.first_offset < bound
        AND r.producer_id = a.producer_id AND r.is_transactional AND r.control IS NULL
"""
COUNTED_MAX: Final = 1_000
"""The most records of a partition that are read for the lag of all groups."""
# `typeof` needs only the header of a row, so SQLite does not load large values.
_TAILS: Final = f"""
    SELECT p.partition_id, p.log_start_offset, (
        SELECT json_array(
            iif(count(*) = {COUNTED_MAX}, min("offset"), -1),
            json_group_array("offset") FILTER (WHERE is_readable)
        )
        FROM (
            SELECT r."offset", typeof(r.control) = 'null' AND NOT (
                p.last_aborted_offset > r."offset" AND r.is_transactional AND coalesce((
                    SELECT a.first_offset FROM transaction_index a
                    WHERE a.partition_id = r.partition_id AND a.producer_id = r.producer_id
                        AND a.last_offset > r."offset" ORDER BY a.last_offset LIMIT 1
                ) <= r."offset", 0)
            ) AS is_readable
            FROM records r
            WHERE r.partition_id = p.partition_id AND r."offset" < p.last_stable_offset
                AND r."offset" >= max(wanted.start, p.log_start_offset)
            ORDER BY r."offset" DESC LIMIT {COUNTED_MAX}
        )
    )
    FROM (
        SELECT json_extract(value, '$[0]') AS partition_id, json_extract(value, '$[1]') AS start
        FROM json_each(?)
    ) wanted
    JOIN partitions p ON p.partition_id = wanted.partition_id
"""


# decisions/0013: lag is the number of records to read, not of offsets; only this function counts it.
def measure(
    connection: sqlite3.Connection, partition: Partition, position: int, *, read_committed: bool
) -> Lag:
    """Return the number of records between the position and the end of the log."""
    start, end = max(position, partition.log_start_offset), partition.log_end_offset
    stable = partition.last_stable_offset if read_committed else end
    below, readable = _count(connection, partition, start, stable, read_committed)
    above, held_back = _count(connection, partition, max(start, stable), end, read_committed)
    return Lag(readable, held_back, below + above - readable - held_back)


def of_group(
    connection: sqlite3.Connection, partition: Partition, committed: OffsetAndMetadata
) -> Lag:
    """Return the lag of a group, without the records that its processor has finished."""
    end, unfinished = finished.read(committed)
    lag = measure(connection, partition, end, read_committed=True)
    left = sum(offset >= partition.log_start_offset for offset in unfinished)
    return Lag(lag + left, lag.held_back, lag.skipped)


class Tail(NamedTuple):
    """The newest records of a partition that a read_committed reader could get now: `offsets` has all
    their offsets from `begins` on, in order."""

    offsets: Sequence[int]
    begins: int
    log_start_offset: int

    def behind(self, committed: OffsetAndMetadata) -> Behind:
        position, unfinished = finished.read(committed)
        older = max(self.begins - max(position, self.log_start_offset), 0)
        newer = len(self.offsets) - bisect_left(self.offsets, position)
        left = sum(offset >= self.log_start_offset for offset in unfinished)
        return Behind(left + newer + older, is_exact=not older)

    def first(self, position: int) -> int:
        """The first readable offset at or after the position; the position itself if it is older."""
        at = bisect_left(self.offsets, position)
        return position if position < self.begins or at == len(self.offsets) else self.offsets[at]


# decisions/0013: one statement for all groups, whose cost does not depend on their lag.
@reads("records")
def tails(connection: sqlite3.Connection, starts: Mapping[int, int]) -> dict[int, Tail]:
    """Return each partition's tail by partition id: at most from the given offset on, and at most
    COUNTED_MAX stored records."""
    found = {}
    for number, log_start_offset, counted in connection.execute(
        _TAILS, (json.dumps(list(starts.items())),)
    ):
        begins, offsets = parsed(counted)
        found[number] = Tail(sorted(offsets), begins, log_start_offset)
    return found


def _count(
    connection: sqlite3.Connection, partition: Partition, start: int, end: int, drop_aborted: bool
) -> tuple[int, int]:
    """Return the number of rows, and of those with data (not aborted, if `drop_aborted`)."""
    if start >= end:
        return 0, 0
    bounds = (partition.partition_id, start, end)
    rows, data = connection.execute(_ROWS, bounds).fetchone()
    if drop_aborted:
        data -= connection.execute(_ABORTED, bounds).fetchone()[0]
    return rows, data
