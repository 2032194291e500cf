"""The micro-batch of a write, and the write's number among the writes to one target.

In the thread in which Spark calls a function for `foreachBatch`, the order of the calls is known: the
number and Spark's plan identify a replayed call. In other threads only its rows identify it. If an earlier
attempt has not written these rows, they may be a different replay, or new rows; this is an error.

A write returns a report. A skipped batch is also logged, because it may be a repeat, or a user's mistake.

In any thread the micro-batch is found through the session of its DataFrames, which Spark creates for the
query. Spark's local properties exist only in the thread in which it calls the function.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import SparkSession

import eosdb
from eosdb import AppendOnceResult, TopicPartition
from eosdb.errors import BatchDiffersError
from eosdb.model.damage import parsed
from eosdb.model.notices import catalog
from eosdb.spark_io.planning.errors import OtherTargetError, SparkOptionError
from eosdb.spark_io.writing import connect
from eosdb.spark_io.writing.writes import plan_of


class Query(NamedTuple):
    """`id` identifies the query and its checkpoint; `run` one attempt of one micro-batch."""

    id: str | None = None
    run: str | None = None
    checkpoint: str | None = None
    batch: int | None = None
    is_its_thread: bool = True
    """Whether this is the thread in which Spark calls the function."""


def query_of(spark: SparkSession) -> Query:
    """The query of a session; fields that the session does not show are None."""
    try:
        context = spark.sparkContext
        query_id = context.getLocalProperty("sql.streaming.queryId")
        batch_id = context.getLocalProperty("streaming.sql.batchId")
        run = context.getLocalProperty("spark.sql.execution.id")
    except Exception:  # Spark Connect has no context.
        return Query(*connect.query())
    found = _running(spark, query_id)
    if found is not None:
        return found
    return Query(query_id, run, None, None if batch_id is None else int(batch_id))


def _running(spark: Any, query_id: str | None) -> Query | None:
    """Find the query in Spark's internals, because foreachBatch gets only the batch number."""
    try:
        session = spark._jsparkSession
        for query in session.sharedState().activeStreamingQueries().values():
            its_id = str(query.id())
            is_it = (
                query.sparkSessionForStream().equals(session)
                if query_id is None
                else its_id == query_id
            )
            if is_it:
                return Query(
                    its_id,
                    str(query.runId()),
                    str(query.resolvedCheckpointRoot()),
                    int(query.lastExecution().currentBatchId()),
                    query_id is not None,
                )
    except Exception:
        pass
    return None


@contextlib.contextmanager
def active(spark: Any) -> Iterator[None]:
    """Make this session the active one during the block. Spark resolves data sources in the active session,
    which in the user's threads may be another one, without the format `eosdb`."""
    before = classes = None
    with contextlib.suppress(Exception):  # With Spark Connect there is no local session.
        classes = SparkSession._get_j_spark_session_class(spark._jvm)
        found = classes.getActiveSession()
        before = found.get() if found.isDefined() else None
        classes.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if classes is not None and before is None:
            classes.clearActiveSession()
        elif classes is not None:
            classes.setActiveSession(before)


_RUN: Final = "run "


def unknown() -> SparkOptionError:
    """The error for a write of a micro-batch whose query is unknown, and which would be repeated."""
    return SparkOptionError(
        "this write is in a function for foreachBatch, and its query is not known here (df.write in a "
        "thread of yours, or over Spark Connect): a replay would append the rows twice; nothing was "
        "appended. Use eosdb.spark_io.write or foreach_batch, or give txnAppId, and as txnVersion the "
        "number of the micro-batch"
    )


class Call(NamedTuple):
    """A write that has succeeded, or was skipped: its file, its rows, and its number in that file."""

    file_id: str
    rows: str
    number: int


