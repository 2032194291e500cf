"""What an export costs: records a second and memory for each format, beside Spark writing the same Parquet.

python -m benchmarks.lakehouse [--records 1000000] [--no-spark]
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--no-spark", action="store_true")
    parser.add_argument("--way", nargs=2, metavar=("WAY", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        measured(options.way[0], Path(options.way[1]))
        return
    with tempfile.TemporaryDirectory() as name:
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
