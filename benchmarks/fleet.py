"""What planning costs for a fleet of many small files: as Spark's driver asks for it, and in Spark. Prints
a table and writes `FLEET.md` beside it.

    python -m benchmarks.fleet [--files 10000] [--records 1000] [--folder FOLDER] [--without-spark]

A folder that was made before is used again.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import eosdb
from benchmarks import machine
from eosdb import Record, TopicPartition
from eosdb.store.schema import file_id

HERE = Path(__file__).parent
_AN_HOUR_S = 3_600
_FORMAT = slice(18, 20)
"""The bytes of SQLite's header that say whether a file has a write-ahead log."""
_COLD = """
import sys, time
from pyspark.sql.types import BinaryType, StructType
from eosdb.spark_io.source import EosdbDataSource
begin, cpu = time.perf_counter(), time.process_time()
source = EosdbDataSource({"path": sys.argv[1]})
tasks = source.reader(StructType().add("value", BinaryType())).partitions()
records = sum(range_.size for task in tasks for range_ in task.ranges)
print(records, len(tasks), time.perf_counter() - begin, time.process_time() - cpu)
"""


def make(folder: Path, files: int, records: int) -> None:
    """Every file has an id of its own and the content of the same template."""
    with tempfile.TemporaryDirectory() as elsewhere:
        template, published = Path(elsewhere) / "template.db", Path(elsewhere) / "published.db"
        with eosdb.connect(template, durability="off") as db:
            db.admin.create_topic("t")
            made = [Record(b"%09d" % i, b"x" * 90) for i in range(records)]
            db.append_once("maker", 0, [(TopicPartition("t", 0), made)])
            db.publish_copy(published)
        connection = sqlite3.connect(":memory:", isolation_level=None)
        connection.deserialize(published.read_bytes())
        long_ago = time.time() - _AN_HOUR_S
        for number in range(files):
            file_id.renew(connection)
            content = bytearray(connection.serialize())
            content[_FORMAT] = b"\2\2"  # As a live file: with a write-ahead log.
            path = folder / f"device-{number:05}.db"
            path.write_bytes(content)
            os.utime(path, (long_ago, long_ago))
        connection.close()


def grow(folder: Path, count: int, records: int) -> None:
    """Some more records in the first files."""
    for path in sorted(folder.glob("*.db"))[:count]:
        with eosdb.connect(path, durability="off") as db:
            more = [Record(b"more", b"x" * 90)] * records
            db.append_once("grower", time.time_ns(), [(TopicPartition("t", 0), more)])


class Timed:
    """Name, seconds, and seconds of CPU of each step; those of Spark's other processes are not known."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, float, float | None]] = []

    def note(self, name: str, seconds: float, cpu: float | None = None) -> None:
        used = "" if cpu is None else f", CPU {cpu:.2f} s"
        print(f"  {name}: {seconds:.2f} s{used}", flush=True)
        self.lines.append((name, seconds, cpu))

    def __call__(self, name: str, function: Callable[[], Any], *, has_cpu: bool = True) -> Any:
        begin, cpu = time.perf_counter(), time.process_time()
        found = function()
        used = time.process_time() - cpu if has_cpu else None
        self.note(name, time.perf_counter() - begin, used)
        return found


def cold(folder: Path, timed: Timed, expected: int) -> None:
    """A batch planned in a process of its own; its imports do not count."""
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", _COLD, str(folder)], capture_output=True, text=True, check=True
        )
        records, tasks, seconds, cpu = done.stdout.split()
        assert int(records) == expected, (records, expected)
        name = f"batch planned in a fresh process ({tasks} tasks)"
        timed.note(name, float(seconds), float(cpu))


def triggers(folder: Path, timed: Timed, expected: int) -> None:
    """What the driver's Python does for a stream, with the JSON that goes to Spark and back."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
    from pyspark.sql.types import BinaryType, StructType

    from eosdb.spark_io.source import EosdbDataSource

    source = EosdbDataSource({"path": str(folder), "startingOffsets": "earliest"})
    reader = source.streamReader(StructType().add("value", BinaryType()))

    def latest(start: str, limit: Any) -> str:
        return json.dumps(reader.latestOffset(json.loads(start), limit))

    def planned(start: str, end: str) -> int:
        found = reader.partitions(json.loads(start), json.loads(end))
        return sum(range_.size for task in found for range_ in task.ranges)

    start = timed("stream: initial offsets", lambda: json.dumps(reader.initialOffset()))
    end = timed("stream: first trigger", lambda: latest(start, ReadAllAvailable()))
    assert timed("stream: first micro-batch planned", lambda: planned(start, end)) == expected
    for _ in range(3):
        assert timed("stream: idle trigger", lambda: latest(end, ReadAllAvailable())) == end
    again = timed(
        "stream: idle trigger with maxOffsetsPerTrigger", lambda: latest(end, ReadMaxRows(10_000))
    )
    assert again == end
    part = timed(
        "stream: trigger cut by maxOffsetsPerTrigger", lambda: latest(start, ReadMaxRows(10_000))
    )
    assert planned(start, part) == 10_000
    grow(folder, 100, 10)
    moved = timed(
        "stream: trigger with 100 files that have grown", lambda: latest(end, ReadAllAvailable())
    )
    assert timed("stream: their micro-batch planned", lambda: planned(end, moved)) == 1_000
    print(f"  offsets: {len(moved):,} characters")