class MicroBatch(NamedTuple):
    """A micro-batch of a query, as `write` passes it to the commit in another process. `run` identifies one
    attempt; `calls` are the attempt's earlier calls to the same sink."""

    query_id: str
    batch_id: int
    run: str | None = None
    checkpoint: str | None = None
    is_in_order: bool = False
    calls: tuple[Call, ...] = ()

    def to_text(self) -> str:
        return json.dumps(self)

    @classmethod
    def of_text(cls, text: str) -> MicroBatch:
        this = cls(*parsed(text))
        return this._replace(calls=tuple(Call(*call) for call in this.calls))

    @property
    def plan(self) -> str | None:
        return plan_of(self.checkpoint, self.query_id, self.batch_id)

    @property
    def notes(self) -> tuple[str, ...]:
        """A text to store with a write whose order is unknown. It identifies the attempt and the write."""
        named = not self.is_in_order and self.run is not None
        return (f"{_RUN}{self.run} {uuid.uuid4().hex}",) if named else ()

    def bring(
        self,
        bring: Callable[[int], eosdb.AppendOnceResult],
        file_id: str,
        rows: str,
        is_taken: Callable[[int], bool],
    ) -> tuple[eosdb.AppendOnceResult, Call]:
        """Append one of several writes of the micro-batch by calling `bring` with its number. Raises
        BatchDiffersError if the write may be a replay with other rows."""
        made = {call.rows: call.number for call in self.calls if call.file_id == file_id}
        if self.is_in_order:
            number = made.get(rows, len(made))
            return bring(number), Call(file_id, rows, number)
        other: BatchDiffersError | None = None
        for number in itertools.count():
            if other is not None and not is_taken(number):
                raise _ambiguous(self.batch_id, other) from other
            try:
                return bring(number), Call(file_id, rows, number)
            except OtherTargetError:
                raise
            except BatchDiffersError as error:
                if error.newest != self.batch_id:
                    raise
                is_own = any(text.startswith(f"{_RUN}{self.run} ") for text in error.held)
                if number not in made.values() and not is_own:
                    other = error
        raise AssertionError


def _ambiguous(batch_id: int, error: BatchDiffersError) -> BatchDiffersError:
    return BatchDiffersError(
        f"Spark runs micro-batch {batch_id} again, and these rows are not those that an earlier attempt "
        "wrote; whether they are a replay that differs, or another write, cannot be known in a thread of "
        'yours and in df.write.format("eosdb"); nothing was appended. Write by eosdb.spark_io.write or '
        "foreach_batch in the function's own thread, where the order of the writes is known; or make the "
        "rows the same in each attempt",
        error.newest,
        error.held,
    )


class Calls:
    """The calls of the last run of each sink in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[str, tuple[object, list[Call]]] = {}

    def of(self, sink: str, run: object) -> tuple[Call, ...]:
        """The calls of this attempt so far. `run` identifies the attempt."""
        with self._lock:
            last, calls = self._runs.get(sink, (run, []))
            return tuple(calls) if last == run else ()

    def add(self, sink: str, run: object, call: Call) -> None:
        with self._lock:
            last, calls = self._runs.get(sink, (run, []))
            self._runs[sink] = (run, [*calls, call] if last == run else [call])


@dataclass(frozen=True, slots=True)
class WriteReport:
    """The result of a write: either all rows were appended, or none."""

    rows: int | None
    """The number of appended rows; None if unknown, as over Spark Connect to another host."""
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    """The first offset of the rows in each partition with new rows."""
    skipped: bool = False
    why: str | None = None
    """Why the rows were skipped, as logged."""

    def say(self, path: str | os.PathLike[str]) -> None:
        """Log that the batch was left out, if it was, and why."""
        if self.skipped:
            catalog.BATCH_LEFT_OUT.say(file=os.fspath(path), cause=self.why)

    def to_file(self, path: str, call: Call | None = None) -> None:
        """Write the report to a file for the driver, because Spark passes nothing back from a commit."""
        offsets = [[*tp, offset] for tp, offset in self.offsets.items()]
        with contextlib.suppress(OSError):  # With Spark Connect, the folder may be on another host.
            Path(path).write_text(json.dumps([{**asdict(self), "offsets": offsets}, call]))


def of_file(path: str) -> tuple[WriteReport, Call | None]:
    """Read the report, and the call if the write belongs to a micro-batch."""
    try:
        found, call = parsed(Path(path).read_text())
    except OSError:
        return WriteReport(None), None
    offsets = {TopicPartition(topic, number): offset for topic, number, offset in found["offsets"]}
    made = None if call is None else Call(*call)
    return WriteReport(**{**found, "offsets": offsets}), made


def of_result(result: AppendOnceResult, sink_id: str, batch_id: int, rows: int) -> WriteReport:
    if not result.skipped or not rows:
        return WriteReport(rows, result.offsets)
    return left_out(rows, f"batch {batch_id} of {sink_id!r} is in the file already")


def left_out(rows: int, why: str) -> WriteReport:
    return WriteReport(0, skipped=True, why=f"{rows} rows were not appended: {why}")
