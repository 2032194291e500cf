"""The exactly-once sink: tasks stage their rows in files, and the driver's commit appends them.

Files of repeated, failed or speculative tasks are ignored, because the commit names the files to append. It
calls `Database.append_once`, which stores all rows of a batch and the batch's id atomically, and
skips a batch that Spark replays after a crash if its content is the same. (Spark's own Kafka sink is
at-least-once.)
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

import eosdb
from eosdb.errors import BatchDiffersError
from eosdb.spark_io.planning.errors import OtherTargetError, SparkOptionError

from . import staging
from .last_write import LastWrite, last_write_of
from .outgoing import Outgoing, WriteOptions, as_bytes, parse
from .report import WriteReport, left_out, of_result
from .staging import Write
from .writes import (
    Content,
    Rows,
    bring_in,
    bring_in_some_order,
    plan_of,
    rows_of,
    sink_of,
    topics_of,
    total,
)


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """A task's message that its rows are staged. `path` is None if there were no rows."""

    path: str | None
    task: int
    query_id: str | None
    batch_id: str | None
    rows: Rows
    write: Write
    topics: frozenset[str]


def stage(
    batches: Iterator[pa.RecordBatch], options: WriteOptions, own_id: str | None = None
) -> Staged:
    """Write the rows to a new file, and return the message for the commit. `own_id` distinguishes several
    writes of one micro-batch."""
    context = TaskContext.get()
    task = 0 if context is None else context.partitionId()
    query_id, batch_id = (
        None if context is None else context.getLocalProperty(name)
        for name in ("sql.streaming.queryId", "streaming.sql.batchId")
    )
    if options.micro_batch is not None:  # Spark sets no properties in threads of the user.
        query_id, batch_id = options.micro_batch[0], str(options.micro_batch[1])
    write = _write(options, query_id, batch_id, own_id)
    parts = [Rows()]
    topics = set() if options.topic is None else {options.topic}
    full = (batch for batch in map(as_bytes, batches) if batch.num_rows)
    path = None
    with staging.alive(options.staging, write):
        if (first := next(full, None)) is not None:
            sync = options.is_shared  # The host of the task may fail while the driver's runs on.
            with staging.new_file(options.staging, write, first.schema, sync=sync) as (path, file):
                for batch in chain([first], full):
                    file.write_batch(batch)
                    parts.append(rows_of([batch]))
                    if options.topic is None:
                        topics |= topics_of([batch])
    return Staged(path, task, query_id, batch_id, total(parts), write, frozenset(topics))


def _write(
    options: WriteOptions, query_id: str | None, batch_id: str | None, own_id: str | None
) -> Write:
    if options.app_id is not None and options.version is not None:
        return Write.of(sink_of(options.app_id, options.which), options.version)
    if query_id is not None and batch_id is not None:
        return Write.of(query_id, int(batch_id), own_id or "")
    return Write.of(own_id or uuid.uuid4().hex, 0)


def bring(
    options: WriteOptions,
    staged: Sequence[Staged],
    batch_id: int,
    sink_id: str,
    plan: str | None = None,
    last_write: LastWrite | None = None,
    *,
    consecutive: bool = False,
) -> eosdb.AppendOnceResult:
    """Append the staged rows, in the order of Spark's partitions, unless this batch is already stored.
    Raises BatchDiffersError if a different batch is stored under its id."""
    files = [m.path for m in sorted(staged, key=lambda m: m.task) if m.path is not None]
    content = Content(
        lambda: chain.from_iterable(map(staging.read, files)),
        total(m.rows for m in staged),
        frozenset().union(*(m.topics for m in staged)),
        plan,
    )
    with contextlib.ExitStack() as cleanup:
        for write in {m.write for m in staged}:
            cleanup.enter_context(staging.alive(options.staging, write))
        db = cleanup.enter_context(eosdb.connect(options.path, create=False))
        outgoing = Outgoing(db, options)
        result = bring_in(
            db, sink_id, batch_id, outgoing, content, last_write, consecutive=consecutive
        )
        discard(staged)
        for write in {m.write for m in staged}:
            staging.sweep(options.staging, write, db.clock.time_ms())
    return result


def discard(messages: Sequence[object]) -> None:
    """Remove the staged files of these messages."""
    for message in _staged(messages):
        if message.path is not None:
            staging.discard(message.path)


def _staged(messages: Sequence[object]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]


