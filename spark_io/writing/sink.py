"""The exactly-once sink: tasks stage their rows in files, and the driver's commit appends them.

The commit names the files to append, so files of repeated, failed or speculative tasks are ignored. It
calls `Database.append_once`, which stores all rows of a batch and the batch's id atomically, and skips a
batch that Spark replays after a crash if its content is the same. (Spark's own Kafka sink is
at-least-once.)

The name of a staged file identifies its write. A commit removes other files of its write and of earlier
batches, which failed or speculative attempts or a killed driver have left. A row that its topic rejects
fails in the first task that reads it, before it is staged.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import uuid
from collections.abc import Collection, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.types import StructType

import eosdb
from eosdb.admin.tools import Tools
from eosdb.errors import BatchDiffersError, SchemaOutOfDateError
from eosdb.model.damage import parsed
from eosdb.model.threads import Thread
from eosdb.spark_io.planning.errors import OtherTargetError, SparkOptionError
from eosdb.spark_io.writing import connect, micro_batch, writes
from eosdb.spark_io.writing.micro_batch import Call, MicroBatch, WriteReport, left_out, of_result
from eosdb.spark_io.writing.outgoing import Outgoing, WriteOptions, as_bytes, parse
from eosdb.system.road import sync_path


@dataclass(frozen=True)
class SinkTopic:
    partitions: int
    is_compacted: bool


@dataclass(frozen=True)
class Targets:
    """The file, option topic, and the topics by name. The topics are None if an older schema hides them."""

    path: str
    topic: str | None
    topics: Mapping[str, SinkTopic] | None

    def check(self, batch: pa.RecordBatch) -> None:
        """Raises SparkOptionError for a row that cannot be a record of its topic."""
        if self.topics is None:
            return
        names = batch.schema.names
        if "headers" in names and batch.column("headers").flatten().field("key").null_count:
            raise self._refused("has a header without a key")
        for name, rows in self._by_topic(batch):
            topic = self.topics.get(name)
            if topic is None:
                raise self._refused(f"is for topic {name!r}, which does not exist")
            if topic.is_compacted and ("key" not in names or rows.column("key").null_count):
                raise self._refused(f"has no key, and topic {name} is compacted")
            if "partition" in names:
                least, most = pc.min_max(rows.column("partition")).as_py().values()
                wrong = least if least is not None and least < 0 else most
                if wrong is not None and not 0 <= wrong < topic.partitions:
                    raise self._refused(
                        f"is for partition {wrong} of topic {name}, which has {topic.partitions}, "
                        "counted from 0"
                    )

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self.topic is not None:
            yield self.topic, batch
            return
        column = batch.column("topic")
        if column.null_count:
            raise self._refused("has no topic, and option topic names none")
        for name in column.unique().to_pylist():
            yield name, batch.filter(pc.equal(column, name))

    def _refused(self, why: str) -> SparkOptionError:
        return SparkOptionError(f"{self.path}: a row {why}; nothing of this write was appended")


def targets_of(options: WriteOptions, columns: Collection[str]) -> Targets:
    """Check the target before the job. Raises SparkOptionError for a published copy and for a compacted
    topic without column key, DatabaseNotFoundError and UnknownTopicOrPartitionError."""
    path, topic = options.path, options.topic
    try:
        with eosdb.connect(path, read_only=True) as db:
            if db.is_published:
                raise SparkOptionError(
                    f"{path} is a published copy, which never changes; write to the original file"
                )
            names = db.admin.list_topics() if topic is None else [topic]
            topics = {
                name: SinkTopic(
                    db.broker.topic(name, may_create=False).partitions,
                    Tools(db.admin).topic_config(name).compact,
                )
                for name in names
            }
    except SchemaOutOfDateError:
        return Targets(path, topic, None)  # The file is older; the commit will upgrade it.
    if topic is not None and topics[topic].is_compacted and "key" not in columns:
        raise SparkOptionError(f"{path}: topic {topic} is compacted: add a column key")
    return Targets(path, topic, topics)


_SUFFIX: Final = ".arrow"
_ORPHAN_MS: Final = 3600 * 1000
"""A staged file is an orphan this long after the last sign of life of its write."""
_SIGN_S: Final = 300.0
"""How often running tasks and commits renew the times of their files."""


class SinkWrite(NamedTuple):
    """The write of a staged file: a job, the number of a batch, and the write's name within the batch."""

    job: str
    batch: int
    name: str

    @classmethod
    def of(cls, owner: str, batch: int, name: str = "") -> SinkWrite:
        return cls(*(_short(owner), batch, _short(name)))

    def makes_useless(self, other: SinkWrite) -> bool:
        """Whether the other write's files are useless once this write is committed."""
        return self.job == other.job and (other.batch < self.batch or other == self)

    def __str__(self) -> str:
        return f"{self.job}.{self.batch}.{self.name}"


