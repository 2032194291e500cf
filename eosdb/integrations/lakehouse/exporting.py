"""`export` appends the new records of a file to a table, in one commit that also stores the progress.

The progress is stored in the target itself, so that both cannot diverge: a killed export has added either
all of its records or none. `export_files` loads the table once for many files, opens those that may have
changed, and commits the new records of all (decisions/0075).

Data files are Parquet, of one topic and one UTC day each, for all formats. Memory use is bounded: a file is
finished when it is large enough or when too many are open.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, TypedDict, Unpack

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from eosdb import errors
from eosdb.admin.summary import stamp_of
from eosdb.admin.tools import Tools
from eosdb.database import Database, connect
from eosdb.integrations.lakehouse import targets
from eosdb.integrations.lakehouse.targets import (
    DataFile,
    ExportSource,
    Numbers,
    OffsetRange,
    Target,
    one_line,
)
from eosdb.model.clock import Clock, SystemClock
from eosdb.model.failpoints import Failpoint, reach
from eosdb.model.progress import Progress, report_progress, silent
from eosdb.model.validation import check_choice, check_path, check_text, check_texts, shown
from eosdb.model.words import needs_extra

_WAITING_BYTES: Final = 64 * 2**20
"""If buffered rows reach this size (bytes), they are written as one row group for each file."""
_BATCH_BYTES: Final = 6 * 2**10
"""The memory of a record batch besides its rows."""
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
    """The data files of one commit, or of one source until it is read completely. `name` is unique."""

    def __init__(self, target: Target, name: str) -> None:
        self._target = target
        self._name = name
        self._waiting: dict[tuple[str, str], list[pa.RecordBatch]] = {}
        self._waiting_bytes = 0
        self._open: dict[tuple[str, str], _Growing] = {}
        """The open files, the least recently written first."""
        self.size_bytes = 0
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
        """Add the rows of `other`, which must not be used again. Returns the number of its files."""
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
    """The minimum and maximum of each numeric column."""
    found = {}
    for name in _NUMERIC:
        at = footer.schema.names.index(name)
        parts = [footer.row_group(i).column(at).statistics for i in range(footer.num_row_groups)]
        found[name] = min(it.min for it in parts), max(it.max for it in parts)
    return found


FORMATS: Final = ("parquet", "delta", "iceberg")
_COMMIT_BYTES: Final = 2**30
"""Files are read into one commit until their rows take this much memory."""
_COMMIT_NUMBERS: Final = 50_000
"""Files are read into one commit until it stores this many numbers."""
_TICK_NS: Final = 3_000_000_000
"""Longer than a tick of any file system's times (ns); FAT's ticks are two seconds."""


class Where(TypedDict):
    """The arguments of `export` that describe the target."""

    catalog: str
    options: Mapping[str, str]
    allow_data_loss: bool


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of one export; empty if there were no new records."""

    records: int
    files: int


def export(
    db: Database,
    target: str | os.PathLike[str],
    format: str = "parquet",
    *,
    topics: Collection[str] | None = None,
    catalog: str = "default",
    options: Mapping[str, str] | None = None,
    allow_data_loss: bool = False,
    on_progress: Progress | None = None,
) -> Exported:
    """Append the committed records that the target does not have yet, each exactly once, even if exports
    are killed, repeated, or run concurrently.

    `target` is a folder, for `"delta"` also a URI of object storage, and for `"iceberg"` a table of
    pyiceberg's `catalog`, such as `namespace.table`. `topics` None exports all topics. `options` are
    storage options for Delta and catalog properties for Iceberg. Several files may be exported into one
    table, which has a column `source_file`. `on_progress(done, total)` counts offsets.

    Raises ConfigError; IllegalStateError if the file was replaced, or is an older copy than the exported
    one; OffsetOutOfRangeError if retention has removed records that were not exported, unless
    `allow_data_loss`; StorageError if the target cannot be written; InvalidTimestampError for a record
    later than the year 9999; and the errors of reading.
    """

    def work(report: Progress) -> Exported:
        with _exporter(
            target, format, topics, db.clock,
            catalog=catalog, options=options or {}, allow_data_loss=allow_data_loss,
        ) as exporter:  # fmt: skip
            while True:
                exported = exporter.read(db, on_progress=report)
                if exporter.commit(db):
                    return exported

    return report_progress(on_progress, work)


def export_files(
    paths: Sequence[str],
    target: str,
    format: str,
    *,
    topics: Collection[str] | None,
    principal: str,
    **where: Unpack[Where],
) -> Iterator[tuple[str, Exported | errors.EosdbError]]:
    """Do `export` for many files, in one commit, or in a few for many records. Yields the result of each
    file when it is committed, or an error if it was left out. Raises the errors of the target."""
    clock = SystemClock()
    with _exporter(target, format, topics, clock, **where) as exporter:
        at = 0
        while at < len(paths):
            done: dict[str, Exported | errors.EosdbError] = {}
            for path in paths[at:]:
                try:
                    done[path] = exporter.read_file(path, principal, clock)
                except errors.EosdbError as error:
                    if exporter.is_loading:
                        raise
                    done[path] = error.with_traceback(None)
                if exporter.is_full:
                    break
            if exporter.commit():
                at += len(done)
                yield from done.items()


