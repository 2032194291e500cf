"""Reads a part of a range as one Arrow batch, without an object for each row and each value.

The accelerator reads it. Where there is none, or anything is unusual, the part is read row by row, which
decides what is wrong and raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from eosdb.log import transaction_index
from eosdb.log.partition_rows import Partition
from eosdb.log.reading import at_once, scan
from eosdb.log.reading.scan import Snapshot
from eosdb.native.cells import arrays as arrays_of

MOST_ROWS: Final = 4_000
"""The most rows of a batch; batches that fit into the CPU's cache are fastest."""
_BYTES: Final = 1 << 20
"""The size in bytes that batches of large records should have."""


class Columns(NamedTuple):
    """The columns of the data records of a part, in the order given: numbers as int64, all others as
    binary."""

    columns: Sequence[pa.Array]
    size: int


class Parts:
    """Reads the parts of one range; passed to `Database.admin.read_parts`."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns: Final = columns

    def __call__(
        self,
        connection: Snapshot,
        partition: Partition,
        start: int,
        end: int,
        *,
        read_committed: bool,
    ) -> tuple[Columns, int]:
        """Read one part. Raises the errors of `scan.part`."""
        stop = min(end, start + _rows(partition))
        found = self._at_once(connection, partition, start, stop, read_committed=read_committed)
        if found is not None:
            return found, stop
        rows, next_offset = scan.part(
            connection,
            partition,
            start,
            end,
            self._columns,
            read_committed=read_committed,
            max_rows=MOST_ROWS,
            check_crcs=True,
        )
        columns = list(zip(*rows, strict=True)) or [()] * len(self._columns)
        return (
            Columns(
                [
                    pa.array(values, _type(name))
                    for name, values in zip(self._columns, columns, strict=True)
                ],
                len(rows),
            ),
            next_offset,
        )

    def _at_once(
        self,
        connection: Snapshot,
        partition: Partition,
        start: int,
        stop: int,
        *,
        read_committed: bool,
    ) -> Columns | None:
        cells = at_once.cells(connection, partition, start, stop)
        if cells is None:
            return None
        *arrays, offsets = arrays_of(pa, cells, [*self._columns, "offset"])
        if read_committed:
            seen = (int(at.as_py()) for at in offsets)
            gone = transaction_index.taken_back_in(connection, partition, start, stop, seen)
            if gone:
                keep = pc.invert(pc.is_in(offsets, pa.array(gone, pa.int64())))
                return Columns([array.filter(keep) for array in arrays], keep.true_count)
        return Columns(arrays, len(offsets))


def _type(name: str) -> pa.DataType:
    return pa.binary() if name in ("key", "value", "headers") else pa.int64()


def _rows(partition: Partition) -> int:
    """Return how many rows of the partition have about the size of a batch."""
    rows = partition.log_end_offset - partition.log_start_offset
    return min(max(_BYTES * rows // max(partition.size_bytes, 1), 1), MOST_ROWS)
