"""A query that kills itself at given instants: `python -m tests.spark.killed FILE CHECKPOINTS`.

Instants are files in CHECKPOINTS-instants, each with the number of a micro-batch. `task` kills a task
behind its first row, `before` the process that would append; `after` the append driver, JVM and all
workers are killed. Each happens once. Spark tries the task again, and this program the query.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from eosdb.spark_io import read_stream
from eosdb.spark_io.source import EosdbDataSource
from eosdb.spark_io.writing.sink import StreamWriter
from tests.spark import queries
from tests.spark.conftest import builder
from tests.spark_io.like_spark import LOCATION


class Killed(EosdbDataSource):
    @classmethod
    def name(cls) -> str:
        return "killed"

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        given = dict(self.options)
        return Writer(Path(given.pop("instants")), given, schema)


class Writer(StreamWriter):
    def __init__(self, instants: Path, given: dict[str, str], schema: StructType) -> None:
        super().__init__(given, schema)
        self._instants = instants

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return super().write(self._dying(iterator))

    def _dying(self, iterator: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        for batch in iterator:
            yield batch.slice(0, 1)
            if self._is_due("task", int(task.getLocalProperty("streaming.sql.batchId") or 0)):
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch.slice(1)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        if self._is_due("before", batchId):
            os.kill(os.getpid(), signal.SIGKILL)
        super().commit(messages, batchId)
        if self._is_due("after", batchId):
            os.killpg(os.getsid(0), signal.SIGKILL)
            os.killpg(0, signal.SIGKILL)  # Spark's daemon of workers has a group of its own.

    def _is_due(self, instant: str, batch_id: int) -> bool:
        path = self._instants / instant
        if not path.exists() or batch_id < int(path.read_text()):
            return False
        path.unlink()
        return True


def copy(spark: Any, path: Path, checkpoints: Path) -> None:
    """The query goes on once if the process that appends is killed."""
    spark.dataSource.register(Killed)
    spark.conf.set(LOCATION, str(checkpoints))
    try:
        with suppress(StreamingQueryException):
            run(spark, path, f"{checkpoints}-instants")
            return
        run(spark, path, f"{checkpoints}-instants")
    finally:
        spark.conf.unset(LOCATION)


def run(spark: Any, path: Path, instants: str) -> None:
    writer = (
        read_stream(
            spark, path, subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger=50
        )
        .selectExpr("key", "concat(value, '-', uuid()) AS value")
        .writeStream.format("killed")
        .queryName("copy")
        .option("topic", "out")
        .option("instants", instants)
        .trigger(availableNow=True)
    )
    queries.run(lambda: writer.start(str(path)))


if __name__ == "__main__":
    # Under the name by which workers import it.
    from tests.spark import killed

    killed.copy(builder().getOrCreate(), Path(sys.argv[1]), Path(sys.argv[2]))