class BatchWriter(DataSourceArrowWriter):
    """The writer of `df.write.format("eosdb")`. A repeated job with txnAppId and txnVersion appends
    nothing, and neither does a replayed micro-batch in foreachBatch."""

    def __init__(
        self, given: MutableMapping[str, str], schema: StructType, overwrite: bool
    ) -> None:
        if overwrite:
            raise SparkOptionError('a log is only appended to; write with mode("append")')
        self._options = parse(given, _types(schema))
        # Created in the driver and pickled for the tasks, so that all attempts share it.
        self._own_id = f"spark-batch:{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return stage(iterator, self._options, self._own_id)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        options, staged = self._options, _staged(messages)
        query_id = next((m.query_id for m in staged if m.query_id), None)
        batch_id = next((m.batch_id for m in staged if m.batch_id), None)
        if options.app_id is not None and options.version is not None:
            sink_id = sink_of(options.app_id, options.which)
            report = self._of_a_job(staged, sink_id, options.version, is_query=query_id is not None)
        elif query_id is not None and batch_id is not None:
            report = self._within_a_micro_batch(staged, query_id, int(batch_id))
        else:
            report = self._report(bring(options, staged, 0, self._own_id), staged, self._own_id, 0)
        if options.report is not None:
            report.to_file(options.report)
        else:
            report.say(options.path)

    def _of_a_job(
        self, staged: Sequence[Staged], sink_id: str, version: int, *, is_query: bool
    ) -> WriteReport:
        try:
            last_write = self._last_write(sink_id)
            result = bring(self._options, staged, version, sink_id, last_write=last_write)
        except OtherTargetError:
            raise
        except BatchDiffersError as error:
            # Outside of a query, versions increase, so an older one is obsolete.
            if is_query or error.newest == version:
                raise
            discard(staged)
            return left_out(
                total(m.rows for m in staged).size,
                f"txnVersion {version} is older than {error.newest}, the newest of this txnAppId",
            )
        return self._report(result, staged, sink_id, version)

    def _within_a_micro_batch(
        self, staged: Sequence[Staged], query_id: str, batch_id: int
    ) -> WriteReport:
        """Append under the first number that no other write of this micro-batch has taken: the order of the
        calls is unknown here."""
        options, which = self._options, f"df.write {self._options.which}"
        last_write = self._last_write(sink_of(query_id, which))
        result = bring_in_some_order(
            lambda order: bring(
                options, staged, batch_id, sink_of(query_id, which, order), last_write=last_write
            ),
            batch_id,
        )
        return self._report(result, staged, sink_of(query_id, which), batch_id)

    def _last_write(self, sink_id: str) -> LastWrite | None:
        """Return the sink's state in the query's checkpoint, which only `write` knows."""
        options = self._options
        checkpoint = options.checkpoint if options.micro_batch is not None else None
        return last_write_of(checkpoint, options.path, sink_id)

    def _report(
        self, result: eosdb.AppendOnceResult, staged: Sequence[Staged], sink_id: str, batch_id: int
    ) -> WriteReport:
        return of_result(result, sink_id, batch_id, total(m.rows for m in staged).size)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        discard(messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """The writer of `df.writeStream.format("eosdb")`, which appends each batch of the query exactly
    once."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._options = parse(given, _types(schema))
        if self._options.app_id is not None or self._options.name is not None:
            raise SparkOptionError(
                "options txnAppId, txnVersion and writeName are for batches; a stream numbers its own"
            )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return stage(iterator, self._options)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        options, staged = self._options, _staged(messages)
        query_id = next((m.query_id for m in staged if m.query_id), None)
        owner = options.sink_id or query_id
        if owner is None:
            if any(m.path is not None for m in staged):
                raise SparkOptionError(
                    "Spark does not provide the query id here; set option sinkId, one for each "
                    "query and checkpoint"
                )
            return  # No task has staged rows.
        plan = plan_of(options.checkpoint, query_id, batchId)
        sink_id = sink_of(owner)
        last_write = last_write_of(options.checkpoint, options.path, sink_id)
        # Spark commits every micro-batch, even without rows, so batch ids are consecutive.
        result = bring(options, staged, batchId, sink_id, plan, last_write, consecutive=True)
        rows = total(m.rows for m in staged).size
        of_result(result, sink_id, batchId, rows).say(options.path)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        discard(messages)


def _types(schema: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema.fields}
