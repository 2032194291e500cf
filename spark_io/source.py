"""The data source `eosdb` of Spark's Python Data Source API: batches and streams, reading and writing.

Needs no jar. Planning runs in the driver's Python, reading and staging in the executors'.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, MutableMapping

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

import eosdb
from eosdb.errors import EosdbError

from .planning import columns, files, kafka_options, options, plan
from .planning.errors import SparkOptionError
from .reading import tasks
from .reading.stream import StreamReader
from .writing.sink import BatchWriter, StreamWriter


class EosdbDataSource(DataSource):
    """`spark.read.format("eosdb")` and its three siblings."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options = dict(options)

    @classmethod
    def name(cls) -> str:
        return "eosdb"

    def schema(self) -> str:
        if "provider" in self.options:  # Said only when a table is created.
            raise SparkOptionError(kafka_options.CATALOG)
        names = columns.chosen(self.options, is_fleet=files.of_options(self.options).is_fleet)
        return columns.sql_schema(names)

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(self.options, schema)

    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        made = BatchWriter(self.options, schema, overwrite)
        _check_target(self.options)
        return made

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        # Complete mode appends the whole result each time, as Kafka's sink does.
        made = StreamWriter(self.options, schema)
        _check_target(self.options)
        return made


def _check_target(given: Mapping[str, str]) -> None:
    """Before the job has run, not when it commits. Raises SparkOptionError."""
    path = files.local(given["path"])
    is_published = False
    with contextlib.suppress(EosdbError), eosdb.connect(path, read_only=True) as db:
        is_published = db.is_published
    if is_published:
        raise SparkOptionError(
            f"{path} is a published copy, which never changes; write to the file that it was made from"
        )


class Task(InputPartition):
    """What one task reads."""

    def __init__(self, ranges: tuple[plan.Range, ...]) -> None:
        super().__init__(None)
        self.ranges = ranges


class BatchReader(DataSourceReader):
    """Pins its ranges when it is created, so that everything it returns later is one consistent set.

    No filter is taken from Spark: it keeps what a reader answers to the first one, and gives that to every
    other query of the same DataFrame (decisions/0039).
    """

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
