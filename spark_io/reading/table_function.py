"""The table function `eosdb('shop.db', 'orders')` of SQL: read anew each time it is asked.

Spark keeps the first plan of a DataFrame and of a view over a data source, and gives a source no hook to
plan again. A function has no plan to keep: it reads as of its run, in one task.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.functions import arrow_udtf

from eosdb.spark_io.planning import columns, files, options, plan

from . import tasks

_NAME: Final = "eosdb"


class Records:
    """Its arguments: a path, and if not every topic is to be read, topics as in option `subscribe`."""

    def eval(self, path: pa.Array, subscribe: pa.Array | None = None) -> Iterator[pa.RecordBatch]:
        given = {} if subscribe is None else {"subscribe": subscribe[0].as_py()}
        parsed = options.parse(given, streaming=False)
        # Pinned at one instant of each file, as every read.
        ranges = plan.batch(files.absolute(path[0].as_py()), parsed)
        yield from tasks.batches((one for one in ranges if one.size), columns.KAFKA, parsed)


def register(spark: SparkSession) -> None:
    made: Any = arrow_udtf(Records, returnType=columns.sql_schema(columns.KAFKA))
    spark.udtf.register(_NAME, made)
