"""A Spark job as one writes it: from topic `flights` the delays per carrier and hour, exactly once into
topic `delays_by_hour` and into Parquet. Each micro-batch adds its own sums, so that the totals show one
that is lost, or there twice.

It may be killed at any instant and started again. Spark's checkpoint knows of which flights a micro-batch
is made; the topic knows which micro-batches it has; in Parquet each has a folder, which a repeated one
replaces. It reads what is committed, and ends when the standard input does and everything is read.

    python demo/spark_delays.py demo-output/flights.db demo-output 40000
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession, functions

from eosdb.spark_io import foreach_batch, read_stream

ARCHIVE = Path(sys.prefix, "spark.jsa")
"""Of Spark's classes, where scripts/setup.sh made it: a session starts in half the time."""
SHARED = f"-Xlog:disable -XX:SharedArchiveFile={ARCHIVE}" if ARCHIVE.exists() else ""
SCHEMA = "carrier STRING, hour INT, dep_delay DOUBLE"
CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    # A session that lives for seconds is over before thorough compilation pays.
    "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {SHARED}",
}


def session(conf: dict[str, str] | None = None) -> SparkSession:
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    warnings.simplefilter("ignore")  # Spark warns of new versions of pandas.
    builder: Any = SparkSession.builder
    with jvm_says_nothing():
        return builder.master("local[2]").config(map=CONF | (conf or {})).getOrCreate()


@contextlib.contextmanager
def jvm_says_nothing() -> Iterator[None]:
    """Drop the standard error of a JVM that starts inside the block."""
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


def start(spark: SparkSession, path: str, folder: Path, flights_per_batch: int) -> Any:
    """Start the query, or go on with it. Return it when it reads."""
    to_topic = foreach_batch(path, topic="delays_by_hour")

    def add(flights: Any, batch: int) -> None:
        added = functions.count("*").alias("flights"), functions.sum("minutes").alias("minutes")
        sums = flights.groupBy("carrier", "hour").agg(*added).coalesce(1).cache()
        message = f"to_json(struct({batch} AS batch, carrier, hour, flights, minutes)) AS value"
        to_topic(sums.selectExpr("carrier AS key", message), batch)
        sums.write.mode("overwrite").parquet(str(folder / f"delays_by_hour.parquet/batch={batch}"))
        sums.unpersist()

    writer = (
        read_stream(
            spark, path, subscribe="flights", startingOffsets="earliest", groupId="spark-delays",
            maxOffsetsPerTrigger=flights_per_batch,
        )
        .selectExpr(f"from_json(CAST(value AS STRING), '{SCHEMA}') AS flight")
        .selectExpr("flight.carrier", "flight.hour", "COALESCE(flight.dep_delay, 0) AS minutes")
        .writeStream.foreachBatch(add)
        .trigger(processingTime="1 second")
        .option("checkpointLocation", str(folder / "delays_by_hour.checkpoint"))
    )  # fmt: skip
    while True:
        query = writer.start()
        try:
            while query.status["message"].startswith("Initializing"):
                query.awaitTermination(0.1)
        except StreamingQueryException as error:
            # Spark waits ten seconds for the process of a source; a crowded machine may need longer.
            if "connect back" not in str(error):
                raise
        else:
            return query


def main(path: str, folder: Path, flights_per_batch: int) -> None:
    spark = session()
    query = start(spark, path, folder, flights_per_batch)
    sys.stdin.read()
    query.processAllAvailable()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
