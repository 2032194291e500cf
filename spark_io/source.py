"""The data source `eosdb`, by Spark's Python Data Source API: reads and writes batches and streams.

Needs no jar. Planning runs in the driver's Python, reading and staging in the executors'. The SQL table
function `eosdb('shop.db', 'orders')` reads the current records at each call, in one task: Spark plans a
DataFrame or view only once, but a function at each call.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession, datasource
from pyspark.sql.functions import arrow_udtf
from pyspark.sql.types import StructType

from eosdb.spark_io.planning import files, options, plan
from eosdb.spark_io.planning.errors import SparkOptionError
from eosdb.spark_io.reading import tasks
from eosdb.spark_io.reading.stream import StreamReader
from eosdb.spark_io.writing.sink import BatchWriter, StreamWriter

_NAME: Final = "eosdb"


class Records:
    """The table function. Takes a path and, optionally, the topics to read, as in option `subscribe`; by
    default, and for NULL, all topics."""

    def eval(self, path: pa.Array, subscribe: pa.Array | None = None) -> Iterator[pa.RecordBatch]:
        if path[0].as_py() is None:
            raise SparkOptionError("eosdb(path, topics): got NULL, expected the path of a file")
        topics = None if subscribe is None else subscribe[0].as_py()
        given = {} if topics is None else {"subscribe": topics}
        parsed = options.parse(given, streaming=False)
        # All ranges of a file come from one snapshot.
        ranges = plan.batch(files.absolute(path[0].as_py()), parsed)
        yield from tasks.batches((one for one in ranges if one.size), plan.KAFKA, parsed)


def register(spark: SparkSession) -> None:
    made: Any = arrow_udtf(Records, returnType=plan.sql_schema(plan.KAFKA))
    spark.udtf.register(_NAME, made)


class EosdbDataSource(datasource.DataSource):
    """The format `eosdb` for `read`, `readStream`, `write` and `writeStream`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options = dict(options)

    @classmethod
    def name(cls) -> str:
        return "eosdb"

    def schema(self) -> str:
        if "provider" in self.options:  # Spark sets this option only when it creates a table.
            raise SparkOptionError(options.CATALOG)
        names = plan.chosen(self.options, is_fleet=files.of_options(self.options).is_fleet)
        return plan.sql_schema(names)

    def reader(self, schema: StructType) -> datasource.DataSourceReader:
        return BatchReader(self.options, schema)

    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> datasource.DataSourceWriter:
        return BatchWriter(self.options, schema, overwrite)

    def streamWriter(
        self, schema: StructType, overwrite: bool
    ) -> datasource.DataSourceStreamWriter:
        # Complete mode is allowed: as with Kafka's sink, each batch appends the whole result.
        return StreamWriter(self.options, schema)


class BatchReader(datasource.DataSourceReader):
    """Fixes its ranges of offsets when it is created, so that all tasks read one consistent snapshot.

    It accepts no filters from Spark, which would reuse the ranges planned for the first query's filter in
    every later query of the same DataFrame (decisions/0039).
    """

    def __init__(self, given: MutableMapping[str, str], schema: StructType) -> None:
        self._names = tuple(schema.fieldNames())
        plan.check(self._names)
        parsed = options.parse(given, streaming=False)
        self._ranges = plan.batch(files.given(given), parsed)
        self._options = parsed

    def __getstate__(self) -> dict[str, object]:
        """Spark sends each task the reader and the task's own ranges, so the reader omits all ranges."""
        return {**self.__dict__, "_ranges": []}

    def partitions(self) -> list[tasks.Task]:
        # Spark needs at least one task, and for an empty list would make one of another class.
        return [tasks.Task(ranges) for ranges in plan.split(self._ranges, self._options) or [()]]

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, tasks.Task)
        return tasks.batches(partition.ranges, self._names, self._options)
