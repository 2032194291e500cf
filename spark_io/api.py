"""The public functions: reading, writing, and what a session needs for them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Final

from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

import eosdb

from .planning import options as reading_options
from .planning.cut import Lens
from .planning.errors import SparkOptionError
from .planning.files import absolute
from .planning.skipped import SkippedFile
from .python import explained, use_this_python
from .reading import table_function
from .source import EosdbDataSource
from .writing import report
from .writing.outgoing import Outgoing, as_bytes, parse
from .writing.report import WriteReport
from .writing.running import active, query_of
from .writing.standing import standing_of
from .writing.writes import (
    Calls,
    Content,
    bring_in,
    bring_in_some_order,
    plan_of,
    rows_of,
    sink_of,
    topics_of,
)

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""A file, a directory, a glob, or a list of them."""
_CALLS: Final = Calls()
_SESSION: Final = ("ignoreCorruptFiles", "ignoreMissingFiles")


def register(spark: SparkSession) -> None:
    """Register `format("eosdb")` in the session, and the table function of SQL
    `eosdb('shop.db', 'orders, payments')`, which reads anew each time: Spark keeps the first plan of
    DataFrames and views.

    Where the Python of Spark's workers has eosdb, Spark finds the format by itself, through the module
    `pyspark_eosdb`.
    """
    _register_source(spark)
    table_function.register(spark)


def _register_source(spark: SparkSession) -> None:
    use_this_python(spark)
    spark.dataSource.register(EosdbDataSource)


def read(spark: SparkSession, path: Paths, **options: object) -> DataFrame:
    """Committed records as a DataFrame; options are those of Spark's Kafka connector, such as
    `subscribe="orders"`, `startingOffsets="earliest"`, `includeHeaders=True`.

    Offsets are pinned when Spark first plans the query, at one instant in each file, and Spark keeps that
    plan: read again for what has come since.
    """
    _register_source(spark)
    given = {**_of_session(spark), **_option_texts(options)}
    reader: DataFrameReader = spark.read.format("eosdb").options(**given)
    with explained(spark), active(spark):
        return reader.load(_paths(path))


def read_stream(spark: SparkSession, path: Paths, **options: object) -> DataFrame:
    """Committed records as a stream, with the same options and `maxOffsetsPerTrigger`.

    With `groupId` the progress is committed for that group, so that `eosdb groups describe` shows the
    query's lag.
    """
    _register_source(spark)
    given = {**_of_session(spark), **_option_texts(options)}
    reader: DataStreamReader = spark.readStream.format("eosdb").options(**given)
    found = _paths(path)
    if isinstance(found, str):
        with explained(spark), active(spark):
            return reader.load(found)
    raise SparkOptionError("a stream takes one path; name several files by a folder or a glob")


def write(
    frame: DataFrame,
    path: str | os.PathLike[str],
    *,
    topic: str | None = None,
    txn_app_id: str | None = None,
    txn_version: int | None = None,
    **options: object,
) -> WriteReport:
    """Append the rows to the file; all of them become readable together. The report says what was appended,
    or why nothing was.

    Columns: `value`, and any of `key`, `topic`, `partition`, `headers`, `timestamp`. A job that may be run
    again identifies itself by `txn_app_id` and its run by `txn_version`, which must increase: rows already
    written under the same pair are not written again. Several writes under one pair must go to different
    topics, or each must have its own option `writeName`. Within a function for `foreachBatch`, also in
    threads that end before it does, a repeat is recognized by its rows.
    """
    spark = frame.sparkSession
    _register_source(spark)
    query = query_of(spark)
    named = {"topic": topic, "txnAppId": txn_app_id, "txnVersion": txn_version}
    given = _option_texts(
        {**options, **{name: value for name, value in named.items() if value is not None}}
    )
    if query.id is not None and query.batch is not None:
        given["microBatch"] = f"{query.id}:{query.batch}"
        if query.checkpoint is not None:
            given["checkpointLocation"] = query.checkpoint
    with tempfile.TemporaryDirectory(prefix="eosdb-write-") as folder:
        given["report"] = os.path.join(folder, "report.json")
        with explained(spark), active(spark):
            frame.write.format("eosdb").options(**given).mode("append").save(os.fspath(path))
        made = report.of_file(given["report"])
    made.say(path)
    return made