def _short(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()


def _write_of(file: str) -> SinkWrite | None:
    """Parse the name of a staged file; None if another program named the file."""
    match file.split("."):
        case [job, batch, name, _, _] if batch.isdigit():
            return SinkWrite(job, int(batch), name)
    return None


@contextlib.contextmanager
def new_file(
    folder: str, write: SinkWrite, schema: pa.Schema, *, sync: bool
) -> Iterator[tuple[str, pa.ipc.RecordBatchFileWriter]]:
    """Context manager: a new file, as its path and a writer. The file is removed if the block raises."""
    path = os.path.join(folder, f"{write}.{uuid.uuid4().hex}{_SUFFIX}")
    with contextlib.ExitStack() as cleanup:
        sink = None
        while sink is None:
            os.makedirs(folder, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # A commit may have removed the folder.
                sink = cleanup.enter_context(open(path, "wb"))
        try:
            yield path, cleanup.enter_context(pa.ipc.new_file(sink, schema))
            cleanup.pop_all().close()
            if sync:
                sync_path(path)
        except BaseException:
            _remove(path)
            raise


def read(path: str) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(path) as source, pa.ipc.open_file(source) as reader:
        for i in range(reader.num_record_batches):
            yield reader.get_batch(i)


@contextlib.contextmanager
def alive(folder: str, write: SinkWrite) -> Iterator[None]:
    """Context manager: until it exits, no file of the write becomes an orphan, even if its task has
    ended."""
    ended = threading.Event()

    def say_so() -> None:
        while not ended.wait(_SIGN_S):
            for path in _files(folder):
                if _write_of(os.path.basename(path)) == write:
                    with contextlib.suppress(OSError):
                        os.utime(path)

    thread = Thread("the staged files", "eosdb-staged-files", say_so)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def sweep(folder: str, done: SinkWrite, now_ms: int) -> None:
    """Remove orphans, the files that the commit of `done` made useless, and the folder if it is then
    empty."""
    for path in _files(folder):
        other = _write_of(os.path.basename(path))
        with contextlib.suppress(FileNotFoundError):
            is_orphan = os.stat(path).st_mtime * 1000 < now_ms - _ORPHAN_MS
            if is_orphan or (other is not None and done.makes_useless(other)):
                os.unlink(path)
    with contextlib.suppress(OSError):  # Other writers may still use the folder.
        os.rmdir(folder)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(path))


def _files(folder: str) -> list[str]:
    with contextlib.suppress(FileNotFoundError):
        names = sorted(os.listdir(folder))
        return [os.path.join(folder, name) for name in names if name.endswith(_SUFFIX)]
    return []


_OF_TASK: Final = (
    "sql.streaming.queryId",
    "streaming.sql.batchId",
    "spark.jobGroup.id",
    writes.LOCATION,
    connect.QUERY,
    "spark.sql.streaming.offsetLog.formatVersion",
)
"""Properties of a task: its query, micro-batch and run, the session's folder of checkpoints, and settings
of a session that Spark has cloned for a query."""


@dataclass(frozen=True)
class Staged(datasource.WriterCommitMessage):
    """A task's message that its rows are staged. `path` is None if it has no rows."""

    path: str | None
    task: int
    query_id: str | None
    batch_id: str | None
    rows: writes.StagedRows
    write: SinkWrite
    topics: frozenset[str]
    run: str | None = None
    checkpoints: str | None = None
    connected: str | None = None
    clone: str | None = None


def stage(
    batches: Iterator[pa.RecordBatch],
    options: WriteOptions,
    targets: Targets,
    own_id: str | None = None,
) -> Staged:
    """Write the rows to a new file, and return the message for the commit. `own_id` distinguishes several
    writes of one micro-batch. Raises SparkOptionError for a row that its topic rejects."""
    context = TaskContext.get()
    task = 0 if context is None else context.partitionId()
    query_id, batch_id, run, checkpoints, connected, clone = (
        None if context is None else context.getLocalProperty(name) for name in _OF_TASK
    )
    if options.micro_batch is not None:  # The user's threads have no local properties of Spark.
        this = MicroBatch.of_text(options.micro_batch)
        query_id, batch_id, run = this.query_id, str(this.batch_id), this.run
    write = _write(options, query_id, batch_id, own_id)
    parts = [writes.StagedRows()]
    topics = set() if options.topic is None else {options.topic}
    full = (batch for batch in map(as_bytes, batches) if batch.num_rows)
    path = None
    with alive(options.staging, write):
        if (first := next(full, None)) is not None:
            sync = options.is_shared  # The file must survive a failure of the task's host.
            with new_file(options.staging, write, first.schema, sync=sync) as (path, file):
                for batch in chain([first], full):
                    targets.check(batch)
                    file.write_batch(batch)
                    parts.append(writes.rows_of([batch]))
                    if options.topic is None:
                        topics |= writes.topics_of([batch])
    return Staged(
        path,
        task,
        query_id,
        batch_id,
        writes.total(parts),
        write,
        frozenset(topics),
        run,
        checkpoints,
        connected,
        clone,
    )


def _write(
    options: WriteOptions, query_id: str | None, batch_id: str | None, own_id: str | None
) -> SinkWrite:
    if options.app_id is not None and options.version is not None:
        return SinkWrite.of(writes.sink_of(options.app_id, options.which), options.version)
    if query_id is not None and batch_id is not None:
        return SinkWrite.of(query_id, int(batch_id), own_id or "")
    return SinkWrite.of(own_id or uuid.uuid4().hex, 0)


def bring(
    options: WriteOptions,
    staged: Sequence[Staged],
    batch_id: int,
    sink_id: str,
    last_write: writes.LastWrite | None = None,
    *,
    plan: str | None = None,
    notes: tuple[str, ...] = (),
    is_numbered: bool = False,
    consecutive: bool = False,
) -> eosdb.AppendOnceResult:
    """Append the staged rows, in the order of Spark's partitions, unless this batch is already stored.
    Raises BatchDiffersError if a different batch is stored under its id."""
    files = [m.path for m in sorted(staged, key=lambda m: m.task) if m.path is not None]
    content = writes.Content(
        chain.from_iterable(map(read, files)),
        writes.total(m.rows for m in staged),
        frozenset().union(*(m.topics for m in staged)),
        plan,
        notes,
        is_numbered,
    )
    with contextlib.ExitStack() as cleanup:
        for write in {m.write for m in staged}:
            cleanup.enter_context(alive(options.staging, write))
        db = cleanup.enter_context(eosdb.connect(options.path, create=False))
        outgoing = Outgoing(db, options)
        result = writes.bring_in(
            db, sink_id, batch_id, outgoing, content, last_write, consecutive=consecutive
        )
        discard(staged)
        for write in {m.write for m in staged}:
            sweep(options.staging, write, db.clock.time_ms())
    return result


def discard(messages: Sequence[object]) -> None:
    for message in _staged(messages):
        if message.path is not None:
            _remove(message.path)


def _staged(messages: Sequence[object]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]


class BatchWriter(datasource.DataSourceArrowWriter):
    """The writer of `df.write.format("eosdb")`. A repeated job with txnAppId and txnVersion appends
    nothing, and a replayed micro-batch in foreachBatch appends nothing either."""

    def __init__(
        self, given: MutableMapping[str, str], schema: StructType, overwrite: bool
    ) -> None:
        if overwrite:
            raise SparkOptionError('a log can only be appended to; write with mode("append")')
        self._options = parse(given, _types(schema))
        self._targets = targets_of(self._options, schema.fieldNames())
        # Made in the driver and pickled into each task, so that repeated tasks have the same id.
        self._own_id = f"spark-batch:{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> datasource.WriterCommitMessage:
        return stage(iterator, self._options, self._targets, self._own_id)

    def commit(self, messages: Sequence[datasource.WriterCommitMessage | None]) -> None:
        options, staged = self._options, _staged(messages)
        this, call = self._micro_batch(staged), None
        if options.app_id is not None and options.version is not None:
            sink_id = writes.sink_of(options.app_id, options.which)
            report, call = self._of_a_job(staged, sink_id, options.version, this)
        elif this is not None:
            report, call = self._within_a_micro_batch(staged, this)
        elif any(m.clone for m in staged):
            raise micro_batch.unknown()
        else:
            report = self._report(bring(options, staged, 0, self._own_id), staged, self._own_id, 0)
        if options.report is not None:
            report.to_file(options.report, call)
        else:
            report.say(options.path)

    def _micro_batch(self, staged: Sequence[Staged]) -> MicroBatch | None:
        """The micro-batch of the write, from `write` or from the tasks; None outside of one."""
        if self._options.micro_batch is not None:
            return MicroBatch.of_text(self._options.micro_batch)
        for m in staged:
            if m.query_id and m.batch_id:
                checkpoint = writes.checkpoint_of(m.checkpoints, None, m.query_id)
                return MicroBatch(m.query_id, int(m.batch_id), m.run, checkpoint)
            query_id, run, checkpoint = parsed(m.connected or "[null, null, null]")
            if (batch := writes.newest_batch(checkpoint)) is not None:
                return MicroBatch(query_id, batch, run, checkpoint)
        return None

    def _of_a_job(
        self, staged: Sequence[Staged], sink_id: str, version: int, this: MicroBatch | None
    ) -> tuple[WriteReport, Call | None]:
        call = plan = None
        rows = writes.total(m.rows for m in staged)
        if this is not None:
            call = Call(_file_id(self._options.path), str(rows), 0)
            # Other writes of the run have the same plan, so only the rows can show that this is a repeat.
            others = any(one != call for one in this.calls if one.file_id == call.file_id)
            plan = this.plan if this.is_in_order and not others else None
        try:
            last_write = self._last_write(sink_id, this)
            result = bring(self._options, staged, version, sink_id, last_write, plan=plan)
        except OtherTargetError:
            raise
        except BatchDiffersError as error:
            # Outside of a query, versions only increase, so a smaller one is an obsolete repeat.
            if any(m.clone for m in staged) or this is not None or error.newest == version:
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
        sink_id = writes.sink_of(this.query_id, which)
        last_write = self._last_write(sink_id, this)
        result, call = this.bring(
            lambda order: bring(
                options,
                staged,
                this.batch_id,
                writes.sink_of(this.query_id, which, order),
                last_write,
                plan=this.plan if this.is_in_order else None,
                notes=this.notes,
                is_numbered=this.is_in_order,
            ),
            _file_id(options.path),
            str(writes.total(m.rows for m in staged)),
            lambda order: _is_taken(
                options.path, writes.sink_of(this.query_id, which, order), this
            ),
        )
        return self._report(result, staged, sink_id, this.batch_id), call

    def _last_write(self, sink_id: str, this: MicroBatch | None) -> writes.LastWrite | None:
        """The note about the sink's last write in the query's checkpoint."""
        if this is None:
            return None
        return writes.last_write_of(this.checkpoint, sink_id)

    def _report(
        self, result: eosdb.AppendOnceResult, staged: Sequence[Staged], sink_id: str, batch_id: int
    ) -> WriteReport:
        return of_result(result, sink_id, batch_id, writes.total(m.rows for m in staged).size)

    def abort(self, messages: Sequence[datasource.WriterCommitMessage | None]) -> None:
        discard(messages)


class StreamWriter(datasource.DataSourceStreamArrowWriter):
    """The writer of `df.writeStream.format("eosdb")`, which appends each batch of the query exactly
    once."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._options = parse(given, _types(schema))
        if self._options.app_id is not None or self._options.name is not None:
            raise SparkOptionError(
                "options txnAppId, txnVersion and writeName are for batches; a stream numbers its own"
            )
        self._targets = targets_of(self._options, schema.fieldNames())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> datasource.WriterCommitMessage:
        return stage(iterator, self._options, self._targets)

    def commit(
        self, messages: Sequence[datasource.WriterCommitMessage | None], batchId: int
    ) -> None:
        options, staged = self._options, _staged(messages)
        query_id = next((m.query_id for m in staged if m.query_id), None)
        owner = options.sink_id or query_id
        if owner is None:
            if any(m.path is not None for m in staged):
                raise SparkOptionError(
                    "Spark does not provide the query id here; set option sinkId, one for each "
                    "query and checkpoint"
                )
            return  # No task had rows.
        location = next((m.checkpoints for m in staged if m.checkpoints), None)
        checkpoint = options.checkpoint or writes.checkpoint_of(
            location, options.query_name, query_id
        )
        sink_id = writes.sink_of(owner)
        result = bring(
            options,
            staged,
            batchId,
            sink_id,
            writes.last_write_of(checkpoint, sink_id),
            plan=writes.plan_of(checkpoint, query_id, batchId),
            is_numbered=options.sink_id is None,
            # Batch ids have no gaps, because Spark commits every micro-batch, even without rows.
            consecutive=True,
        )
        rows = writes.total(m.rows for m in staged).size
        of_result(result, sink_id, batchId, rows).say(options.path)

    def abort(
        self, messages: Sequence[datasource.WriterCommitMessage | None], batchId: int
    ) -> None:
        discard(messages)


def _file_id(path: str) -> str:
    with eosdb.connect(path, read_only=True) as db:
        return db.broker.cluster_id()


def _is_taken(path: str, sink_id: str, this: MicroBatch) -> bool:
    with eosdb.connect(path, read_only=True) as db:
        return writes.is_taken(db, sink_id, this.batch_id)


def _types(schema: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema.fields}
