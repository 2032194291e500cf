"""What an export costs: records a second and memory for each format, beside Spark writing the same Parquet;
or, with --files, CPU for each file of a fleet: first, when each has more, and when nothing is new.

python -m benchmarks.lakehouse [--records 1000000] [--no-spark]
python -m benchmarks.lakehouse --files 2000
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import eosdb
from benchmarks.spark import make
from eosdb import Record, RecordBatch, TopicPartition
from eosdb.integrations.lakehouse import export

FORMATS = ("parquet", "delta", "iceberg")


def by_export(format: str, path: Path, folder: Path) -> tuple[int, float, float]:
    """Records, seconds, seconds of processor; the packages are loaded before."""
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": f"file://{folder}/w"}
    options = catalog if format == "iceberg" else {}
    target = "lake.t" if format == "iceberg" else str(folder / format)
    with eosdb.connect(folder / "empty.db") as db:
        db.admin.create_topic("t")
        export(db, target, format, options=options)
    with eosdb.connect(path, read_only=True) as db:
        began, busy = time.perf_counter(), time.process_time()
        done = export(db, target, format, options=options)
        return done.records, time.perf_counter() - began, time.process_time() - busy


def by_spark(path: Path, folder: Path) -> tuple[int, float, float]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    warnings.simplefilter("ignore")
    from pyspark.sql import SparkSession

    from eosdb.spark_io import read

    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    )
    read(spark, path, includeHeaders="true").limit(1).collect()
    began = time.perf_counter()
    frame = read(spark, path, includeHeaders="true").selectExpr("*", "to_date(timestamp) AS day")
    frame.write.partitionBy("topic", "day").parquet(str(folder / "spark"))
    elapsed = time.perf_counter() - began
    count = spark.read.parquet(str(folder / "spark")).count()
    spark.stop()
    return count, elapsed, float("nan")


def measured(way: str, path: Path) -> None:
    """One way, in this process; prints a line of the table."""
    folder = Path(tempfile.mkdtemp(dir=path.parent))
    try:
        found = by_spark(path, folder) if way == "spark" else by_export(way, path, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    records, elapsed, busy = found
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    memory = "" if way == "spark" else f"{peak:,} MiB"
    print(f"| {way} | {records / elapsed:,.0f} | {records / busy:,.0f} | {memory} |", flush=True)


def grow(folder: Path, count: int) -> None:
    """Append ten records to each of `count` files, which are made if there are none."""
    for number in range(count):
        with eosdb.connect(folder / f"{number:06}.db", durability="off") as db:
            db.admin.create_topic("t", exist_ok=True)
            db.broker.append(TopicPartition("t", 0), RecordBatch([Record(b"k", b"v")] * 10))


def of_a_fleet(folder: Path, count: int) -> None:
    """Prints ms of CPU for each file, with the start of the command."""
    print(
        "| format | first pass | more in each file | nothing new |\n|---|---|---|---|", flush=True
    )
    for format in FORMATS:
        table = folder / f"{format}-table"
        words = [table, "--format", format]
        if format == "iceberg":
            uri, place = f"uri=sqlite:///{folder}/c.db", f"warehouse=file://{folder}/w"
            words = ["lake.t", "--format", format, "--option=type=sql", f"--option={uri}"]
            words.append(f"--option={place}")
        command = [sys.executable, "-m", "eosdb", "export", *words, "--files", folder / format]
        (folder / format).mkdir()
        busy = []
        for turn in range(3):
            if turn < 2:
                grow(folder / format, count)
                time.sleep(4)  # a file that was just written is opened again
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([*map(str, command)], check=True, stdout=subprocess.DEVNULL)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            busy.append(f"{seconds / count * 1_000:.2f} ms")
        print(f"| {format} | {' | '.join(busy)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--files", type=int)
    parser.add_argument("--no-spark", action="store_true")
    parser.add_argument("--way", nargs=2, metavar=("WAY", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        measured(options.way[0], Path(options.way[1]))
        return
    with tempfile.TemporaryDirectory() as name:
        if options.files:
            of_a_fleet(Path(name), options.files)
            return
        path = Path(name) / "t.db"
        make(path, options.records, 4)
        print(
            "| way | records/s | records/s of processor | peak memory |\n|---|---|---|---|",
            flush=True,
        )
        for way in (*FORMATS, *(() if options.no_spark else ("spark",))):
            command = [sys.executable, "-m", "benchmarks.lakehouse", "--way", way, str(path)]
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
