"""Reads a part of a range as one Arrow batch, without an object for each row and each value.

The checksums of all records are verified at once. If one differs, or anything is unusual, the part is read
row by row, which decides what is wrong and raises.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from eosdb.log import checksum, transaction_index
from eosdb.log.partition_rows import Partition
from eosdb.log.reading import at_once, packed, scan
from eosdb.log.reading.packed import Packed
from eosdb.log.reading.scan import Snapshot
from eosdb.native.cells import arrays as arrays_of

MOST_ROWS: Final = 4_000
"""The most rows of a batch; batches that fit into the CPU's cache are fastest."""
_BYTES: Final = 1 << 20
"""The size in bytes that batches of large records should have."""
# Not by `pa.array`, which imports pandas: 0.3 s of CPU for each process, and Spark starts many.
_COUNTING: Final = pa.Array.from_buffers(
    pa.int64(), MOST_ROWS, [None, pa.py_buffer(array("q", range(MOST_ROWS)))]
)


_Found = tuple[list[pa.Array], pa.Array, pa.Array]


class Columns(NamedTuple):
    """The columns of the data records of a part, in the order given: numbers as int64, all others as
    binary."""

    columns: Sequence[pa.Array]
    size: int


class Parts:
    """Reads the parts of one range; passed to `Database.admin.read_parts`."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns: Final = columns
        self._numbers: Final = [name for name in packed.NUMBERS if name in columns]
        self._with_headers = "headers" in columns

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
        # decisions/0035: if anything is wrong or unusual, read row by row.
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
        found = self._in_cells(connection, partition, start, stop)
        if found is None and start < stop and packed.can_be_packed(partition, start):
            found = self._in_text(connection, partition, start, stop)
        if found is None:
            return None
        arrays, offsets, keep = found
        if read_committed:
            seen = (int(at.as_py()) for at in offsets.filter(keep))
            gone = transaction_index.taken_back_in(connection, partition, start, stop, seen)
            if gone:
                taken = pc.is_in(offsets, pa.array(gone, pa.int64()))
                keep = pc.and_(keep, pc.invert(taken))
        count = keep.true_count
        if count < len(offsets):
            arrays = [array.filter(keep) for array in arrays]
        return Columns(arrays, count)

    def _in_cells(
        self, connection: Snapshot, partition: Partition, start: int, stop: int
    ) -> _Found | None:
        """Return the columns, all offsets, and which rows are data, as the accelerator has them."""
        cells = at_once.cells(connection, partition, start, stop)
        if cells is None:
            return None
        *arrays, offsets = arrays_of(pa, cells, [*self._columns, "offset"])
        return arrays, offsets, pa.repeat(True, len(offsets))

    def _in_text(
        self, connection: Snapshot, partition: Partition, start: int, stop: int
    ) -> _Found | None:
        """The same without the accelerator, from lists that SQLite has made of numbers and values."""
        part = self._read(connection, partition, start, stop)
        if not isinstance(part, Packed):
            return None
        try:
            keep = _without_markers(part)
            arrays = None if keep is None else self._arrays(part)
        except pa.ArrowException:
            return None
        return None if arrays is None else (arrays, _offsets(part), keep)

    def _read(
        self, connection: Snapshot, partition: Partition, start: int, stop: int
    ) -> Packed | bool:
        part = packed.read(
            connection, partition, start, stop, self._numbers, with_headers=self._with_headers
        )
        if part is True:
            self._with_headers = True
            return self._read(connection, partition, start, stop)
        return part

    def _arrays(self, part: Packed) -> list[pa.Array] | None:
        arrays = [self._array(name, part) for name in self._columns]
        return arrays if all(len(array) == part.size for array in arrays) else None

    def _array(self, name: str, part: Packed) -> pa.Array:
        match name:
            case "offset":
                return _offsets(part)
            case "key":
                return pa.array(part.keys, pa.binary())
            case "value":
                return pa.array(part.values, pa.binary())
            case "headers":
                return pa.array(part.headers or [None] * part.size, pa.binary())
        listed = part.numbers[self._numbers.index(name)]
        if isinstance(listed, int):
            return pa.repeat(pa.scalar(listed, pa.int64()), part.size)
        return numbers(listed)


def _type(name: str) -> pa.DataType:
    return pa.binary() if name in ("key", "value", "headers") else pa.int64()


def _offsets(part: Packed) -> pa.Array:
    return pc.add(_COUNTING[: part.size], part.start)


def _rows(partition: Partition) -> int:
    """Return how many rows of the partition have about the size of a batch."""
    rows = partition.log_end_offset - partition.log_start_offset
    return min(max(_BYTES * rows // max(partition.size_bytes, 1), 1), MOST_ROWS)


def numbers(text: str) -> pa.Array:
    """Parse a list of numbers. Raises pyarrow.ArrowException for any other text."""
    return pc.split_pattern(pa.scalar(text, pa.string()), ",").values.cast(pa.int64())


def _without_markers(part: Packed) -> pa.Array | None:
    """Return a mask of the rows that are data; None if a row has neither the checksum of its data nor that
    of a marker."""
    expected = numbers(part.offsets_and_contents)
    if len(expected) != part.size:
        return None
    sums = pa.array(checksum.sums_of_bytes(part.keys, part.values, part.headers), pa.int64())
    rest = pc.subtract(pc.subtract(expected, sums), _offsets(part))
    is_data = pc.equal(rest, 0)
    if is_data.true_count == part.size:
        return is_data
    is_marker = pc.and_(pc.equal(rest, checksum.MARKER), pc.equal(sums, 0))
    return is_data if pc.or_(is_data, is_marker).true_count == part.size else None