def foreach_batch(
    path: str | os.PathLike[str],
    topic: str | None = None,
    *,
    sink_id: str | None = None,
    **options: object,
) -> Callable[[DataFrame, int], None]:
    """A function for `writeStream.foreachBatch` that appends each micro-batch once. The driver holds the
    batch in memory; it has the lowest latency of all sinks.

    Several calls in one micro-batch are different writes; the same rows to the same topic are a repeat,
    unless option `writeName` distinguishes them. `sink_id` names the query and its checkpoint; by default
    it is Spark's query id, which a Spark Connect session does not provide.
    """
    given = {"path": os.fspath(path), **_option_texts(options)}
    if topic is not None:
        given["topic"] = topic

    def append(frame: DataFrame, batch_id: int) -> None:
        # Pickled by name: Spark Connect sends this function away, but the counter of calls must stay.
        _append(frame, batch_id, given, sink_id)

    return append


def _append(frame: DataFrame, batch_id: int, given: dict[str, str], sink_id: str | None) -> None:
    types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    options = parse(given, types)
    query = query_of(frame.sparkSession)
    owner = sink_id or query.id
    if owner is None:
        raise SparkOptionError(
            "this session does not provide the query id: foreach_batch is for writeStream.foreachBatch, or "
            "needs a sink_id, one for each query and checkpoint"
        )
    batches = [as_bytes(batch) for batch in frame.toArrow().to_batches()]
    rows = rows_of(batches)
    sink = sink_of(owner, options.which)
    topics = topics_of(batches) if options.topic is None else {options.topic}
    # In other threads calls have no order: a repeat is known by its rows alone.
    plan = plan_of(query.checkpoint, query.id, batch_id) if query.is_its_thread else None
    content = Content(lambda: batches, rows, topics, plan)
    standing = standing_of(query.checkpoint, options.path, sink)
    with eosdb.connect(options.path, create=False) as db:

        def bring(order: int) -> eosdb.AppendOnceResult:
            sink_id = sink_of(owner, options.which, order)
            return bring_in(db, sink_id, batch_id, Outgoing(db, options), content, standing)

        if query.is_its_thread:
            place = f"{os.path.realpath(options.path)} {sink}"
            result = bring(_CALLS.number(place, (query.run, batch_id), rows))
        else:
            result = bring_in_some_order(bring, batch_id)
    report.of_result(result, sink, batch_id, rows.size).say(options.path)


def snapshot(path: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Publish a copy of a live file for readers on other hosts, replacing the previous one.

    SQLite's WAL works on one host only: never open a live file over a network; open such a copy.
    """
    with eosdb.connect(path, read_only=True) as db:
        db.publish(target)


def skipped_files(path: Paths) -> list[SkippedFile]:
    """The files that a reader of `path` leaves out with `ignoreCorruptFiles` and `ignoreMissingFiles`, and
    copies of files that are read: each a `path` and a `reason`. Looks at each file once, as planning does;
    damaged records are found by `eosdb verify`.

    Raises SparkOptionError for a path that matches nothing, and for copies that have parted.
    """
    both = {"ignoreCorruptFiles": "true", "ignoreMissingFiles": "true"}
    asked = _paths(path)
    return list(Lens(asked, reading_options.parse(both, streaming=False)).cut().skipped)


def _of_session(spark: SparkSession) -> dict[str, str]:
    """What the session says about the files of every source; options win."""
    known = {name: spark.conf.get(f"spark.sql.files.{name}", None) for name in _SESSION}
    return {name: value for name, value in known.items() if value is not None}


def _option_texts(options: dict[str, object]) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
    }


def _paths(path: Paths) -> str | list[str]:
    if isinstance(path, str | os.PathLike):
        return absolute(path)
    return [absolute(one) for one in path]
