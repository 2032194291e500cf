"""What Spark costs: one large file and a fleet of small ones, read through the data source, through JDBC,
as Parquet, and without Spark (a loop of sqlite3, sqlite3 to Arrow, DuckDB's scanner if it is installed);
and what is written. Every way
must find as many records. Prints a table and writes `SPARK.md` beside it.

    python -m benchmarks.spark [--files 500] [--records 10000000]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sqlite3
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

import eosdb
from benchmarks import machine
from eosdb import Record, TopicPartition
from eosdb.spark_io import jdbc, read, read_jdbc, read_stream, spark_conf, write

HERE = Path(__file__).parent
LARGE = 1_000_000
VALUE = b"x" * 90
TURNS = 3


def make(path: Path, count: int, partitions: int) -> None:
    """Committed records of about 100 bytes, one transaction in fifty aborted."""
    with eosdb.connect(path, durability="off") as db:
        db.admin.create_topic("t", partitions=partitions)
        per = max(count // partitions // 10, 1)
        number = 0
        with db.producer(
            transactional_id="maker", batch_size=1_000_000, linger_ms=1_000
        ) as producer:
            producer.init_transactions()
            while number < count:
                for partition in range(partitions):
                    size = min(per, count - number)
                    producer.begin_transaction()
                    for i in range(number, number + size):
                        producer.send(
                            "t", VALUE + b"%09d" % i, key=b"%09d" % i, partition=partition
                        )
                    producer.flush()
                    producer.commit_transaction()
                    number += size
                producer.begin_transaction()
                producer.send("t", b"aborted", partition=0)
                producer.flush()
                producer.abort_transaction()


def by_loop(paths: list[Path]) -> tuple[int, int]:
    """The view, row by row, one process: what is read by whoever writes no more than a query."""
    count = total = 0
    for path in paths:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            for *_, offset, _, _ in connection.execute(
                'SELECT key, value, topic, partition, "offset", timestamp, timestamp_type '
                "FROM committed_records"
            ):
                count += 1
                total += offset
    return count, total


def by_sqlite(paths: list[Path]) -> tuple[int, int]:
    """The view, in Arrow batches, one process."""
    count = total = 0
    for path in paths:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            cursor = connection.execute(
                'SELECT key, value, topic, partition, "offset", timestamp FROM committed_records'
            )
            while rows := cursor.fetchmany(2_000):
                batch = pa.RecordBatch.from_arrays(
                    [pa.array(column) for column in zip(*rows, strict=True)],
                    ["key", "value", "topic", "partition", "offset", "timestamp"],
                )
                count += batch.num_rows
                total += sum(batch.column(4).to_pylist())
    return count, total


def by_duckdb(paths: list[Path]) -> tuple[int, int]:
    import duckdb

    connection = duckdb.connect()
    connection.execute(_sqlite_scanner())
    count = total = 0
    for path in paths:
        found = connection.execute(
            "SELECT count(value), sum(\"offset\") FROM sqlite_scan(?, 'committed_records')",
            [str(path)],
        ).fetchone()
        assert found is not None
        count, total = count + found[0], total + int(found[1] or 0)
    return count, total


def _sqlite_scanner() -> str:
    """The statement that loads DuckDB's scanner; as a Python package it needs no network."""
    try:
        import duckdb_extension_sqlite_scanner as packaged
    except ImportError:
        return "INSTALL sqlite; LOAD sqlite"
    (extension,) = Path(packaged.__file__).parent.glob("**/sqlite_scanner.duckdb_extension")
    return f"LOAD '{extension}'"


def summed(frame: object) -> tuple[int, int]:
    """Every column is read, as the other ways do."""
    row = frame.selectExpr(  # type: ignore[attr-defined]
        "count(*) AS n", "sum(offset) AS s", "sum(length(value)) AS v", "max(key) AS k"
    ).collect()[0]
    return row.n, row.s


def timed(name: str, count: int, function: Callable[[], tuple[int, int]]) -> tuple[str, float]:
    """Best of four, in records a second: the JVM takes some runs to compile what it runs."""
    best = float("inf")
    for _ in range(4):
        start = time.perf_counter()
        found = function()
        best = min(best, time.perf_counter() - start)
        assert found[0] == count, f"{name}: {found[0]} records, expected {count}"
    print(f"  {name}: {best:.2f} s, {count / best:,.0f} records/s", flush=True)
    return name, count / best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--records", type=int, default=10_000_000)
    asked = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lines = measure(Path(folder), asked.files, asked.records)
    text = "\n".join(lines) + "\n"
    print(text)
    (HERE / "SPARK.md").write_text(text)


