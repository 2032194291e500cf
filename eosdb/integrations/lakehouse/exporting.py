"""`export` appends the new records of a file to a table, in one commit that also stores the progress.

The progress is stored in the target itself, so that both cannot diverge: a killed export has added either
all of its records or none.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from eosdb.database import Database
from eosdb.errors import ConfigError, InvalidTimestampError, StorageError, in_doubt
from eosdb.model.clock import Clock
from eosdb.model.failpoints import Failpoint, reach
from eosdb.model.validation import check_choice, check_path, check_text, check_texts, shown
from eosdb.model.words import needs_extra

from . import progress
from .data_files import DataFiles
from .progress import Range, Source
from .targets import DataFile, Target, one_line

FORMATS: Final = ("parquet", "delta", "iceberg")


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
) -> Exported:
    """Append the committed records that the target does not have yet, each exactly once, even if exports
    are killed, repeated, or run concurrently.

    `target` is a folder, for `"delta"` also a URI of object storage, and for `"iceberg"` a table of
    pyiceberg's `catalog`, such as `namespace.table`. `topics` None exports all topics. `options` are
    storage options for Delta and catalog properties for Iceberg. Several files may be exported into one
    table, which has a column `source_file`.

    Raises ConfigError; IllegalStateError if the file was replaced, or is an older copy than the exported
    one; OffsetOutOfRangeError if retention has removed records that were not exported, unless
    `allow_data_loss`; StorageError if the target cannot be written; InvalidTimestampError for a record
    later than the year 9999; and the errors of reading.
    """
    named = None if topics is None else check_texts("topics", topics)
    # A path without a UTF-8 form is refused: the formats write JSON.
    check_text("path", db.path, ConfigError)
    check_choice("format", format, *FORMATS)
    sink = _target(
        check_text("target", check_path("target", target), ConfigError),
        format,
        check_text("catalog", catalog, ConfigError),
        _checked({} if options is None else options),
        db.clock,
    )
    try:
        while True:
            source = _look(db)
            known = sink.load(source.names())
            mark = progress.known_mark(source, known)
            departure = None if mark is None else db.admin.history_departure(mark)
            wanted = progress.ranges(
                source, known, departure, named, allow_data_loss=allow_data_loss
            )
            if not wanted:
                return Exported(0, 0)
            files = _write(db, sink, wanted, skip_lost=allow_data_loss)
            reach(Failpoint.EXPORT_WRITTEN)
            after, about = progress.after(source, wanted), _about(source, wanted)
            if _topic_ids(db) == source.topic_ids and _commit(sink, files, known, after, about):
                reach(Failpoint.EXPORT_COMMITTED)
                return Exported(sum(it.rows for it in files), len(files))
            # Another export committed first, or a topic was recreated: compute the new records again.
            for file in files:
                sink.remove(file.path)
    finally:
        sink.close()


def _commit(
    sink: Target,
    files: Sequence[DataFile],
    before: Mapping[str, int],
    after: Mapping[str, int],
    about: Mapping[str, object],
) -> bool:
    try:
        return sink.commit(files, before, after, about)
    except StorageError as error:
        if error.__cause__ is not None:
            in_doubt(error)  # The table or its catalog failed, before or behind the commit.
        raise


def _target(
    target: str, format: str, catalog: str, options: Mapping[str, str], clock: Clock
) -> Target:
    try:
        if format == "delta":
            from .delta import DeltaTarget

            return DeltaTarget(target, options, clock)
        if format == "iceberg":
            from .iceberg import IcebergTarget

            return IcebergTarget(target, catalog, options)
    except ModuleNotFoundError as error:
        raise ImportError(needs_extra(format, "lakehouse", error)) from error
    if options:
        raise ConfigError(f"got options {', '.join(options)}, Parquet has none")
    from .parquet import ParquetTarget

    return ParquetTarget(target)


def _look(db: Database) -> Source:
    """Read the state of the file in one snapshot."""
    while True:
        ids = _topic_ids(db)
        cut = db.admin.consistent_cut()
        mark = db.admin.history_mark()
        if ids == _topic_ids(db):
            break
    path = os.path.abspath(db.path)
    return Source(
        path,
        f"{os.uname().nodename}:{path}",
        mark,
        ids,
        {tp: offsets for tp, (offsets, _) in cut.items() if tp.topic in ids},
        {tp: end for tp, (_, end) in cut.items()},
    )


def _topic_ids(db: Database) -> dict[str, str]:
    return {it.name: it.topic_id.hex for it in db.broker.topic_metadata()}


def _write(
    db: Database, sink: Target, wanted: Sequence[Range], *, skip_lost: bool
) -> list[DataFile]:
    """Write the records as data files, durable but not yet part of the table."""
    files = DataFiles(sink, f"part-{secrets.token_hex(8)}")
    try:
        for range_ in wanted:
            tp = range_.topic_partition
            for rows in db.scan_arrow(
                tp, range_.start, range_.end, columns=sink.columns, skip_lost=skip_lost
            ):
                files.add(tp.topic, rows)
        return files.finish()
    except (OverflowError, InvalidTimestampError):
        files.give_up()
        raise InvalidTimestampError(
            f"{tp}: a record from offset {range_.start} on has a timestamp beyond the year 9999, which is "
            "no day in any of the formats; export other topics, or delete the record"
        ) from None
    except (OSError, pa.ArrowException) as error:
        files.give_up()
        raise StorageError(f"the data files cannot be written: {one_line(error)}") from error
    except BaseException:
        files.give_up()
        raise


def _about(source: Source, wanted: Sequence[Range]) -> dict[str, object]:
    """Return a description of the export for the table's history."""
    offsets: dict[str, dict[str, list[int]]] = {}
    for it in wanted:
        topic, partition = it.topic_partition
        offsets.setdefault(topic, {})[str(partition)] = [it.start, it.end]
    return {"file_id": source.file_id, "source_file": source.path, "offsets": offsets}


def _checked(options: object) -> dict[str, str]:
    if not isinstance(options, Mapping):
        raise ConfigError(f"options: got {shown(options)}, expected a mapping of names to values")
    return {
        check_text("options", name, ConfigError): check_text("options", value, ConfigError)
        for name, value in options.items()
    }