@contextlib.contextmanager
def _exporter(
    target: str | os.PathLike[str],
    format: str,
    topics: Collection[str] | None,
    clock: Clock,
    *,
    catalog: str,
    options: object,
    allow_data_loss: bool,
) -> Iterator[_Exporter]:
    named = None if topics is None else check_texts("topics", topics)
    check_choice("format", format, *FORMATS)
    sink = _target(
        check_text("target", check_path("target", target), errors.ConfigError),
        format,
        check_text("catalog", catalog, errors.ConfigError),
        _checked(options),
        clock,
    )
    exporter = _Exporter(sink, named, allow_data_loss=allow_data_loss)
    try:
        yield exporter
    except (OSError, pa.ArrowException) as error:
        raise errors.StorageError(f"the data files cannot be written: {one_line(error)}") from error
    finally:
        exporter.forget()
        sink.close()


class _Exporter:
    """Reads new records of one file after the other, and commits them."""

    _files: DataFiles

    def __init__(
        self, sink: Target, topics: Collection[str] | None, *, allow_data_loss: bool
    ) -> None:
        self._sink: Final = sink
        self._topics: Final = topics
        self._allow_data_loss: Final = allow_data_loss
        self._known: dict[str, int] | None = None
        """The target's progress after the commit. It is loaded after the first file was read, so that
        errors in the files or topics leave no empty table."""
        self.is_loading = False
        """Whether the target failed to load; all other errors of `read` and `read_file` are the file's."""
        self._begin()

    @property
    def is_full(self) -> bool:
        return self._files.size_bytes >= _COMMIT_BYTES or len(self._before) >= _COMMIT_NUMBERS

    def read_file(self, path: str, principal: str, clock: Clock) -> Exported:
        """Like `read`, but skips a file that has not changed since it was exported completely."""
        stamp = self._stamp(path, principal, clock)
        if stamp and self._known is not None and stamp.items() <= self._known.items():
            return Exported(0, 0)
        with connect(path, create=False, read_only=True, principal=principal) as db:
            return self.read(
                db, lambda: stamp if self._stamp(path, principal, clock) == stamp else {}
            )

    def read(
        self, db: Database, stamp: Callable[[], Numbers] = dict, on_progress: Progress = silent
    ) -> Exported:
        """Read the new records. `stamp` is called afterwards and returns more numbers to store."""
        # A path is stored as JSON, so it must have a UTF-8 form.
        check_text("path", db.path, errors.ConfigError)
        while True:
            source = _look(db)
            targets.check_topics(source, self._topics)
            known = self._numbers()
            mark = targets.known_mark(source, known)
            departure = None if mark is None else Tools(db.admin).history_departure(mark)
            wanted = targets.ranges(
                source, known, departure, self._topics, allow_data_loss=self._allow_data_loss
            )
            # Keep the new rows separate: rows of a read that fails must not be committed.
            mine = self._new_files()
            try:
                with contextlib.suppress(
                    errors.UnknownTopicIdError, errors.UnknownTopicOrPartitionError
                ):
                    records = self._write(db, mine, wanted, on_progress)
                    if _is_current(db, source, wanted):
                        files = self._files.take(mine)
                        self._note(source, wanted, stamp())
                        return Exported(records, files)
            finally:
                mine.give_up()

    def commit(self, db: Database | None = None) -> bool:
        """Commit the rows. Returns False if another export committed first, or if a topic of `db` was
        recreated: then nothing is committed, and the files must be read again."""
        if self._read:
            written = self._files.finish()
            reach(Failpoint.EXPORT_WRITTEN)
            if db is not None and not all(_is_current(db, *it) for it in self._read):
                self.forget()
                return False
            # From here on an error leaves the outcome unknown, so these files must not be deleted.
            files, self._files = self._files, self._new_files()
            try:
                new = targets.Commit(written, self._before, self._after, _about(self._read))
                is_done = self._sink.commit(new)
            except errors.StorageError as error:
                if error.__cause__ is not None:
                    errors.in_doubt(error)  # The commit may have succeeded before the error.
                raise
            if not is_done:
                files.give_up()
                self.forget()
                return False
            reach(Failpoint.EXPORT_COMMITTED)
        self._begin()
        return True

    def forget(self) -> None:
        """Forget the rows, and load the target again before the next file."""
        self._files.give_up()
        self._known = None
        self._begin()

    def _begin(self) -> None:
        self._files = self._new_files()
        self._read: list[tuple[ExportSource, Sequence[OffsetRange]]] = []
        self._before: dict[str, int | None] = {}
        self._after: dict[str, dict[str, int]] = {}

    def _new_files(self) -> DataFiles:
        return DataFiles(self._sink, f"part-{secrets.token_hex(8)}")

    def _numbers(self) -> dict[str, int]:
        if self._known is None:
            self.is_loading = True
            self._known = dict(self._sink.load())
            self.is_loading = False
        return self._known

    def _write(
        self, db: Database, files: DataFiles, wanted: Sequence[OffsetRange], on_progress: Progress
    ) -> int:
        """Write the records as data files, which only a commit adds to the table. Returns their number."""
        records = done = 0
        total = sum(it.end - it.start for it in wanted)
        for it in wanted:
            tp, here = it.topic_partition, 0
            try:
                for rows in db.scan_arrow(
                    tp,
                    it.start,
                    it.end,
                    columns=self._sink.columns,
                    skip_lost=self._allow_data_loss,
                ):
                    records += rows.num_rows
                    here += rows.num_rows
                    on_progress(done + here, total)
                    for day, part in by_day(rows):
                        files.add(tp.topic, day, part)
            except (OverflowError, errors.InvalidTimestampError):
                raise errors.InvalidTimestampError(
                    f"{tp}: a record from offset {it.start} on has a timestamp beyond the year 9999, "
                    "which no format can store; export other topics, or delete the record"
                ) from None
            done += it.end - it.start
            on_progress(done, total)
        return records

    def _note(self, source: ExportSource, wanted: Sequence[OffsetRange], stamp: Numbers) -> None:
        if wanted:
            self._read.append((source, wanted))
        known = self._numbers()
        numbers = {**(targets.after(source, wanted) if wanted else {}), **stamp}
        for name, number in numbers.items():
            self._before.setdefault(name, known.get(name))
            known[name] = self._after.setdefault(source.file_id, {})[name] = number

    def _stamp(self, path: str, principal: str, clock: Clock) -> Numbers:
        """A fingerprint of the file, which differs after every change that the export would see; empty if
        no fingerprint is reliable."""
        found = stamp_of(os.path.realpath(path))
        # decisions/0075: without a WAL, the next commit creates one, whose checkpoint changes the file's
        # times. A file that was written in this tick of the clock could change without new times.
        now_ns = clock.time_ms() * 1_000_000
        if found is None or found.wal is not None or found.newest_ns > now_ns - _TICK_NS:
            return {}
        seen = (found, None if self._topics is None else sorted(self._topics), principal)
        return {f"stamp:{_place(path)}": targets.number_of(repr(seen))}


