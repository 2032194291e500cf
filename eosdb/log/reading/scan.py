"""Bulk reading of a partition: the data records of a range as tuples, without control records and
aborted data.

For readers that take millions of rows at a time. Below the last stable offset the result is final, so
tasks that read parts of a range at different times, each on its own snapshot, together read a consistent
set.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final, Protocol, TypeVar

from eosdb.errors import InvalidRequestError, OffsetOutOfRangeError
from eosdb.log import transaction_index
from eosdb.log.checksum import CONTENT_ASKED, UNCHECKED
from eosdb.log.partition_rows import Partition
from eosdb.log.reading import fetch, row_check
from eosdb.log.record_rows import FETCHED, OFFSET, RANGE, beginning, by_column

Snapshot = sqlite3.Connection
T_co = TypeVar("T_co", covariant=True)
_BASE: Final = {name: FETCHED.index(name) for name in ("offset", "key", "value", "headers")}
"""The columns that are always read, and their index in the row."""
_OTHERS: Final = ("timestamp", "timestamp_type", "producer_id", "producer_epoch", "sequence")
_BEGINNING: Final = {
    check_crcs: beginning(content, timestamp="NULL", timestamp_type="NULL")
    for check_crcs, content in ((True, CONTENT_ASKED), (False, UNCHECKED))
}
_MOST_BYTES: Final = 64 * 1024 * 1024
"""The most bytes held in memory at a time, whatever the number of rows."""
COLUMNS: Final = (
    "offset", "timestamp", "timestamp_type", "key", "value", "headers", "producer_id",
    "producer_epoch", "sequence",
)  # fmt: skip
"""The columns that can be requested, named as in the view `committed_records`."""


class Part(Protocol[T_co]):
    """Reads the beginning of [start, end) of a partition; returns the result and the offset to continue
    from."""

    def __call__(
        self,
        connection: Snapshot,
        partition: Partition,
        start: int,
        end: int,
        *,
        read_committed: bool,
    ) -> tuple[T_co, int]: ...


def check_range(partition: Partition, start: int, end: int, *, read_committed: bool) -> None:
    """Raises InvalidRequestError if `end` is beyond the isolation level's bound, and
    OffsetOutOfRangeError if the log begins after `start`."""
    bound = fetch.upper_bound(partition, read_committed=read_committed)
    if end > bound:
        raise InvalidRequestError(
            f"{partition.topic_partition}: got end {end}, readers may read up to {bound}"
        )
    if start < partition.log_start_offset and start < end:
        raise OffsetOutOfRangeError(
            f"{partition.topic_partition}: got start {start}, the log begins at "
            f"{partition.log_start_offset}"
        )


def part(
    connection: sqlite3.Connection,
    partition: Partition,
    start: int,
    end: int,
    columns: Sequence[str],
    *,
    read_committed: bool,
    max_rows: int,
    check_crcs: bool,
) -> tuple[list[tuple[Any, ...]], int]:
    """Return at most `max_rows` data records of [start, end), fewer if they are large, and the offset to
    continue from.

    Raises InvalidRequestError for an unknown column, and CorruptRecordError.
    """
    unknown = [column for column in columns if column not in COLUMNS]
    if unknown or not columns:
        raise InvalidRequestError(
            f"columns: got {', '.join(map(repr, unknown)) or 'none'}, expected some of {', '.join(COLUMNS)}"
        )
    others = [column for column in columns if column in _OTHERS]
    cursor = connection.execute(
        f'SELECT {", ".join([_BEGINNING[check_crcs], *others])} {RANGE} ORDER BY "offset"',
        (partition.partition_id, start, end),
    )
    names = ["" if name in _OTHERS else name for name in FETCHED] + others
    rows, exhausted = fetch.within(cursor, partition, start, names, max_rows, _MOST_BYTES)
    next_offset = max(start, end) if exhausted else rows[-1][OFFSET] + 1
    if check_crcs:
        count, next_offset = row_check.checked(
            partition, by_column(rows), start, end, exhausted=exhausted
        )
        rows = rows[:count]
    rows = row_check.without_markers(rows)
    if read_committed and rows:
        seen = [row[OFFSET] for row in rows] if check_crcs else None
        gone = transaction_index.taken_back_in(connection, partition, start, next_offset, seen)
        if gone:
            rows = [row for row in rows if row[OFFSET] not in gone]
    places = [
        _BASE[column] if column in _BASE else len(FETCHED) + others.index(column)
        for column in columns
    ]
    if len(places) == 1:
        return [(row[places[0]],) for row in rows], next_offset
    return list(map(itemgetter(*places), rows)), next_offset
