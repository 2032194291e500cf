"""The demo's part on Spark: the job `spark_delays.py` is killed while flights still arrive; then its
numbers are read in every way there is, and compared with pandas on the original data."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pandas
from arriving_flights import ABORTED, NAME
from spark_delays import SCHEMA, session, start
from watching import HERE, Checks, Program, say, stable_records

import eosdb
from eosdb.spark_io import read, read_jdbc, spark_conf

TRANSACTIONS = 100
"""In how many the flights arrive."""
VIEWS = {
    "flights_typed": ("flights", {"carrier": "TEXT", "hour": "INTEGER", "dep_delay": "REAL"}),
    "delays_by_hour_typed": (
        "delays_by_hour",
        {"batch": "INTEGER", "carrier": "TEXT", "hour": "INTEGER", "flights": "INTEGER", "minutes": "REAL"},
    ),
}  # fmt: skip
SUMS = "carrier, hour, CAST(sum(flights) AS BIGINT) AS flights, CAST(sum(minutes) AS BIGINT) AS minutes"
Sums = dict[tuple[str, int], tuple[int, int]]
"""Flights and minutes of delay of each carrier and hour."""


def spark_under_fire(path: Path, arriving: Path, kills: int, checks: Checks) -> Any:
    """The job, killed so often while two programs work on the file beside it. Its last run is in this
    process. Returns the session."""
    count = len(arriving.read_bytes().splitlines())
    size = -(-count // TRANSACTIONS)
    with eosdb.connect(path, read_only=True) as db:
        per_batch = stable_records(db, "flights") // 8
    arrival = Program(HERE / "arriving_flights.py", path, arriving, size)
    for run in range(1, kills + 1):
        job = Program(HERE / "spark_delays.py", path, path.parent, per_batch)
        wait_for_micro_batches(job.is_running, path, 2)
        checks.equal(f"Spark driver {run} killed, by signal", job.kill("Spark"), signal.SIGKILL)
        checks.equal("flights were still arriving then", arrival.is_running(), True)
        say(f"killed Spark driver {run} and its JVM {whereabouts(path.parent)}")
    spark = session(spark_conf())
    query = start(spark, str(path), path.parent, per_batch)
    wait_for_micro_batches(lambda: not query.awaitTermination(0.01), path, 1)
    checks.equal("exit status of arriving_flights.py", arrival.end(), 0)
    query.processAllAvailable()
    query.stop()
    checks.equal("error of the last run of the Spark job", query.exception(), None)
    with eosdb.connect(path, read_only=True) as db:
        ((aborted,),) = db.query(
            "SELECT count(*) FROM transaction_history WHERE transactional_id = ? "
            "AND to_state = 'CompleteAbort'",
            (NAME,),
        ).rows
        group = db.admin.describe_group_offsets("spark-delays")
    checks.equal(
        "aborted transactions among those that arrived", aborted, -(-count // size) // ABORTED
    )
    lag = sum(partition.lag or 0 for partition in group.partitions)
    checks.equal("flights that the Spark job has not read", lag, 0)
    return spark


def wait_for_micro_batches(is_running: Callable[[], bool], path: Path, count: int) -> None:
    """Until the topic has so many more than now."""
    with eosdb.connect(path, read_only=True) as db:
        seen = stable_records(db, "delays_by_hour")
        while count and is_running():
            now = stable_records(db, "delays_by_hour")
            count -= now != seen
            seen = now


def whereabouts(folder: Path) -> str:
    """Which micro-batch a killed driver was at, by what Spark had written down of it."""
    begun, done = (
        max(
            (int(f.name) for f in (folder / "delays_by_hour.checkpoint" / of).glob("[0-9]*")),
            default=-1,
        )
        for of in ("offsets", "commits")
    )
    return f"in the middle of micro-batch {begun}" if begun > done else f"behind micro-batch {done}"


# -- reading it in every way ------------------------------------------------------------------------------


def agree(spark: Any, path: Path, frame: pandas.DataFrame, checks: Checks) -> pandas.DataFrame:
    """Compare what each reader sees with pandas on the original data. Returns what is in Parquet."""
    grouped = frame.groupby(["carrier", "hour"]).dep_delay
    expected = sums_of(grouped.agg(["size", "sum"]).reset_index().itertuples(index=False))
    with eosdb.connect(path) as db:
        for view, (topic, columns) in VIEWS.items():
            db.admin.create_view(view, topic, columns)
        by_pandas = db.query(f"SELECT {SUMS} FROM delays_by_hour_typed GROUP BY 1, 2").df()
    parquet = path.parent / "delays_by_hour.parquet"
    in_parquet = pandas.read_parquet(parquet).astype({"batch": int})
    topic, flights = (
        typed(read(spark, path, subscribe=name), schema)
        for name, schema in (
            ("delays_by_hour", f"batch INT, {SCHEMA}, flights BIGINT, minutes DOUBLE"),
            ("flights", SCHEMA),
        )
    )
    each = "1 AS flights", "COALESCE(dep_delay, 0) AS minutes"
    readers = {
        "`flights` by the data source": summed(flights.selectExpr("carrier", "hour", *each)),
        "`flights` by its JDBC view": summed(
            read_jdbc(spark, path, view="flights_typed").selectExpr("carrier", "hour", *each)
        ),
        "`delays_by_hour` by the data source": summed(topic),
        "`delays_by_hour` by its JDBC view": summed(
            read_jdbc(spark, path, view="delays_by_hour_typed")
        ),
        "`delays_by_hour` by pandas": by_pandas.itertuples(index=False),
        "Parquet by Spark": summed(spark.read.parquet(str(parquet))),
        "Parquet by pandas": in_parquet.groupby(["carrier", "hour"])[["flights", "minutes"]]
        .sum()
        .reset_index()
        .itertuples(index=False),
    }
    for reader, rows in readers.items():
        found = sums_of(rows)
        differing = sum(found.get(k) != expected.get(k) for k in found.keys() | expected.keys())
        checks.equal(
            f"carriers and hours that differ in {reader}",
            f"{differing} of {len(found)}", f"0 of {len(expected)}",
        )  # fmt: skip
    columns = ["batch", "carrier", "hour", "flights", "minutes"]
    stored = {tuple(row) for row in topic.select(columns).collect()}
    written = set(in_parquet[columns].itertuples(index=False, name=None))
    checks.equal("sums of a micro-batch in topic or Parquet alone", len(stored ^ written), 0)
    spark.stop()
    return in_parquet


def typed(records: Any, schema: str) -> Any:
    """The JSON in the values."""
    return records.selectExpr(f"from_json(CAST(value AS STRING), '{schema}') AS v").selectExpr(
        "v.*"
    )


def summed(frame: Any) -> list[Any]:
    frame.createOrReplaceTempView("seen")
    rows: list[Any] = frame.sparkSession.sql(f"SELECT {SUMS} FROM seen GROUP BY 1, 2").collect()
    return rows


def sums_of(rows: Iterable[Any]) -> Sums:
    return {
        (carrier, int(hour)): (int(flights), int(minutes))
        for carrier, hour, flights, minutes in rows
    }
