"""What Spark does with the data source, without Spark: plans, tasks, commits, and a checkpoint.

Readers and writers are pickled for each task, as Spark does. `tests/spark/test_streaming.py` runs a query
by this and by Spark in turns, on one checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import BinaryType, StructType

from eosdb.spark_io.reading.stream import StreamReader
from eosdb.spark_io.source import EosdbDataSource

SCHEMA = StructType().add("value", BinaryType())
VALUES = pa.schema([("value", pa.binary())])
LOCATION = "spark.sql.streaming.checkpointLocation"
CLONE = {"spark.sql.streaming.offsetLog.formatVersion": "1"}
"""What Spark sets in the session that it clones for a query."""


def texts(options: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in options.items() if value is not None}


def batch(path: Path, **options: object) -> list[int]:
    """What a DataFrame finds, sorted."""
    reader = EosdbDataSource({"path": str(path), **texts(options)}).reader(SCHEMA)
    return sorted(
        int(value)
        for table in tables(reader, reader.partitions())
        for value in table[0].to_pylist()
    )


def tables(reader: Any, tasks: Sequence[Any]) -> list[pa.Table]:
    """A table for each task."""
    copy = pickle.loads(pickle.dumps(reader))
    found = [list(copy.read(task)) for task in tasks]
    return [pa.Table.from_batches(batches, None if batches else VALUES) for batches in found]


class Reader:
    """A stream's reader, or one for each call, as Spark has in one process after the other."""

    def __init__(self, path: Path | str, **options: object) -> None:
        given = {"path": path, "subscribe": "orders", "startingOffsets": "earliest", **options}
        self._source = EosdbDataSource(texts(given))
        self.offset: dict[str, Any] | None = None

    def stream_reader(self) -> StreamReader:
        return self._source.streamReader(SCHEMA)

    def __call__(self, most: int | None = None) -> list[int]:
        """One trigger with a reader of its own; the values of its micro-batch."""
        reader = self.stream_reader()
        start = reader.initialOffset() if self.offset is None else self.offset
        limit = ReadAllAvailable() if most is None else ReadMaxRows(most)
        end = json.loads(json.dumps(reader.latestOffset(start, limit)))
        values = self.between(start, end)
        self.offset = end
        return values

    def between(self, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
        reader = self.stream_reader()
        read = tables(reader, reader.partitions(start, end))
        return sorted(int(value) for table in read for value in table[0].to_pylist())


class Session:
    """What `eosdb.spark_io` asks of a session. Local properties are those of the thread that made it; the
    settings of the query's clone are there in any thread."""

    def __init__(self, query: Query | None = None, local: Mapping[str, str] | None = None) -> None:
        self._local, self._thread = dict(local or {}), threading.current_thread()
        self.sparkContext = SimpleNamespace(getLocalProperty=lambda name: self.local().get(name))
        self.dataSource = SimpleNamespace(register=lambda source: None)
        self._jsparkSession = query

    def local(self) -> dict[str, str]:
        clone = {} if self._jsparkSession is None else CLONE
        return clone | (self._local if threading.current_thread() is self._thread else {})


class Frame:
    """A DataFrame: a table for each task."""

    def __init__(self, session: Session, parts: list[pa.Table]) -> None:
        self.sparkSession, self.parts = session, parts
        self.schema = from_arrow_schema(parts[0].schema)
        self.write = self

    def toArrow(self) -> pa.Table:
        return pa.concat_tables(self.parts)

    def map(self, change: Callable[[bytes], bytes]) -> Frame:
        return self._of(
            [[change(value) for value in part["value"].to_pylist()] for part in self.parts]
        )

    def where(self, keep: Callable[[int], bool]) -> Frame:
        return self._of(
            [[v for v in part["value"].to_pylist() if keep(int(v))] for part in self.parts]
        )

    def _of(self, values: list[list[bytes]]) -> Frame:
        return Frame(
            self.sparkSession, [pa.table({"value": of_task}, VALUES) for of_task in values]
        )

    # -- its writer -----------------------------------------------------------------------------

    def format(self, name: str) -> Frame:
        assert name == "eosdb"
        return self

    def options(self, **given: str) -> Frame:
        self._given = given
        return self

    def mode(self, name: str) -> Frame:
        assert name == "append"
        return self

    def save(self, path: str) -> None:
        writer = EosdbDataSource({"path": path, **self._given}).writer(self.schema, False)
        self.bring(writer, lambda messages: writer.commit(messages))

    def bring(self, writer: Any, commit: Callable[[list[Any]], None]) -> None:
        """Run the tasks, and the commit."""
        messages = []
        try:
            for number, part in enumerate(self.parts):
                task = pickle.loads(pickle.dumps(writer))
                with in_task(number, self.sparkSession.local()):
                    message = task.write(iter(part.to_batches()))
                messages.append(pickle.loads(pickle.dumps(message)))
            commit(messages)
        except BaseException:
            for message in messages:
                with contextlib.suppress(FileNotFoundError, TypeError):
                    Path(message.path).unlink()
            raise


@contextlib.contextmanager
def in_task(number: int, properties: Mapping[str, str]) -> Iterator[None]:
    TaskContext(partitionId=number, localProperties=dict(properties))
    try:
        yield
    finally:
        TaskContext._setTaskContext(None)


def frame(values: range, tasks: int = 4) -> Frame:
    """Numbers in a session without a query."""
    parts = [[b"%d" % i for i in values[task::tasks]] for task in range(tasks)]
    return Frame(Session(), [pa.table({"value": part}) for part in parts])


Sink = Callable[[Any, int], None]
"""As for `foreachBatch`."""


class Query:
    """A streaming query with the trigger availableNow. As Spark does, it goes on where its checkpoint says,
    and runs the last micro-batch again if that is not committed."""

    def __init__(
        self,
        source: Path,
        checkpoint: Path,
        *,
        session: Mapping[str, str] | None = None,
        **options: object,
    ) -> None:
        self._reader = Reader(source, **options).stream_reader()
        self._folder, self._run, self._batch = checkpoint, str(uuid.uuid4()), 0
        self._session = dict(session or {})
        for name in ("offsets", "commits"):
            (checkpoint / name).mkdir(parents=True, exist_ok=True)
        metadata = checkpoint / "metadata"
        if not metadata.exists():
            metadata.write_text(json.dumps({"id": str(uuid.uuid4())}))
        self._id = str(json.loads(metadata.read_text())["id"])

    def run(self, sink: Sink) -> None:
        self._reader.prepareForTriggerAvailableNow()
        planned, done = (self._newest(name) for name in ("offsets", "commits"))
        self._batch = planned if planned > done else planned + 1
        while True:
            start = self._offset(self._batch - 1) if self._batch else self._reader.initialOffset()
            if self._batch > planned:
                end = self._reader.latestOffset(start, self._reader.getDefaultReadLimit())
                if end == start:
                    return
                conf = {
                    "batchWatermarkMs": 0,
                    "batchTimestampMs": time.time_ns() // 10**6,
                    "conf": {},
                }
                self._note("offsets", conf, end)
            tasks = self._reader.partitions(start, self._offset(self._batch))
            parts = tables(self._reader, tasks)
            sink(Frame(Session(self, self._local()), parts), self._batch)
            self._note("commits", {"nextBatchWatermarkMs": 0})
            self._batch += 1

    def _newest(self, name: str) -> int:
        return max((int(path.name) for path in (self._folder / name).glob("[0-9]*")), default=-1)

    def _offset(self, number: int) -> dict[str, Any]:
        text = (self._folder / "offsets" / str(number)).read_text()
        return cast("dict[str, Any]", json.loads(text.splitlines()[-1]))

    def _note(self, name: str, *lines: object) -> None:
        text = "\n".join(["v1", *map(json.dumps, lines)])
        (self._folder / name / str(self._batch)).write_text(text)

    def _local(self) -> dict[str, str]:
        return {
            "sql.streaming.queryId": self._id,
            "streaming.sql.batchId": str(self._batch),
            "spark.jobGroup.id": self._run,
            "spark.sql.execution.id": self._run,
            **self._session,
        }

    # -- what Spark's own class of this name has ------------------------------------------------

    def sharedState(self) -> Query:
        return self

    def activeStreamingQueries(self) -> dict[str, Query]:
        return {self._id: self}

    def sparkSessionForStream(self) -> Query:
        return self

    def equals(self, session: Query) -> bool:
        return session is self

    def id(self) -> str:
        return self._id

    def runId(self) -> str:
        return self._run

    def resolvedCheckpointRoot(self) -> str:
        return f"file:{self._folder}"

    def lastExecution(self) -> Any:
        return SimpleNamespace(currentBatchId=lambda: self._batch)


def to_topic(
    into: Path, topic: str, value: Callable[[bytes], bytes] | None = None, **options: object
) -> Sink:
    """The sink of `writeStream.format("eosdb")`, with a writer for each micro-batch."""

    def sink(frame: Frame, batch_id: int) -> None:
        given = texts({"path": into, "topic": topic, **options})
        writer = EosdbDataSource(given).streamWriter(frame.schema, False)
        rows = frame if value is None else frame.map(value)
        rows.bring(writer, lambda messages: writer.commit(messages, batch_id))

    return sink


def forget_last_batch(checkpoint: Path) -> None:
    """As when the driver died behind the write and before Spark's own note."""
    commits = sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    for file in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
        file.unlink(missing_ok=True)
