"""The lag of a position in records.

End offset minus position would be wrong, because markers and aborted data take offsets, too. Data rows
are counted by offset, aborted ones by the transaction index, so a long lag costs a tenth of counting it
in the view `committed_records`, against which a test checks it.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from eosdb.log.partition_rows import Partition
from eosdb.model.reports import Lag

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


# decisions/0013: the one function that counts lag: records to be read, not offsets.
def measure(
    connection: sqlite3.Connection, partition: Partition, position: int, *, read_committed: bool
) -> Lag:
    """Return the number of records between the position and the end of the log."""
    start, end = max(position, partition.log_start_offset), partition.log_end_offset
    stable = partition.last_stable_offset if read_committed else end
    below, readable = _count(connection, partition, start, stable, read_committed)
    above, held_back = _count(connection, partition, max(start, stable), end, read_committed)
    return Lag(readable, held_back, below + above - readable - held_back)


def _count(
    connection: sqlite3.Connection, partition: Partition, start: int, end: int, drop_aborted: bool
) -> tuple[int, int]:
    """Return the number of rows, and of those that are data (and not aborted, if requested)."""
    if start >= end:
        return 0, 0
    bounds = (partition.partition_id, start, end)
    rows, data = connection.execute(_ROWS, bounds).fetchone()
    if drop_aborted:
        data -= connection.execute(_ABORTED, bounds).fetchone()[0]
    return rows, data
