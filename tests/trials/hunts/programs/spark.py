"""Spark copies the topic by a stream, each record exactly once, into another file.

`python -m tests.trials.hunts.programs.spark FOLDER NAME ADDRESS SEED [end]`: NAME is "spark-stream" for the
sink of the data source, or "spark-batch" for `write` in foreachBatch under the number of the batch. SIGTERM
ends the query between two batches; with "end" it stops behind what there is. A query that fails ends the
program.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any, Final

import eosdb
from eosdb import TopicPartition
from tests.trials.hunts.ledger import Place
from tests.trials.hunts.programs.working import PARTITIONS, TOPIC, Setting, Stopping

TARGET: Final = "copied.db"
PROBLEMS: Final = "spark-problems.log"
CHECKPOINT: Final = "checkpoint"
_PATIENCE_S: Final = 10.0
_JDBC_EVERY: Final = 5
"""So many batches have one look over JDBC."""
_CONF: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.log.level": "OFF",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def main() -> None:
    setting, stopping = Setting.from_arguments(), Stopping()
    _check_nothing_is_open(setting.folder)
    query = _start(_session(setting.folder), setting)
    while not stopping.is_set and query.isActive:
        time.sleep(0.05)
    if query.isActive:
        query.stop()
    failure = query.exception()
    if failure is not None:
        print(failure, file=sys.stderr)
    sys.stderr.flush()
    os._exit(0 if failure is None else 1)  # Its JVM ends with it.


def _check_nothing_is_open(folder: Path) -> None:
    """Who opens the target ends what a process that is no more has left open."""
    deadline = time.monotonic() + _PATIENCE_S
    with eosdb.connect(folder / TARGET) as db:
        for partition in range(PARTITIONS):
            # A worker outlives its driver for a moment.
            while (at := db.broker.offsets(TopicPartition(TOPIC, partition))) and (
                at.last_stable_offset != at.log_end_offset
            ):
                if time.monotonic() > deadline:
                    _tell(folder, f"a transaction of the target stays open: {at}")
                    return
                time.sleep(0.05)


def _session(folder: Path) -> Any:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        from eosdb.spark_io import jdbc

        conf = {**_CONF, "spark.sql.warehouse.dir": str(folder / "warehouse")}
        if jdbc.find() is not None:
            conf |= jdbc.spark_conf()
        builder = SparkSession.builder.master("local[2,3]")
        for name, value in conf.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()


def _start(spark: Any, setting: Setting) -> Any:
    """Start the query."""
    from eosdb.spark_io import read_stream, write

    source, target = str(setting.path), str(setting.folder / TARGET)
    frame = read_stream(spark, source, subscribe=TOPIC, startingOffsets="earliest")
    frame = frame.selectExpr("key", "value", "partition")
    writer = frame.writeStream.option("checkpointLocation", str(setting.folder / CHECKPOINT))
    is_last = sys.argv[5:] == ["end"]
    writer = (
        writer.trigger(availableNow=True) if is_last else writer.trigger(processingTime="0 seconds")
    )
    if setting.name == "spark-stream":
        return writer.format("eosdb").option("topic", TOPIC).start(target)

    def store(batch: Any, number: int) -> None:
        write(batch, target, topic=TOPIC, txn_app_id="copy", txn_version=number)
        if number % _JDBC_EVERY == 0 or is_last:
            _look(spark, setting)

    return writer.foreachBatch(store).start()


def _look(spark: Any, setting: Setting) -> None:
    """Read the source over JDBC: no part of a transaction."""
    from eosdb.spark_io import jdbc, read_jdbc
    from tests.trials.hunts.judge import in_part  # Which knows the actors, and these this program.

    if jdbc.find() is None:
        return
    rows = read_jdbc(spark, str(setting.path), "committed_records").select("topic", "value")
    values = [bytes(row.value) for row in rows.collect() if row.topic == TOPIC and row.value]
    for problem in in_part({Place(TOPIC, 0): values}):
        _tell(setting.folder, f"JDBC: {problem}")


def _tell(folder: Path, problem: str) -> None:
    with (folder / PROBLEMS).open("a") as file:
        print(problem, file=file)


if __name__ == "__main__":
    main()
