"""Reading a range of a partition's data in bulk: rows as tuples, control records and aborted data left out.

For readers that take millions of rows at a time. Below the last stable offset the answer is final, so tasks
that read parts of one range, each whenever it can, read one consistent set.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Final

from eosdb.errors import InvalidRequestError, OffsetOutOfRangeError
from eosdb.log.partitions import Partition

COLUMNS: Final = (
    "offset", "timestamp", "timestamp_type", "key", "value", "headers", "producer_id",
    "producer_epoch", "sequence",
)  # fmt: skip
"""What can be asked for, under the names of the view `committed_records`."""
_ABORTED: Final = (
    "SELECT first_offset, last_offset FROM transaction_index "
    "WHERE partition_id = ? AND last_offset > ? AND first_offset < ? ORDER BY first_offset"
)
_STRETCH: Final = 1_000
"""A stretch without aborted data is read for itself from so many offsets on."""


def rows(
    connection: sqlite3.Connection,
    partition: Partition,
    start: int,
    end: int,
    columns: Sequence[str],
    *,
    read_committed: bool,
    batch_size: int,
) -> Iterator[list[tuple[Any, ...]]]:
    """The data records in [start, end), in lists of at most `batch_size`.

    Raises InvalidRequestError for an unknown column or an end that readers may not reach yet, and
    OffsetOutOfRangeError when the log begins behind `start`.
    """
    unknown = [column for column in columns if column not in COLUMNS]
    if unknown or not columns:
        raise InvalidRequestError(
            f"columns: got {', '.join(map(repr, unknown)) or 'none'}, expected some of {', '.join(COLUMNS)}"
        )
    bound = partition.last_stable_offset if read_committed else partition.log_end_offset
    if end > bound:
        raise InvalidRequestError(
            f"{partition.topic_partition}: got end {end}, readers may read up to {bound}"
        )
    if start < partition.log_start_offset and start < end:
        raise OffsetOutOfRangeError(
            f"{partition.topic_partition}: got start {start}, the log begins at "
            f"{partition.log_start_offset}"
        )
    names = ", ".join(f'"{column}"' for column in columns)
    for low, high, is_clean in _stretches(connection, partition, start, end, read_committed):
        if is_clean:
            cursor = connection.execute(
                f"SELECT {names} FROM records WHERE partition_id = ? "
                'AND "offset" >= ? AND "offset" < ? AND control IS NULL ORDER BY "offset"',
                (partition.partition_id, low, high),
            )
        else:
            cursor = connection.execute(
                f"SELECT {names} FROM committed_records WHERE topic = ? AND partition = ? "
                'AND "offset" >= ? AND "offset" < ? ORDER BY "offset"',
                (*partition.topic_partition, low, high),
            )
        while batch := cursor.fetchmany(batch_size):
            yield batch


def _stretches(
    connection: sqlite3.Connection,
    partition: Partition,
    start: int,
    end: int,
    read_committed: bool,
) -> Iterator[tuple[int, int, bool]]:
    """The range in parts, and whether each is without aborted data: there every data record is committed,
    while elsewhere the view's rule has to tell, which takes twice as long."""
    at = unclean = start
    if read_committed:
        bounds = (partition.partition_id, start, end)
        for first, last in connection.execute(_ABORTED, bounds):
            if first - at >= _STRETCH:
                if unclean < at:
                    yield unclean, at, False
                yield at, first, True
                unclean = first
            at = min(max(at, last + 1), end)
    if end - at >= _STRETCH or at == start:
        if unclean < at:
            yield unclean, at, False
        yield at, end, True
    else:
        yield unclean, end, False