def _target(
    target: str, format: str, catalog: str, options: Mapping[str, str], clock: Clock
) -> Target:
    try:
        if format == "delta":
            from eosdb.integrations.lakehouse.delta import DeltaTarget

            return DeltaTarget(target, options, clock)
        if format == "iceberg":
            from eosdb.integrations.lakehouse.iceberg import IcebergTarget

            return IcebergTarget(target, catalog, options)
    except ModuleNotFoundError as error:
        raise ImportError(needs_extra(format, "lakehouse", error)) from error
    if options:
        raise errors.ConfigError(f"options: got {', '.join(options)}, expected none for Parquet")
    from eosdb.integrations.lakehouse.parquet import ParquetTarget

    return ParquetTarget(target)


def _look(db: Database) -> ExportSource:
    while True:
        ids = _topic_ids(db)
        cut = db.admin.consistent_cut()
        mark = Tools(db.admin).history_mark()
        if ids == _topic_ids(db):
            break
    path = os.path.abspath(db.path)
    return ExportSource(
        path,
        _place(path),
        mark,
        ids,
        {tp: offsets for tp, (offsets, _) in cut.items() if tp.topic in ids},
        {tp: end for tp, (_, end) in cut.items()},
    )


def _place(path: str) -> str:
    return f"{os.uname().nodename}:{os.path.abspath(path)}"


def _topic_ids(db: Database) -> dict[str, str]:
    return {it.name: it.topic_id.hex for it in db.broker.topic_metadata()}


def _is_current(db: Database, source: ExportSource, wanted: Sequence[OffsetRange]) -> bool:
    """Whether no topic was recreated since `source`. Ids are never reused, so equal ids now mean that the
    ranges were read from the same topics."""
    now = _topic_ids(db)
    topics = {it.topic_partition.topic for it in wanted}
    return all(now.get(topic) == source.topic_ids[topic] for topic in topics)


def _about(read: Sequence[tuple[ExportSource, Sequence[OffsetRange]]]) -> dict[str, object]:
    if len(read) > 1:
        return {"source_files": len(read)}
    ((source, wanted),) = read
    offsets: dict[str, dict[str, list[int]]] = {}
    for it in wanted:
        topic, partition = it.topic_partition
        offsets.setdefault(topic, {})[str(partition)] = [it.start, it.end]
    return {"file_id": source.file_id, "source_file": source.path, "offsets": offsets}


def _checked(options: object) -> dict[str, str]:
    if not isinstance(options, Mapping):
        raise errors.ConfigError(
            f"options: got {shown(options)}, expected a mapping of names to values"
        )
    return {
        check_text("options", name, errors.ConfigError): check_text(
            "options", value, errors.ConfigError
        )
        for name, value in options.items()
    }
