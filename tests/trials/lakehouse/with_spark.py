"""python -m tests.trials.lakehouse.with_spark: `make lakehouse`.

Delta's and Iceberg's own Spark readers read what `export` wrote, between kills; then the recipes of
docs/lakehouse.md stream a file into Delta while the driver is killed, and every record must be one row. The
jars, and Spark in the versions that they are for, are fetched into .judges (`judges/artifacts.py`).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

import eosdb
from eosdb.model.failpoints import Failpoint
from tests.integrations.lakehouse.tables import Table, append, committed
from tests.tidy.tree import ROOT
from tests.trials.judges.artifacts import CACHE, Jar, class_path, python_with

DELTA: Final = ("4.2.0", Jar("io.delta", "delta-spark_4.2_2.13", "4.4.0"), ("delta-",))
ICEBERG: Final = (
    "4.1.1",
    Jar("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0"),
    ("iceberg-spark-runtime",),
)
FOLDER: Final = CACHE / "cases" / "lakehouse"
RECORDS: Final = 4_000
KILLS: Final = 3
_PATIENCE_S: Final = 600


def job(spark: tuple[str, Jar, tuple[str, ...]], *words: str) -> list[str]:
    """The command of a Spark program. Raises MissingError when something cannot be fetched."""
    version, jar, own = spark
    python = python_with(
        f"spark-{version}", "-e", str(ROOT), f"pyspark=={version}", "pyarrow", "pandas<3"
    )
    folder = Path(class_path(jar.name, [jar])).parent
    jars = ",".join(str(found) for found in folder.glob("*.jar") if found.name.startswith(own))
    return [python, "-m", "tests.trials.lakehouse.spark_job", jars, *words]


def start(command: Sequence[str], log: Path, **extra: str) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": command[0],
        "PYSPARK_DRIVER_PYTHON": command[0],
        **extra,
    }
    with log.open("a") as errors:
        return subprocess.Popen(
            command,
            cwd=FOLDER,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )


def made_by_export(format: str) -> tuple[Table, list[list[object]]]:
    """A table that exporters wrote which were killed before, and after, a commit."""
    table = Table(format, FOLDER / format)
    table.folder.mkdir()
    path = FOLDER / f"{format}.db"
    with eosdb.connect(path) as db:
        db.admin.create_topic("orders", partitions=2)
        for point in (Failpoint.EXPORT_WRITTEN, Failpoint.EXPORT_COMMITTED) * 2:
            worker = [sys.executable, "-m", "tests.integrations.lakehouse.worker"]
            worker += [format, str(table.folder), str(path), "9"]
            process = start(worker, FOLDER / "worker.log", EOSDB_FAILPOINT=f"{point.value}:1")
            process.communicate()
            assert process.returncode == -signal.SIGKILL
        table.export(db)
        return table, [[*place] for place in committed(db)]


def read_back(format: str) -> str:
    table, expected = made_by_export(format)
    path, spark = table.target, DELTA
    if format == "iceberg":
        catalog = load_catalog("default", **table.options)
        path, spark = catalog.load_table(table.target).metadata_location, ICEBERG
        catalog.close()
    process = start(job(spark, "read", format, path), FOLDER / "read.log")
    said, _ = process.communicate(timeout=_PATIENCE_S)
    assert process.returncode == 0, FOLDER / "read.log"
    found = json.loads(said.splitlines()[-1])
    assert found == expected, f"{len(found)} rows, {len(expected)} records"
    return f"{len(found)} rows read by {spark[1].name} {spark[1].version} on Spark {spark[0]}"


def streamed(number: int, target: str) -> str:
    """The recipe, with the driver killed in the middle."""
    table = FOLDER / "lake" / target
    shutil.rmtree(table, ignore_errors=True)
    command, log = job(DELTA, "stream", str(number)), FOLDER / f"{target}.log"
    died_at = []
    for kill in range(KILLS):
        process = start(command, log)
        deadline = time.monotonic() + _PATIENCE_S
        wanted = commits(table) + 1 + kill % 2
        while commits(table) < wanted:
            assert process.poll() is None, f"it ended by itself: {log}"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        died_at.append(DeltaTable(table).count())
    process = start(command, log)
    process.communicate(timeout=_PATIENCE_S)
    assert process.returncode == 0, log
    found = DeltaTable(table).to_pyarrow_table().select(["topic", "partition", "offset"])
    rows = sorted((it["topic"], it["partition"], it["offset"]) for it in found.to_pylist())
    with eosdb.connect(FOLDER / "shop.db", read_only=True) as db:
        expected = committed(db)
    assert rows == expected, (
        f"{len(rows)} rows, {len(set(rows))} different, {len(expected)} records"
    )
    return f"driver killed at {died_at} rows, {len(rows)} rows at the end, each record once"


def commits(table: Path) -> int:
    return len([*table.glob("_delta_log/*.json")])


def main() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    with eosdb.connect(FOLDER / "shop.db") as db:
        db.admin.create_topic("orders", partitions=2)
        for partition in range(2):
            append(db, RECORDS // 2, partition)
    for format in ("delta", "iceberg"):
        print(f"{format}: {read_back(format)}", flush=True)
    for number, target in enumerate(("by-sink", "by-batch")):
        print(f"{target}: {streamed(number, target)}", flush=True)


if __name__ == "__main__":
    main()
