"""Functions for foreachBatch over Spark Connect: `python -m tests.spark.connected FILE FOLDER`.

The checkpoints are in FOLDER. With FOLDER/kill, Spark's driver and this program die there behind the
writes of the second micro-batch. Prints what the queries raise."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from eosdb.spark_io import foreach_batch, read_stream, write
from tests.spark import small


def main(path: str, folder: Path) -> None:
    os.environ.update(small.environment(), SPARK_TESTING="1", PYSPARK_PYTHON=sys.executable)
    from pyspark.sql import SparkSession

    spark: Any = SparkSession.builder.remote("local[2]").getOrCreate()
    mine = os.getpid()

    def end_all() -> None:
        (folder / "kill").unlink()
        for process in (mine, os.getppid(), os.getpid()):
            os.kill(process, signal.SIGKILL)

    named = foreach_batch(path, topic="named", sink_id="mine")

    def to_good(frame: Any, batch_id: int) -> None:
        changed = frame.selectExpr("concat(value, '-', uuid()) AS value")
        write(changed, path, topic="good")
        frame.write.format("eosdb").option("topic", "direct").mode("append").save(path)
        named(changed, batch_id)
        if batch_id == 1 and (folder / "kill").exists():
            end_all()

    sink = foreach_batch(path, topic="bad")

    def to_bad(frame: Any, batch_id: int) -> None:
        sink(frame.selectExpr("concat(value, '-', uuid()) AS value"), batch_id)
        thread = threading.Thread(target=write, args=(frame, path), kwargs={"topic": "thread"})
        thread.start()
        thread.join()

    def unnamed(frame: Any, _: int) -> None:
        frame.write.format("eosdb").option("topic", "more").mode("append").save(path)

    def new_checkpoint(frame: Any, batch_id: int) -> None:
        write(frame, path, topic="more", txn_app_id="job", txn_version=batch_id)

    stream = read_stream(spark, path, subscribe="orders", startingOffsets="earliest",
                         maxOffsetsPerTrigger=60)  # fmt: skip
    print(stream.columns, file=sys.stderr)  # From here on, both queries have the same plan.

    def start(work: Any) -> Any:
        writer = stream.select("value").writeStream.foreachBatch(work).trigger(availableNow=True)
        return writer.option("checkpointLocation", f"{folder}/{work.__name__}, a=b").start()

    def finish(work: Any) -> None:
        start(work).awaitTermination()

    def patient(step: Callable[[], Any], again: Callable[[], Any]) -> Any:
        """As in queries.run: Spark waits for ten seconds until a process has begun."""
        for _ in range(25):
            try:
                return step()
            except Exception as error:
                if "connect back" not in str(error):
                    raise
                step = again
        raise AssertionError

    def run(*works: Any) -> None:
        begun = [(work, patient(partial(start, work), partial(start, work))) for work in works]
        for work, query in begun:
            patient(query.awaitTermination, partial(finish, work))

    if (folder / "kill").exists():
        run(to_good)
    run(to_good, to_bad)
    write(spark.sql("SELECT '0' AS value"), path, topic="more", txn_app_id="job", txn_version=9)
    for work in (unnamed, new_checkpoint):
        try:
            run(work)
        except Exception as error:
            print(str(error).replace("\n", " "))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
