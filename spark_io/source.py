"""The data source `eosdb` of Spark's Python Data Source API: batches and streams, reading and writing.

Needs no jar. Planning runs in the driver's Python, reading and staging in the executors'.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from . import columns, files, filters, options, plan, tasks
from .sink import BatchWriter, StreamWriter
from .stream import StreamReader


class EosdbDataSource(DataSource):
    """`spark.read.format("eosdb")` and its three siblings."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options = dict(options)

    @classmethod
    def name(cls) -> str:
        return "eosdb"

    def schema(self) -> str:
        names = columns.chosen(self.options, is_fleet=files.of_options(self.options).is_fleet)
        return columns.sql_schema(names)

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(self.options, schema)

    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return BatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return StreamWriter(self.options, schema)


class FilteringDataSource(EosdbDataSource):
    """The same for a session with filter pushdown; in others Spark rejects a reader that supports it."""

    def reader(self, schema: StructType) -> DataSourceReader:
        return FilteringReader(self.options, schema)


class Task(InputPartition):
    """What one task reads."""

    def __init__(self, ranges: tuple[plan.Range, ...]) -> None:
        super().__init__(None)
        self.ranges = ranges


class BatchReader(DataSourceReader):
    """Pins its ranges when it is created, so that everything it returns later is one consistent set."""

    def __init__(self, given: MutableMapping[str, str], schema: StructType) -> None:
        self._names = tuple(schema.fieldNames())
        columns.check(self._names)
        parsed = options.parse(given, streaming=False)
        self._ranges = plan.batch(files.given(given), parsed)
        self._options = parsed

    def __getstate__(self) -> dict[str, object]:
        """Each task gets the reader, and its own ranges beside it."""
        return {**self.__dict__, "_ranges": []}

    def partitions(self) -> list[Task]:
        # Spark needs at least one task, and the one that it makes up for none is not a `Task`.
        return [Task(ranges) for ranges in plan.split(self._ranges, self._options) or [()]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        return tasks.batches(partition.ranges, self._names, self._options)


class FilteringReader(BatchReader):
    def pushFilters(self, filters_: list[Filter]) -> list[Filter]:
        self._ranges, left = filters.narrow(self._ranges, filters_)
        return left
