"""A part of a range as one Arrow batch, made without an object for each row and each value.

The checksum of every record is compared, of all at once; where one differs, or anything is unusual, the
caller reads row by row, which is what decides and says what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from eosdb.log import checksum, transaction_index
from eosdb.log.partition_rows import Partition
from eosdb.log.reading import packed, scan
from eosdb.log.reading.packed import Packed
from eosdb.log.reading.scan import Snapshot

MOST_ROWS: Final = 4_000
"""Rows in a batch: what fits into the processor's cache is passed on fastest."""
_BYTES: Final = 1 << 20
"""What a batch should have, where records are large."""
_COUNTING: Final = pa.array(range(MOST_ROWS), pa.int64())


class Columns(NamedTuple):
    """What a reader sees of a part, under the names of `log.scan`: numbers as int64, all else as binary."""

    columns: Sequence[pa.Array]
    size: int


class Parts:
    """Reads the parts of one range, as `Database.admin.read_parts` has them read."""

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
        """Raises what `scan.part` raises."""
        stop = min(end, start + _rows(partition))
        found = self._at_once(connection, partition, start, stop, read_committed=read_committed)
        if found is not None:
            return found, stop
        # decisions/0035: whatever is wrong or unusual, the rows themselves tell.
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
        if start >= stop or not packed.can_be_packed(partition, start):
            return None
        found = self._read(connection, partition, start, stop)
        if not isinstance(found, Packed):
            return None
        try:
            keep = _without_markers(found)
            arrays = None if keep is None else self._arrays(found)
        except pa.ArrowException:
            return None
        if keep is None or arrays is None:
            return None
        if read_committed:
            seen = (int(at.as_py()) for at in _offsets(found).filter(keep))
            gone = transaction_index.taken_back_in(connection, partition, start, stop, seen)
            if gone:
                taken = pc.is_in(_offsets(found), pa.array(gone, pa.int64()))
                keep = pc.and_(keep, pc.invert(taken))
        count = keep.true_count
        if count < found.size:
            arrays = [array.filter(keep) for array in arrays]
        return Columns(arrays, count)

    def _read(
        self, connection: Snapshot, partition: Partition, start: int, stop: int
    ) -> Packed | bool:
        found = packed.read(
            connection, partition, start, stop, self._numbers, with_headers=self._with_headers
        )
        if found is True:
            self._with_headers = True
            return self._read(connection, partition, start, stop)
        return found

    def _arrays(self, found: Packed) -> list[pa.Array] | None:
        arrays = [self._array(name, found) for name in self._columns]
        return arrays if all(len(array) == found.size for array in arrays) else None

    def _array(self, name: str, found: Packed) -> pa.Array:
        match name:
            case "offset":
                return _offsets(found)
            case "key":
                return pa.array(found.keys, pa.binary())
            case "value":
                return pa.array(found.values, pa.binary())
            case "headers":
                return pa.array(found.headers or [None] * found.size, pa.binary())
        listed = found.numbers[self._numbers.index(name)]
        if isinstance(listed, int):
            return pa.repeat(pa.scalar(listed, pa.int64()), found.size)
        return numbers(listed)


def _type(name: str) -> pa.DataType:
    return pa.binary() if name in ("key", "value", "headers") else pa.int64()


def _offsets(found: Packed) -> pa.Array:
    return pc.add(_COUNTING[: found.size], found.start)


def _rows(partition: Partition) -> int:
    """How many rows of the partition make about a batch's bytes."""
    rows = partition.log_end_offset - partition.log_start_offset
    return min(max(_BYTES * rows // max(partition.size_bytes, 1), 1), MOST_ROWS)


def numbers(text: str) -> pa.Array:
    """A list of numbers. Raises pyarrow.ArrowException for anything else."""
    return pc.split_pattern(pa.scalar(text, pa.string()), ",").values.cast(pa.int64())


def _without_markers(found: Packed) -> pa.Array | None:
    """Which rows are data; None unless each row has the checksum of what it must be."""
    expected = numbers(found.offsets_and_contents)
    if len(expected) != found.size:
        return None
    sums = pa.array(checksum.sums_of_bytes(found.keys, found.values, found.headers), pa.int64())
    rest = pc.subtract(pc.subtract(expected, sums), _offsets(found))
    is_data = pc.equal(rest, 0)
    if is_data.true_count == found.size:
        return is_data
    is_marker = pc.and_(pc.equal(rest, checksum.MARKER), pc.equal(sums, 0))
    return is_data if pc.or_(is_data, is_marker).true_count == found.size else None
