"""Flights through Spark and back: ingest, aggregate per carrier and hour, into a topic, into Parquet; the
numbers are compared with pandas on the original data. Exit status 1 if anything is off.

    python demo/spark_flights.py [--rows N] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pandas

import eosdb

HERE = Path(__file__).parent
ALL = 336_776
SCHEMA = "carrier STRING, hour INT, dep_delay DOUBLE"


def main() -> int:
    parser = argparse.ArgumentParser(description="The flights of 2013 through Spark.")
    parser.add_argument("--rows", type=int, default=ALL, help="only the first N flights")
    parser.add_argument("--keep", type=Path, default=Path("demo-output/spark"), help="the folder")
    arguments = parser.parse_args()
    folder: Path = arguments.keep
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    flights = real_flights().head(arguments.rows)
    path = folder / "flights.db"
    ingest(path, folder / "flights.ndjson", flights)
    spark = start_spark()
    try:
        aggregate(spark, path)
        to_parquet(spark, path, folder)
        return check(spark, path, folder, flights)
    finally:
        spark.stop()


def real_flights() -> pandas.DataFrame:
    sys.path.insert(0, str(HERE))
    from flights import real_flights

    return real_flights()


def ingest(path: Path, source: Path, flights: pandas.DataFrame) -> None:
    """As an operator does it."""
    flights.to_json(source, orient="records", lines=True)
    with eosdb.connect(path) as db:
        for topic in ("flights", "delays_by_hour"):
            db.admin.create_topic(topic, partitions=4)
    command = [
        sys.executable,
        "-m",
        "eosdb.cli",
        "--db",
        str(path),
        "ingest",
        "flights",
        str(source),
    ]
    subprocess.run([*command, "--key", "carrier"], check=True)


def start_spark() -> Any:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    warnings.simplefilter("ignore")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("flights")
    conf = {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
    }
    for name, value in conf.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def aggregate(spark: Any, path: Path) -> None:
    """Delay per carrier and hour back into a topic; run twice, because jobs are, and there once."""
    from eosdb.spark_io import read, write

    per_hour = (
        read(spark, path, subscribe="flights")
        .selectExpr(f"from_json(CAST(value AS STRING), '{SCHEMA}') AS flight")
        .selectExpr("flight.*")
        .groupBy("carrier", "hour")
        .agg({"*": "count", "dep_delay": "avg"})
        .selectExpr(
            "carrier AS key",
            "to_json(struct(carrier, hour, `count(1)` AS flights, `avg(dep_delay)` AS delay)) AS value",
        )
    )
    for _ in range(2):
        write(per_hour, path, topic="delays_by_hour", txn_app_id="delays", txn_version=1)


def to_parquet(spark: Any, path: Path, folder: Path) -> None:
    """The flights as a stream into Parquet, by topic and day; the group shows the job's lag."""
    from eosdb.spark_io import read_stream

    query = (
        read_stream(
            spark, path, subscribe="flights", startingOffsets="earliest", groupId="to-parquet",
            maxOffsetsPerTrigger=100_000,
        )
        .selectExpr("*", "to_date(timestamp) AS day")
        .writeStream.format("parquet")
        .option("path", str(folder / "parquet"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .partitionBy("topic", "day")
        .trigger(availableNow=True)
        .start()
    )  # fmt: skip
    query.awaitTermination()


def check(spark: Any, path: Path, folder: Path, flights: pandas.DataFrame) -> int:
    """Everything against pandas."""
    from eosdb.spark_io import read

    expected = flights.groupby(["carrier", "hour"])["dep_delay"].agg(["size", "mean"])
    found = {}
    for row in read(spark, path, subscribe="delays_by_hour").collect():
        told = json.loads(row.value)
        key = (told["carrier"], told["hour"])
        assert key not in found, "each group is there once"
        found[key] = (told["flights"], told.get("delay"))
    wrong = 0
    for key, (size, mean) in expected.iterrows():
        flights_found, delay = found.get(key, (0, None))
        same = (
            delay is None if pandas.isna(mean) else delay is not None and abs(delay - mean) < 1e-9
        )
        wrong += flights_found != size or not same
    with eosdb.connect(path, read_only=True) as db:
        lag = sum(p.lag or 0 for p in db.admin.describe_group_offsets("to-parquet").partitions)
        verified = db.verify().ok
    parquet = spark.read.parquet(str(folder / "parquet")).count()
    checks = {
        f"{len(expected):,} groups equal pandas": wrong == 0 and len(found) == len(expected),
        f"{len(flights):,} flights are in Parquet": parquet == len(flights),
        "the job has no lag": lag == 0,
        "the file verifies": verified,
    }
    for what, held in checks.items():
        print(f"{'ok   ' if held else 'WRONG'} {what}")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
