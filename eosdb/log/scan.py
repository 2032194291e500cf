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
_OVERLAPS: Final = (
    "SELECT 1 FROM transaction_index "
    "WHERE partition_id = ? AND last_offset > ? AND first_offset < ? LIMIT 1"
)


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
            f"columns: got {', '.join(unknown) or 'none'}, expected some of {', '.join(COLUMNS)}"
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
    # Without an aborted transaction in the range every data record in it is committed; else the view's
    # rule tells which are.
    aborted = (
        read_committed
        and connection.execute(_OVERLAPS, (partition.partition_id, start, end)).fetchone()
    )
    names = ", ".join(f'"{column}"' for column in columns)
    if aborted:
        cursor = connection.execute(
            f"SELECT {names} FROM committed_records WHERE topic = ? AND partition = ? "
            'AND "offset" >= ? AND "offset" < ? ORDER BY "offset"',
            (*partition.topic_partition, start, end),
        )
    else:
        cursor = connection.execute(
            f"SELECT {names} FROM records WHERE partition_id = ? "
            'AND "offset" >= ? AND "offset" < ? AND control IS NULL ORDER BY "offset"',
            (partition.partition_id, start, end),
        )
    while batch := cursor.fetchmany(batch_size):
        yield batch
