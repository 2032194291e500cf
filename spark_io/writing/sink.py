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
from typing import Final

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
from .last_write import LastWrite, checkpoint_of, last_write_of
from .micro_batch import Call, MicroBatch
from .outgoing import Outgoing, WriteOptions, as_bytes, parse
from .report import WriteReport, left_out, of_result
from .staging import Write
from .targets import Targets, targets_of
from .writes import (
    Content,
    Rows,
    bring_in,
    is_taken,
    plan_of,
    rows_of,
    sink_of,
    topics_of,
    total,
)

_OF_TASK: Final = (
    "sql.streaming.queryId",
    "streaming.sql.batchId",
    "spark.jobGroup.id",
    "spark.sql.streaming.checkpointLocation",
)
"""Of a query's tasks: the query, its micro-batch, its run, and the session's folder of checkpoints."""


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
    run: str | None = None
    checkpoints: str | None = None


def stage(
    batches: Iterator[pa.RecordBatch],
    options: WriteOptions,
    targets: Targets,
    own_id: str | None = None,
) -> Staged:
    """Write the rows to a new file, and return the message for the commit. `own_id` distinguishes several
    writes of one micro-batch. Raises SparkOptionError for a row that its topic does not take."""
    context = TaskContext.get()
    task = 0 if context is None else context.partitionId()
    query_id, batch_id, run, checkpoints = (
        None if context is None else context.getLocalProperty(name) for name in _OF_TASK
    )
    if options.micro_batch is not None:  # Spark sets no properties in threads of the user.
        this = MicroBatch.of_text(options.micro_batch)
        query_id, batch_id, run = this.query_id, str(this.batch_id), this.run
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
                    targets.check(batch)
                    file.write_batch(batch)
                    parts.append(rows_of([batch]))
                    if options.topic is None:
                        topics |= topics_of([batch])
    return Staged(
        path, task, query_id, batch_id, total(parts), write, frozenset(topics), run, checkpoints
    )


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
    last_write: LastWrite | None = None,
    *,
    plan: str | None = None,
    notes: tuple[str, ...] = (),
    is_numbered: bool = False,
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
        notes,
        is_numbered,
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
        self._targets = targets_of(self._options, schema.fieldNames())
        # Created in the driver and pickled for the tasks, so that all attempts share it.
        self._own_id = f"spark-batch:{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return stage(iterator, self._options, self._targets, self._own_id)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        options, staged = self._options, _staged(messages)
        this, call = self._micro_batch(staged), None
        if options.app_id is not None and options.version is not None:
            sink_id = sink_of(options.app_id, options.which)
            report, call = self._of_a_job(staged, sink_id, options.version, this)
        elif this is not None:
            report, call = self._within_a_micro_batch(staged, this)
        else:
            report = self._report(bring(options, staged, 0, self._own_id), staged, self._own_id, 0)
        if options.report is not None:
            report.to_file(options.report, call)
        else:
            report.say(options.path)

    def _micro_batch(self, staged: Sequence[Staged]) -> MicroBatch | None:
        """Return the micro-batch: as `write` knows it, or what the tasks know."""
        if self._options.micro_batch is not None:
            return MicroBatch.of_text(self._options.micro_batch)
        for m in staged:
            if m.query_id and m.batch_id:
                checkpoint = checkpoint_of(m.checkpoints, None, m.query_id)
                return MicroBatch(m.query_id, int(m.batch_id), m.run, checkpoint)
        return None

    def _of_a_job(
        self, staged: Sequence[Staged], sink_id: str, version: int, this: MicroBatch | None
    ) -> tuple[WriteReport, Call | None]:
        call = plan = None
        rows = total(m.rows for m in staged)
        if this is not None:
            call = Call(_file_id(self._options.path), str(rows), 0)
            # Another write of one run is no replay of the first: then only the rows may match.
            others = any(one != call for one in this.calls if one.file_id == call.file_id)
            plan = this.plan if this.is_in_order and not others else None
        try:
            last_write = self._last_write(sink_id, this)
            result = bring(self._options, staged, version, sink_id, last_write, plan=plan)
        except OtherTargetError:
            raise
        except BatchDiffersError as error:
            # Outside of a query, versions increase, so an older one is obsolete.
            if this is not None or error.newest == version:
                raise
            discard(staged)
            return left_out(
                rows.size,
                f"txnVersion {version} is older than {error.newest}, the newest of this txnAppId",
            ), None
        return self._report(result, staged, sink_id, version), call

    def _within_a_micro_batch(
        self, staged: Sequence[Staged], this: MicroBatch
    ) -> tuple[WriteReport, Call]:
        options, which = self._options, f"df.write {self._options.which}"
        sink_id = sink_of(this.query_id, which)
        last_write = self._last_write(sink_id, this)
        result, call = this.bring(
            lambda order: bring(
                options,
                staged,
                this.batch_id,
                sink_of(this.query_id, which, order),
                last_write,
                plan=this.plan if this.is_in_order else None,
                notes=this.notes,
                is_numbered=this.is_in_order,
            ),
            _file_id(options.path),
            str(total(m.rows for m in staged)),
            lambda order: _is_taken(options.path, sink_of(this.query_id, which, order), this),
        )
        return self._report(result, staged, sink_id, this.batch_id), call

    def _last_write(self, sink_id: str, this: MicroBatch | None) -> LastWrite | None:
        """Return the sink's state in the query's checkpoint."""
        if this is None:
            return None
        return last_write_of(this.checkpoint, self._options.path, sink_id)

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
        self._targets = targets_of(self._options, schema.fieldNames())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return stage(iterator, self._options, self._targets)

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
        location = next((m.checkpoints for m in staged if m.checkpoints), None)
        checkpoint = options.checkpoint or checkpoint_of(location, options.query_name, query_id)
        sink_id = sink_of(owner)
        result = bring(
            options,
            staged,
            batchId,
            sink_id,
            last_write_of(checkpoint, options.path, sink_id),
            plan=plan_of(checkpoint, query_id, batchId),
            is_numbered=options.sink_id is None,
            # Spark commits every micro-batch, even without rows, so batch ids are consecutive.
            consecutive=True,
        )
        rows = total(m.rows for m in staged).size
        of_result(result, sink_id, batchId, rows).say(options.path)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        discard(messages)


def _file_id(path: str) -> str:
    with eosdb.connect(path, read_only=True) as db:
        return db.broker.cluster_id()


def _is_taken(path: str, sink_id: str, this: MicroBatch) -> bool:
    with eosdb.connect(path, read_only=True) as db:
        return is_taken(db, sink_id, this.batch_id)


def _types(schema: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema.fields}
