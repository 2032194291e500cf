"""What a task of Spark executes to read: open the file, and yield Arrow batches.

Between the plan and the task, which Spark may run again at any later time, the file may have been replaced,
a topic made anew, and records deleted: each is told of, never read over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

import eosdb
from eosdb.errors import OffsetOutOfRangeError, UnknownTopicIdError, UnknownTopicOrPartitionError
from eosdb.integrations.arrow import records
from eosdb.model.notices import catalog
from eosdb.model.records.garbage import without_garbage_collection
from eosdb.spark_io.planning import remote
from eosdb.spark_io.planning.errors import SparkOptionError
from eosdb.spark_io.planning.options import ReadOptions
from eosdb.spark_io.planning.plan import Range

_AGAIN: Final = (
    "Spark keeps the first plan of a DataFrame and of a view: make the DataFrame again, with read()"
)


def batches(
    ranges: Sequence[Range], names: Sequence[str], options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """The records of the ranges of one file, in order; there is at least one.

    Raises SparkOptionError if the file or a topic is another than was planned, and OffsetOutOfRangeError if
    retention has removed some of the records since; with failOnDataLoss=false the rest is read, except of
    another file or topic by a DataFrame. Raises CorruptRecordError for a damaged record.
    """
    with contextlib.ExitStack() as cleanup:
        # Millions of tuples without references: looking for cycles among them takes a sixth of the time.
        cleanup.enter_context(without_garbage_collection())
        path = ranges[0].path
        db = cleanup.enter_context(remote.connect(path))
        for source in ranges:
            try:
                yield from _checked(db, source, names, options)
            except OffsetOutOfRangeError as error:
                again = "" if options.is_stream else f"{_AGAIN}. "
                raise OffsetOutOfRangeError(
                    f"{path}: {error}; retention or delete-records has taken records that were to be "
                    f"read. {again}Set failOnDataLoss=false to read what there is"
                ) from error


def _checked(
    db: eosdb.Database, source: Range, names: Sequence[str], options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """The records of one range, as long as they are those that were planned."""
    departure = None if source.mark is None else db.admin.history_departure(source.mark)
    if departure is not None:
        departure = f"the file is another than was there: {departure}"
    if _is_lost(departure or _other_topic(db, source), source, options):
        return
    start = source.start
    if not options.fail_on_data_loss:
        start = min(max(start, _log_start(db, source)), source.end)
        _tell(source, start, options)
    try:
        for batch in records.batches(
            db,
            source.topic_partition,
            start,
            source.end,
            names,
            isolation_level=options.isolation_level,
            skip_lost=not options.fail_on_data_loss,
            source_file=source.path,
        ):
            # An id is never given again: the topic that it is now it was when these were read.
            if _is_lost(_other_topic(db, source), source, options):
                return
            yield batch
    except (UnknownTopicIdError, UnknownTopicOrPartitionError):
        if not _is_lost(_other_topic(db, source), source, options):
            raise
        return
    if not options.fail_on_data_loss and (first := _log_start(db, source)) > start:
        _tell(source._replace(start=start), min(first, source.end), options)


def _is_lost(why: str | None, source: Range, options: ReadOptions) -> bool:
    """Whether a stream that accepts losses has lost the range. Raises SparkOptionError."""
    if why is None:
        return False
    what = f"{source.path}, {source.topic_partition}: since this was planned {why}"
    if not options.is_stream:
        raise SparkOptionError(f"{what}. {_AGAIN}")
    if options.fail_on_data_loss:
        raise SparkOptionError(f"{what}. Set failOnDataLoss=false to read what there is")
    catalog.LOSS_ACCEPTED.say(loss=what)
    return True


def _other_topic(db: eosdb.Database, source: Range) -> str | None:
    """Why this is not the topic that was planned."""
    if source.topic_id is None:
        return None
    try:
        now = str(db.broker.topic(source.topic, may_create=False).topic_id)
    except UnknownTopicOrPartitionError:
        return "the topic was deleted"
    if now == source.topic_id:
        return None
    return f"the topic was deleted and made anew: its id is {now}, not {source.topic_id}"


def _log_start(db: eosdb.Database, source: Range) -> int:
    return db.broker.offsets(source.topic_partition).log_start_offset


def _tell(source: Range, first: int, options: ReadOptions) -> None:
    """Say that a range has lost what is before an offset."""
    if first > source.start:
        catalog.RECORDS_LOST.say(
            file=source.path,
            topic_partition=source.topic_partition,
            first=source.start,
            last=first - 1,
            advice="" if options.is_stream else f". {_AGAIN}",
        )
