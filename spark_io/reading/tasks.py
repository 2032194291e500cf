"""Reads the ranges of a task as Arrow batches, file by file, and skips files as the options allow.

Spark may run a task long after planning. If the file was replaced, a topic recreated, or records deleted
meanwhile, this is an error, or a loss that is logged.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

import eosdb
from eosdb import errors
from eosdb.admin.tools import Tools
from eosdb.integrations import arrow
from eosdb.model.notices import catalog
from eosdb.model.records.garbage import without_garbage_collection
from eosdb.spark_io.planning import files
from eosdb.spark_io.planning.errors import SparkOptionError, with_advice
from eosdb.spark_io.planning.options import ReadOptions
from eosdb.spark_io.planning.plan import Range


class Task(InputPartition):
    """The ranges of one task, as Spark sends them to it."""

    def __init__(self, ranges: tuple[Range, ...]) -> None:
        super().__init__(None)
        self.ranges = ranges


def batches(
    ranges: Iterable[Range], names: Sequence[str], options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the ranges, in order. If reading a file fails midway, and the options allow to
    skip the file, its earlier batches are kept and the rest is skipped. Otherwise the error is raised."""
    for path, of_file in itertools.groupby(ranges, key=attrgetter("path")):
        try:
            yield from _of_file(tuple(of_file), names, options)
        except errors.EosdbError as error:
            if not options.ignoring.allows(error):
                raise with_advice(error) from None
            catalog.REST_LEFT_OUT.say(file=path, cause=error)


_AGAIN: Final = (
    "Spark keeps the first plan of a DataFrame and of a view: make the DataFrame again, with read()"
)


def _of_file(
    ranges: Sequence[Range], names: Sequence[str], options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Yield the records of one or more ranges of a single file, in order. Raises SparkOptionError if the
    file was replaced or a topic recreated since planning, OffsetOutOfRangeError if retention has removed
    records of the range, and CorruptRecordError for a damaged record. With failOnDataLoss=false a stream
    skips lost records, and a DataFrame reads the remaining ones, unless the file or topic was replaced."""
    with contextlib.ExitStack() as cleanup:
        # Tuples form no cycles, and checking millions of them would take a sixth of the time.
        cleanup.enter_context(without_garbage_collection())
        path = ranges[0].path
        db = cleanup.enter_context(files.connect(path))
        for source in ranges:
            try:
                yield from _checked(db, source, names, options)
            except errors.OffsetOutOfRangeError as error:
                again = "" if options.is_stream else f"{_AGAIN}. "
                raise errors.OffsetOutOfRangeError(
                    f"{path}: {error}; retention or delete-records has removed records that this "
                    f"task reads. {again}Set failOnDataLoss=false to read the rest"
                ) from error


def _checked(
    db: eosdb.Database, source: Range, names: Sequence[str], options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Yield the records of one range. Checks that file and topic are those of the plan."""
    departure = None if source.mark is None else Tools(db.admin).history_departure(source.mark)
    if departure is not None:
        departure = f"the file is another than was there: {departure}"
    if _is_lost(departure or _other_topic(db, source), source, options):
        return
    start = source.start
    if not options.fail_on_data_loss:
        start = min(max(start, _log_start(db, source)), source.end)
        _tell(source, start, options)
    is_first = True
    try:
        for batch in arrow.batches(
            db.admin,
            source.topic_partition,
            start,
            source.end,
            names,
            isolation_level=options.isolation_level,
            skip_lost=not options.fail_on_data_loss,
            source_file=source.path,
        ):
            # Ids are never reused: if the topic has the same id now, this batch was read from it. For later
            # batches the scan itself raises UnknownTopicIdError.
            if is_first and _is_lost(_other_topic(db, source), source, options):
                return
            is_first = False
            yield batch
    except (errors.UnknownTopicIdError, errors.UnknownTopicOrPartitionError):
        if not _is_lost(_other_topic(db, source), source, options):
            raise
        return
    if not options.fail_on_data_loss and (first := _log_start(db, source)) > start:
        _tell(source._replace(start=start), min(first, source.end), options)


def _is_lost(why: str | None, source: Range, options: ReadOptions) -> bool:
    """Whether the range is lost and the stream accepts this loss, which is then logged. Raises
    SparkOptionError for any other loss."""
    if why is None:
        return False
    what = f"{source.path}, {source.topic_partition}: since this was planned {why}"
    if not options.is_stream:
        raise SparkOptionError(f"{what}. {_AGAIN}")
    if options.fail_on_data_loss:
        raise SparkOptionError(f"{what}. Set failOnDataLoss=false to read the rest")
    catalog.LOSS_ACCEPTED.say(loss=what)
    return True


def _other_topic(db: eosdb.Database, source: Range) -> str | None:
    """Why the topic is not the one of the plan; None if it is."""
    if source.topic_id is None:
        return None
    try:
        now = str(db.broker.topic(source.topic, may_create=False).topic_id)
    except errors.UnknownTopicOrPartitionError:
        return "the topic was deleted"
    if now == source.topic_id:
        return None
    return f"the topic was deleted and recreated: its id is {now}, not {source.topic_id}"


def _log_start(db: eosdb.Database, source: Range) -> int:
    return db.broker.offsets(source.topic_partition).log_start_offset


def _tell(source: Range, first: int, options: ReadOptions) -> None:
    if first > source.start:
        catalog.RECORDS_LOST.say(
            file=source.path,
            topic_partition=source.topic_partition,
            first=source.start,
            last=first - 1,
            advice="" if options.is_stream else f". {_AGAIN}",
        )
