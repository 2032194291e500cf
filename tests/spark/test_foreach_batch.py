"""Functions for Spark's foreachBatch: each of their writes is stored once, also when Spark runs the
micro-batch again. A thread of the user's, which Spark knows nothing of, reads and writes like any other."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from eosdb.spark_io import foreach_batch, read, read_stream, write
from tests.spark import queries
from tests.spark.conftest import numbers
from tests.spark_io.like_spark import forget_last_batch
from tests.spark_io.making import append, numbers_in, out

SMALL, LARGE = "CAST(CAST(value AS STRING) AS INT) < 40", "CAST(CAST(value AS STRING) AS INT) >= 40"


def each_batch(
    spark: Any, path: Path, checkpoint: Path, work: Callable[[Any, int], None], **options: object
) -> None:
    settings = {"subscribe": "orders", "startingOffsets": "earliest", **options}
    writer = (
        read_stream(spark, path, **settings)
        .selectExpr("value")
        .writeStream.foreachBatch(work)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
    )
    queries.run(writer.start)


def test_every_write_of_a_micro_batch_is_stored_once_also_when_the_batch_is_repeated(
    spark: Any, pipe: Path, tmp_path: Path
) -> None:
    more = foreach_batch(pipe, topic="more")
    uuids = foreach_batch(pipe, topic="more", writeName="uuids")

    def work(frame: Any, batch_id: int) -> None:
        write(frame.where(SMALL), pipe, topic="good")
        write(frame.where(LARGE), pipe, topic="good")
        write(frame, pipe, topic="bad", txn_app_id="job", txn_version=batch_id)
        frame.write.format("eosdb").option("topic", "bad").mode("append").save(str(pipe))
        more(frame.where(SMALL), batch_id)
        more(frame.where(LARGE), batch_id)
        uuids(
            frame.selectExpr("concat(value, '000', CAST(1000 * rand() AS INT)) AS value"), batch_id
        )

    each_batch(spark, pipe, tmp_path / "cp", work)
    forget_last_batch(tmp_path / "cp")
    append(pipe, range(100, 110))
    each_batch(spark, pipe, tmp_path / "cp", work)  # The replay, and a batch more.
    assert numbers_in(pipe, "good") == list(range(110))
    assert numbers_in(pipe, "bad") == sorted([*range(110)] * 2)
    assert len(out(pipe, "more")) == 2 * 110


def in_threads(*works: Callable[[], object]) -> list[object]:
    with ThreadPoolExecutor(len(works)) as pool:
        return [made.result() for made in [pool.submit(work) for work in works]]


def test_a_thread_reads_and_writes_like_any_other(spark: Any, target: Path) -> None:
    other = spark.newSession()
    made = in_threads(
        lambda: write(numbers(spark, 20), target, topic="out"),
        lambda: write(numbers(other, 20), target, topic="other"),
    )
    assert [report.rows for report in made] == [20, 20]  # type: ignore[attr-defined]
    assert in_threads(lambda: read(other, target, subscribe="out").count()) == [20]
