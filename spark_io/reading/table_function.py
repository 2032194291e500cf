"""The SQL table function `eosdb('shop.db', 'orders')`, which reads the current records at each call.

Spark keeps the first plan of a DataFrame or view over a data source, and never asks the source to plan
again. A function has no such plan: it reads the records present when it runs, in one task.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.functions import arrow_udtf

from eosdb.spark_io.planning import columns, files, options, plan
from eosdb.spark_io.reading import tasks

_NAME: Final = "eosdb"


class Records:
    """Takes a path and, optionally, the topics to read, as in option `subscribe`; the default, and NULL, is
    all topics."""

    def eval(self, path: pa.Array, subscribe: pa.Array | None = None) -> Iterator[pa.RecordBatch]:
        topics = None if subscribe is None else subscribe[0].as_py()
        given = {} if topics is None else {"subscribe": topics}
        parsed = options.parse(given, streaming=False)
        # One snapshot of each file, as for every read.
        ranges = plan.batch(files.absolute(path[0].as_py()), parsed)
        yield from tasks.batches((one for one in ranges if one.size), columns.KAFKA, parsed)


def register(spark: SparkSession) -> None:
    made: Any = arrow_udtf(Records, returnType=columns.sql_schema(columns.KAFKA))
    spark.udtf.register(_NAME, made)
