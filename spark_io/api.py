"""The public functions: reading, writing, and registering the data source in a session."""

from __future__ import annotations

import json
import os
import tempfile
import weakref
from collections.abc import Callable, Sequence
from typing import Final

from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

import eosdb
from eosdb.spark_io import source
from eosdb.spark_io.planning import options as reading_options
from eosdb.spark_io.planning.cut import Lens
from eosdb.spark_io.planning.errors import SkippedFile, SparkOptionError
from eosdb.spark_io.planning.files import absolute
from eosdb.spark_io.python import explained, use_this_python
from eosdb.spark_io.source import EosdbDataSource
from eosdb.spark_io.writing import micro_batch, writes
from eosdb.spark_io.writing.micro_batch import Calls, MicroBatch, WriteReport, active, query_of
from eosdb.spark_io.writing.outgoing import Outgoing, as_bytes, parse

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""A file, a directory, a glob, or a list of them."""
_CALLS: Final = Calls()
# Registered sessions. Spark itself cannot be asked: it would start workers, which may have no eosdb.
_REGISTERED: Final = weakref.WeakSet[SparkSession]()
_WRITES: Final = ("txnappid", "txnversion", "writename", "topic")
"""The options that distinguish the writes of a micro-batch."""
_SESSION: Final = ("ignoreCorruptFiles", "ignoreMissingFiles")


def register(spark: SparkSession) -> None:
    """Register `format("eosdb")` in the session, and the SQL table function
    `eosdb('shop.db', 'orders, payments')`.

    The function reads the current records each time it is called, whereas Spark keeps the first plan of a
    DataFrame or view. If eosdb is installed in the Python of Spark's workers, Spark also finds the format
    without this call, through the module `pyspark_eosdb`.
    """
    _register_source(spark)
    source.register(spark)


def _register_source(spark: SparkSession) -> None:
    use_this_python(spark)
    if spark not in _REGISTERED:  # A second registration makes Spark warn.
        spark.dataSource.register(EosdbDataSource)
        _REGISTERED.add(spark)


def read(spark: SparkSession, path: Paths, **options: object) -> DataFrame:
    """Return committed records as a DataFrame. The options are those of Spark's Kafka connector, such as
    `subscribe="orders"`, `startingOffsets="earliest"`, `includeHeaders=True`.

    Offsets are fixed when Spark first plans the query, in one snapshot of each file, and Spark keeps that
    plan. To read records appended later, call `read` again.
    """
    _register_source(spark)
    given = {**_of_session(spark), **_option_texts(options)}
    reader: DataFrameReader = spark.read.format("eosdb").options(**given)
    with explained(spark), active(spark):
        return reader.load(_paths(path))


def read_stream(spark: SparkSession, path: Paths, **options: object) -> DataFrame:
    """Return committed records as a stream. Takes the options of `read`, and `maxOffsetsPerTrigger`.

    With `groupId`, the query's progress is committed as offsets of that group, so that `eosdb groups
    describe` shows its lag.
    """
    _register_source(spark)
    given = {**_of_session(spark), **_option_texts(options)}
    reader: DataStreamReader = spark.readStream.format("eosdb").options(**given)
    single = _paths(path)
    if isinstance(single, str):
        with explained(spark), active(spark):
            return reader.load(single)
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
    """Append the rows to the file atomically. The report has the number of appended rows, or the reason why
    none were.

    Columns: `value`, and any of `key`, `topic`, `partition`, `headers`, `timestamp`.

    A job that may be repeated names itself by `txn_app_id` and its run by `txn_version`, which must
    increase: rows already written under the same pair are skipped. Several writes under one pair must go to
    different topics, or each needs its own option `writeName`. In a function for `foreachBatch` a repeated
    write is recognized by the micro-batch and the order of the calls, and in threads that end before it
    returns by its rows.
    """
    spark = frame.sparkSession
    _register_source(spark)
    query = query_of(spark)
    named = {"topic": topic, "txnAppId": txn_app_id, "txnVersion": txn_version}
    given = _option_texts(
        {**options, **{name: value for name, value in named.items() if value is not None}}
    )
    lower = {name.lower(): value for name, value in given.items()}
    if query.batch is not None and query.id is None and txn_app_id is None:
        raise micro_batch.unknown()
    place = json.dumps([query.id, *map(lower.get, _WRITES)])
    run = query.run, query.batch
    if query.id is not None and query.batch is not None:
        calls = _CALLS.of(place, run)
        given["microBatch"] = MicroBatch(
            query.id, query.batch, query.run, query.checkpoint, query.is_its_thread, calls
        ).to_text()
    with tempfile.TemporaryDirectory(prefix="eosdb-write-") as folder:
        given["report"] = os.path.join(folder, "report.json")
        with explained(spark), active(spark):
            frame.write.format("eosdb").options(**given).mode("append").save(absolute(path))
        result, call = micro_batch.of_file(given["report"])
    if call is not None:
        _CALLS.add(place, run, call)
    result.say(path)
    return result


def foreach_batch(
    path: str | os.PathLike[str],
    topic: str | None = None,
    *,
    sink_id: str | None = None,
    **options: object,
) -> Callable[[DataFrame, int], None]:
    """Return a function for `writeStream.foreachBatch` that appends each micro-batch exactly once. The
    driver holds the batch in memory. This sink has the lowest latency.

    Several calls in one micro-batch are different writes, but the same rows to the same topic count as a
    repeat, unless option `writeName` tells them apart. `sink_id` names the query and its checkpoint; the
    default is Spark's query id.
    """
    given = {"path": absolute(path), **_option_texts(options)}
    if topic is not None:
        given["topic"] = topic

    def append(frame: DataFrame, batch_id: int) -> None:
        # Spark Connect sends only the name of `_append`, so the counter of calls stays in this process.
        _append(frame, batch_id, given, sink_id)

    return append


def _append(frame: DataFrame, batch_id: int, given: dict[str, str], sink_id: str | None) -> None:
    types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    options = parse(given, types)
    query = query_of(frame.sparkSession)
    owner = sink_id or query.id
    if owner is None:
        raise SparkOptionError(
            "this session does not provide the query id: use foreach_batch in writeStream.foreachBatch, or "
            "give a sink_id, one for each query and checkpoint"
        )
    batches = [as_bytes(batch) for batch in frame.toArrow().to_batches()]
    rows = writes.rows_of(batches)
    sink = writes.sink_of(owner, options.which)
    topics = writes.topics_of(batches) if options.topic is None else {options.topic}
    run = query.run, batch_id
    place = f"{query.id} {sink}"
    calls = _CALLS.of(place, run)
    this = MicroBatch(owner, batch_id, query.run, query.checkpoint, query.is_its_thread, calls)
    # In another thread the order of the calls is unknown, and only the rows show if a call is a repeat.
    plan = writes.plan_of(query.checkpoint, query.id, batch_id) if query.is_its_thread else None
    is_numbered = query.is_its_thread and sink_id is None
    content = writes.Content(batches, rows, topics, plan, this.notes, is_numbered)
    last_write = writes.last_write_of(query.checkpoint, sink)
    with eosdb.connect(options.path, create=False) as db:
        result, call = this.bring(
            lambda order: writes.bring_in(
                db,
                writes.sink_of(owner, options.which, order),
                batch_id,
                Outgoing(db, options),
                content,
                last_write,
            ),
            db.broker.cluster_id(),
            str(rows),
            lambda order: writes.is_taken(
                db, writes.sink_of(owner, options.which, order), batch_id
            ),
        )
    _CALLS.add(place, run, call)
    micro_batch.of_result(result, sink, batch_id, rows.size).say(options.path)


def snapshot(path: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Publish a copy of a live file for readers on other hosts, replacing the previous copy.

    SQLite's WAL works on one host only, so over a network open such a copy, never the live file.
    """
    with eosdb.connect(path, read_only=True) as db:
        db.publish_copy(target)


def skipped_files(path: Paths) -> list[SkippedFile]:
    """Return the `path` and `reason` of each file that a reader of `path` skips: files that
    `ignoreCorruptFiles` and `ignoreMissingFiles` allow to skip, and older copies of files that are read.

    Opens each file once, as planning does. It does not find damaged records; `eosdb verify` does. Raises
    SparkOptionError for a path that matches nothing, and for copies of one file that have diverged.
    """
    both = {"ignoreCorruptFiles": "true", "ignoreMissingFiles": "true"}
    return list(Lens(_paths(path), reading_options.parse(both, streaming=False)).cut().skipped)


def _of_session(spark: SparkSession) -> dict[str, str]:
    """Read the session's settings for all file sources; options take precedence."""
    settings = {name: spark.conf.get(f"spark.sql.files.{name}", None) for name in _SESSION}
    return {name: value for name, value in settings.items() if value is not None}


def _option_texts(options: dict[str, object]) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
    }


def _paths(path: Paths) -> str | list[str]:
    if isinstance(path, str | os.PathLike):
        return absolute(path)
    return [absolute(item) for item in path]
