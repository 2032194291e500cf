"""Spark's own Kafka connector: python spark_job.py JARS BOOTSTRAP COMMAND FOLDER

batch-read prints what a read_committed reader finds in "in"; batch-write writes 1,000 rows to "written";
stream copies from "in" to "out" until it has read all there is.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

RANGE = 1_000


def main(jars: str, bootstrap: str, command: str, folder: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    reading = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": "in",
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
    }
    if command == "batch-read":
        rows = (
            spark.read.format("kafka")
            .options(**reading)
            .load()
            .selectExpr("string(value)")
            .collect()
        )
        print(json.dumps([row[0] for row in rows]))
    elif command == "batch-write":
        numbers = spark.range(RANGE).selectExpr("string(id % 7) AS key", "string(id) AS value")
        numbers.write.format("kafka").option("kafka.bootstrap.servers", bootstrap).option(
            "topic", "written"
        ).save()
    else:
        stream = (
            spark.readStream.format("kafka").options(**reading, maxOffsetsPerTrigger="1000").load()
        )
        query = (
            stream.select("key", "value")
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("topic", "out")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
