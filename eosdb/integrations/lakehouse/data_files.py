"""Writes record batches as Parquet files of one topic and one UTC day each: the data files of all formats.

Memory use is bounded, whatever the number of records and days: rows are buffered until they fill row groups
of a good size, and a file is finished when it is large enough or when too many are open.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .targets import DataFile, Target

_WAITING_BYTES: Final = 64 * 2**20
"""The size of buffered rows at which they are written, as one row group for each file."""
_BATCH_BYTES: Final = 6 * 2**10
"""The memory that a record batch takes besides its rows."""
_FILE_BYTES: Final = 128 * 2**20
_OPEN_FILES: Final = 64
_NUMERIC: Final = ("partition", "offset")


def by_day(rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each UTC day. Raises OverflowError for a day beyond the year 9999."""
    days = pc.cast(rows.column("timestamp"), pa.date32())
    span = pc.min_max(days)
    if span["min"].equals(span["max"]):
        yield str(span["min"]), rows
        return
    for day in pc.unique(days):
        yield str(day), rows.filter(pc.equal(days, day))


class DataFiles:
    """The data files of one commit, or of one source until it is read. `name` is unique."""

    def __init__(self, target: Target, name: str) -> None:
        self._target = target
        self._name = name
        self._waiting: dict[tuple[str, str], list[pa.RecordBatch]] = {}
        self._waiting_bytes = 0
        self._open: dict[tuple[str, str], _Growing] = {}
        """Least recently written first."""
        self.size_bytes = 0
        """The size of all rows in memory."""
        self.created: list[str] = []
        """The paths of all files, including unfinished ones."""
        self._finished: list[DataFile] = []

    def add(self, topic: str, day: str, *rows: pa.RecordBatch) -> None:
        self._waiting.setdefault((topic, day), []).extend(rows)
        size = sum(it.nbytes + _BATCH_BYTES for it in rows)
        self._waiting_bytes += size
        self.size_bytes += size
        if self._waiting_bytes >= _WAITING_BYTES:
            self._write_out()

    def take(self, other: DataFiles) -> int:
        """Add the rows of `other`, which ends. Returns the number of data files that they are in."""
        if not other.created:
            for key, rows in other._waiting.items():
                self.add(*key, *rows)
            return len(other._waiting)
        finished = other.finish()
        self.created += other.created
        other.created = []
        self._finished += finished
        self.size_bytes += other.size_bytes
        return len(finished)

    def finish(self) -> list[DataFile]:
        """Close all files, make them durable, and return them."""
        self._write_out()
        while self._open:
            self._end(next(iter(self._open)))
        return self._finished

    def give_up(self) -> None:
        """Remove the created files."""
        for growing in self._open.values():
            with contextlib.suppress(OSError, pa.ArrowException):
                growing.abandon()
        for path in self.created:
            with contextlib.suppress(OSError):
                self._target.remove(path)

    def _write_out(self) -> None:
        for key, rows in self._waiting.items():
            growing = self._open.pop(key, None) or self._begin(*key, rows[0].schema)
            self._open[key] = growing
            if growing.write(rows) >= _FILE_BYTES:
                self._end(key)
        self._waiting.clear()
        self._waiting_bytes = 0

    def _begin(self, topic: str, day: str, schema: pa.Schema) -> _Growing:
        if len(self._open) >= _OPEN_FILES:
            self._end(next(iter(self._open)))
        path, file = self._target.create(topic, day, f"{self._name}-{len(self.created):05}.parquet")
        self.created.append(path)
        return _Growing(path, file, schema)

    def _end(self, key: tuple[str, str]) -> None:
        self._finished.append(self._open[key].end(*key))
        del self._open[key]


class _Growing:
    def __init__(self, path: str, file: BinaryIO, schema: pa.Schema) -> None:
        self._path = path
        self._file = file
        self._footers: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(
            file, schema, compression="zstd", metadata_collector=self._footers
        )

    def write(self, rows: Sequence[pa.RecordBatch]) -> int:
        """Write a row group. Returns the size of the file so far."""
        self._writer.write_table(pa.Table.from_batches(rows))
        return self._file.tell()

    def end(self, topic: str, day: str) -> DataFile:
        self._writer.close()
        size_bytes = self._file.tell()
        self._file.close()
        (footer,) = self._footers
        span = _span(footer)
        least = {name: found[0] for name, found in span.items()}
        most = {name: found[1] for name, found in span.items()}
        return DataFile(self._path, topic, day, footer.num_rows, size_bytes, least, most)

    def abandon(self) -> None:
        self._writer.close()
        self._file.close()


def _span(footer: Any) -> Mapping[str, tuple[int, int]]:
    """Return the least and the greatest value of each numeric column."""
    found = {}
    for name in _NUMERIC:
        at = footer.schema.names.index(name)
        parts = [footer.row_group(i).column(at).statistics for i in range(footer.num_row_groups)]
        found[name] = min(it.min for it in parts), max(it.max for it in parts)
    return found