def with_spark(folder: Path, timed: Timed, expected: int) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    from eosdb.spark_io import read, read_stream

    builder = SparkSession.builder.master("local[2]")
    conf = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "OFF",
            "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}  # fmt: skip
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.range(10).count()
    rows = timed(
        "Spark: count of a batch",
        lambda: read(spark, folder).selectExpr("count(*)").collect()[0][0],
    )
    assert rows == expected
    with tempfile.TemporaryDirectory() as elsewhere:
        query = (
            read_stream(spark, folder, startingOffsets="earliest")
            .writeStream.format("noop")
            .option("checkpointLocation", elsewhere)
            .trigger(processingTime="0 seconds")
            .start()
        )
        begin = time.perf_counter()
        while not any(p.numInputRows for p in query.recentProgress) and not query.exception():
            time.sleep(0.1)
        timed.note(
            "Spark: first micro-batch of a stream, from its start", time.perf_counter() - begin
        )
        query.processAllAvailable()
        for _ in range(3):
            begin = time.perf_counter()
            query.processAllAvailable()
            timed.note("Spark: an idle trigger, seen from outside", time.perf_counter() - begin)
        grow(folder, 1, 1)
        query.processAllAvailable()
        done = [p for p in query.recentProgress if p.numInputRows]
        for name in ("latestOffset", "queryPlanning", "walCommit", "triggerExecution"):
            seconds = done[-1].durationMs.get(name, 0) / 1_000
            timed.note(f"Spark: micro-batch of one record in one file, {name}", seconds)
        query.stop()
    spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--records", type=int, default=1_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--without-spark", action="store_true")
    asked = parser.parse_args()
    timed = Timed()
    with tempfile.TemporaryDirectory() as own:
        folder = asked.folder or Path(own)
        folder.mkdir(exist_ok=True)
        if not any(folder.glob("*.db")):
            timed(f"making {asked.files:,} files", lambda: make(folder, asked.files, asked.records))
        with eosdb.connect(sorted(folder.glob("*.db"))[-1], read_only=True) as db:
            each = db.admin.partition_offsets()[TopicPartition("t", 0)].log_end_offset
        assert each >= asked.records
        cold(folder, timed, _records(folder))
        triggers(folder, timed, _records(folder))
        if not asked.without_spark:
            with_spark(folder, timed, _records(folder))
    report(asked.files, asked.records, timed)


def _records(folder: Path) -> int:
    found = 0
    for path in folder.glob("*.db"):
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
            found += connection.execute("SELECT sum(log_end_offset) FROM partitions").fetchone()[0]
        connection.close()
    return found


def report(files: int, records: int, timed: Timed) -> None:
    lines = [
        f"# A fleet of {files:,} files of {records:,} records",
        "",
        "Made by `python -m benchmarks.fleet`; compare ratios, not machines.",
        "",
        f"{machine.software()}; {os.cpu_count()} cores.",
        "",
        "| step | s | CPU s |",
        "| --- | ---: | ---: |",
        *(
            f"| {name} | {seconds:.2f} | {'' if cpu is None else f'{cpu:.2f}'} |"
            for name, seconds, cpu in timed.lines
        ),
    ]
    (HERE / "FLEET.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
