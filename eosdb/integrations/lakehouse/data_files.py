"""Writes record batches as Parquet files of one topic and one UTC day each: the data files of all formats.

Memory use is bounded, whatever the number of records and days: rows are buffered until they fill row groups
of a good size, and a file is finished when it is large enough or when too many are open.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .targets import DataFile, Target

_WAITING_BYTES: Final = 64 * 2**20
"""The size of buffered rows at which they are written, as one row group for each file."""
_FILE_BYTES: Final = 128 * 2**20
_OPEN_FILES: Final = 64
_NUMERIC: Final = ("partition", "offset")


class DataFiles:
    """The data files of one export. `batch` is a name unique to the export."""

    def __init__(self, target: Target, batch: str) -> None:
        self._target = target
        self._batch = batch
        self._open: dict[tuple[str, str], _Growing] = {}
        self._waiting_bytes = 0
        self.created: list[str] = []
        """The paths of all files, including unfinished ones."""
        self.finished: list[DataFile] = []

    def add(self, topic: str, rows: pa.RecordBatch) -> None:
        days = pc.cast(rows.column("timestamp"), pa.date32())
        span = pc.min_max(days)
        if span["min"].equals(span["max"]):
            self._add(topic, str(span["min"]), rows)
            return
        for day in pc.unique(days):
            self._add(topic, str(day), rows.filter(pc.equal(days, day)))

    def finish(self) -> list[DataFile]:
        """Close all files, make them durable, and return them."""
        while self._open:
            self._end(next(iter(self._open)))
        return self.finished

    def give_up(self) -> None:
        """Remove the created files."""
        for growing in self._open.values():
            with contextlib.suppress(OSError, pa.ArrowException):
                growing.abandon()
        for path in self.created:
            with contextlib.suppress(OSError):
                self._target.remove(path)

    def _add(self, topic: str, day: str, rows: pa.RecordBatch) -> None:
        growing = self._open.pop((topic, day), None)
        if growing is None:
            if len(self._open) >= _OPEN_FILES:
                self._end(next(iter(self._open)))  # the file that has waited longest for rows
            name = f"{self._batch}-{len(self.created):05}.parquet"
            path, file = self._target.create(topic, day, name)
            self.created.append(path)
            growing = _Growing(path, file, rows.schema)
        self._open[topic, day] = growing
        growing.waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= _WAITING_BYTES:
            for key in list(self._open):
                if self._open[key].write_out() >= _FILE_BYTES:
                    self._end(key)
            self._waiting_bytes = 0

    def _end(self, key: tuple[str, str]) -> None:
        growing = self._open[key]
        self._waiting_bytes -= sum(rows.nbytes for rows in growing.waiting)
        self.finished.append(growing.end(*key))
        del self._open[key]


class _Growing:
    def __init__(self, path: str, file: BinaryIO, schema: pa.Schema) -> None:
        self._path = path
        self._file = file
        self._footers: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(
            file, schema, compression="zstd", metadata_collector=self._footers
        )
        self.waiting: list[pa.RecordBatch] = []

    def write_out(self) -> int:
        """Write the buffered rows. Returns the size of the file so far."""
        if self.waiting:
            self._writer.write_table(pa.Table.from_batches(self.waiting))
            self.waiting.clear()
        return self._file.tell()

    def end(self, topic: str, day: str) -> DataFile:
        self.write_out()
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