def measure(folder: Path, files: int, records: int) -> list[str]:
    from pyspark.sql import SparkSession

    large, fleet = folder / "large.db", folder / "fleet"
    fleet.mkdir()
    print(f"making {LARGE:,} records in one file, {records:,} in {files}", flush=True)
    make(large, LARGE, 4)
    each = records // files
    for i in range(files):
        make(fleet / f"device-{i:04}.db", each, 1)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    with_jdbc = jdbc.find() is not None
    conf = {"spark.log.level": "OFF", "spark.ui.showConsoleProgress": "false", "spark.driver.memory": "4g",
            "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}  # fmt: skip
    for name, value in (conf | (spark_conf() if with_jdbc else {})).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    summed(read(spark, large))
    print("one file", flush=True)
    one = [
        timed("sqlite3, a loop over the view", LARGE, lambda: by_loop([large])),
        timed("sqlite3, view to Arrow", LARGE, lambda: by_sqlite([large])),
        timed("data source", LARGE, lambda: summed(read(spark, large))),
        timed(
            "data source, two columns",
            LARGE,
            lambda: _pair(read(spark, large, columns="partition,offset")),
        ),
    ]
    if with_jdbc:
        one.append(timed("JDBC", LARGE, lambda: summed(read_jdbc(spark, large))))
    parquet = str(folder / "parquet")
    read(spark, large).write.parquet(parquet)
    one.append(timed("Parquet, the same rows", LARGE, lambda: summed(spark.read.parquet(parquet))))
    with contextlib.suppress(ImportError, Exception):
        one.append(timed("DuckDB sqlite_scan, view", LARGE, lambda: by_duckdb([large])))
    print("fleet", flush=True)
    paths = sorted(fleet.glob("*.db"))
    many = [
        timed("sqlite3, view to Arrow", each * files, lambda: by_sqlite(paths)),
        timed("data source", each * files, lambda: summed(read(spark, fleet))),
    ]
    with contextlib.suppress(ImportError, Exception):
        many.append(timed("DuckDB sqlite_scan, view", each * files, lambda: by_duckdb(paths)))
    print("writing", flush=True)
    written = writes(spark, large, folder)
    spark.stop()
    return report(files, each * files, one, many, written)


def _pair(frame: object) -> tuple[int, int]:
    row = frame.selectExpr("count(*) AS n", "sum(offset) AS s").collect()[0]  # type: ignore[attr-defined]
    return row.n, row.s


def writes(spark: object, large: Path, folder: Path) -> list[tuple[str, float]]:
    target = folder / "target.db"
    names = (f"{work}-{turn}" for work in ("direct", "batch", "stream") for turn in range(TURNS))
    with eosdb.connect(target, durability="normal") as db:
        for topic in names:
            db.admin.create_topic(topic, partitions=4)
    frame = read(spark, large, columns="key,value")  # type: ignore[arg-type]

    def parquet(turn: int) -> None:
        frame.write.parquet(str(folder / f"written-{turn}"))

    def direct(turn: int) -> None:
        topic = f"direct-{turn}"
        with eosdb.connect(target, durability="normal") as db:
            records = [Record(b"k", VALUE)] * 5_000
            parts = ((TopicPartition(topic, i % 4), records) for i in range(LARGE // 5_000))
            db.append_once(topic, 0, parts)

    def batch(turn: int) -> None:
        write(frame, target, topic=f"batch-{turn}")

    def stream(turn: int) -> None:
        query = (
            read_stream(spark, large, startingOffsets="earliest", maxOffsetsPerTrigger=250_000)  # type: ignore[arg-type]
            .select("key", "value")
            .writeStream.format("eosdb")
            .option("topic", f"stream-{turn}")
            .option("checkpointLocation", str(folder / f"checkpoint-{turn}"))
            .trigger(availableNow=True)
            .start(str(target))
        )
        query.awaitTermination()

    found = [
        written("Parquet, at least once", parquet),
        written("append_once without Spark", direct),
        written("batch, exactly once", batch),
        written("stream, exactly once, 250,000 each", stream),
    ]
    with eosdb.connect(target) as db:
        for topic in db.admin.list_topics():
            count = sum(db.broker.lag(TopicPartition(topic, p), 0) for p in range(4))
            assert count == LARGE, (topic, count)
    return found


def written(name: str, write_all: Callable[[int], None]) -> tuple[str, float]:
    """Best of a few, for the same reason; the function gets the number of its turn."""
    best = float("inf")
    for turn in range(TURNS):
        start = time.perf_counter()
        write_all(turn)
        best = min(best, time.perf_counter() - start)
    print(f"  {name}: {best:.2f} s, {LARGE / best:,.0f} records/s", flush=True)
    return name, LARGE / best


def report(
    files: int,
    records: int,
    one: list[tuple[str, float]],
    many: list[tuple[str, float]],
    written: list[tuple[str, float]],
) -> list[str]:
    lines = [
        "# Spark",
        "",
        "Made by `python -m benchmarks.spark`; 100-byte records, local[2]. Compare ratios, not machines.",
        "",
        f"{machine.software()}; {os.cpu_count()} cores.",
    ]
    for title, found in (
        (f"Reading one file of {LARGE:,} records", one),
        (f"Reading {files:,} files with {records:,} records", many),
        (f"Writing {LARGE:,} records", written),
    ):
        lines += ["", f"## {title}", "", "| way | records/s | ratio |", "| --- | ---: | ---: |"]
        lines += [f"| {name} | {rate:,.0f} | {rate / found[0][1]:.2f} |" for name, rate in found]
    return lines


if __name__ == "__main__":
    main()
