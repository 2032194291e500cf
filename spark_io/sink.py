"""The exactly-once sink: tasks stage their rows in files of their own, the driver's commit brings them in.

What Spark repeats, retries or speculates leaves files that nobody names. The commit goes through
`Database.append_once`: all rows of a batch become readable together, with the proof that they are there,
and a batch that Spark replays after a crash is skipped. (Its sink for Kafka is at-least-once.)
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

import eosdb

from .errors import SparkOptionError
from .outgoing import Outgoing, WriteOptions, as_bytes, parse

_SUFFIX = ".arrow"
_ORPHAN_MS = 24 * 3600 * 1000
"""After a day nobody is going to name a staged file any more."""


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What a task says when it has staged its rows. `path` is None when it had none."""

    path: str | None
    task: int
    query_id: str | None


def stage(batches: Iterator[pa.RecordBatch], options: WriteOptions) -> Staged:
    """Write the rows to a file that only this attempt knows, durably, and say where."""
    context = TaskContext.get()
    task = 0 if context is None else context.partitionId()
    query_id = None if context is None else context.getLocalProperty("sql.streaming.queryId")
    path = os.path.join(options.staging, f"{uuid.uuid4().hex}{_SUFFIX}")
    writer: pa.ipc.RecordBatchFileWriter | None = None
    with contextlib.ExitStack() as cleanup:
        for batch in map(as_bytes, batches):
            if not batch.num_rows:
                continue
            if writer is None:
                os.makedirs(options.staging, exist_ok=True)
                cleanup.callback(_sync, path)
                sink = cleanup.enter_context(open(path, "wb"))
                writer = cleanup.enter_context(pa.ipc.new_file(sink, batch.schema))
            writer.write_batch(batch)
    return Staged(None if writer is None else path, task, query_id)


def bring_in(
    options: WriteOptions, messages: Sequence[object], sink_id: str, batch_id: int
) -> eosdb.AppendOnceResult:
    """Append what the named files hold, in the order of Spark's partitions, unless it is there already."""
    staged = sorted(
        (m for m in messages if isinstance(m, Staged) and m.path is not None), key=lambda m: m.task
    )
    with eosdb.connect(options.path, create=False) as db:
        outgoing = Outgoing(db, options)
        result = db.append_once(
            sink_id,
            batch_id,
            (pair for one in staged for pair in outgoing.pairs(_read(str(one.path)))),
        )
        _sweep(options.staging, db.clock.time_ms())
    discard(messages)
    return result


def discard(messages: Sequence[object]) -> None:
    """Remove staged files that nobody will ask for again. What has been brought in stays."""
    for message in messages:
        if isinstance(message, Staged) and message.path is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(message.path)
            with contextlib.suppress(OSError):  # Others may be staging.
                os.rmdir(os.path.dirname(message.path))


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("eosdb")`. With txnAppId and txnVersion a job that is run again appends nothing."""

    def __init__(
        self, given: MutableMapping[str, str], schema: StructType, overwrite: bool
    ) -> None:
        if overwrite:
            raise SparkOptionError('a log is only appended to; write with mode("append")')
        self._options = parse(given, _types(schema))
        # Made in the driver and carried to the tasks and back, so it is the same for all attempts.
        self._own_id = f"spark-batch:{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return stage(iterator, self._options)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        options = self._options
        if options.sink_id is not None and options.batch_id is not None:
            bring_in(options, messages, options.sink_id, options.batch_id)
        else:
            bring_in(options, messages, self._own_id, 0)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        discard(messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("eosdb")`: the sink is the query, so each of its batches is in once."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._options = parse(given, _types(schema))
        if self._options.batch_id is not None:
            raise SparkOptionError(
                "options txnAppId and txnVersion are for batches; a stream numbers its own"
            )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return stage(iterator, self._options)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        query_ids = {m.query_id for m in messages if isinstance(m, Staged) and m.query_id}
        sink_id = self._options.sink_id or next(iter(query_ids), None)
        if sink_id is None:
            if any(isinstance(m, Staged) and m.path is not None for m in messages):
                raise SparkOptionError(
                    "Spark does not tell the query's id here; name the sink by option sinkId, one for each "
                    "query and checkpoint"
                )
            return  # No task has said anything: there is nothing to bring in.
        bring_in(self._options, messages, f"spark:{sink_id}", batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        discard(messages)


def _types(schema: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema.fields}


def _read(path: str) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(path) as source, pa.ipc.open_file(source) as reader:
        for i in range(reader.num_record_batches):
            yield reader.get_batch(i)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sweep(folder: str, now_ms: int) -> None:
    """Files of attempts that failed, or of drivers that died, a day ago."""
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(folder):
            old = entry.stat().st_mtime * 1000 < now_ms - _ORPHAN_MS
            if entry.name.endswith(_SUFFIX) and old:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(entry.path)
