"""Functions for Spark's foreachBatch: each of their writes is stored once, also when Spark runs the
micro-batch again. A thread of the user's, which Spark knows nothing of, reads and writes like any other."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb.spark_io import foreach_batch, read, read_stream, write
from tests.crash.children import environment
from tests.spark import queries
from tests.spark.conftest import numbers
from tests.spark_io.like_spark import forget_last_batch
from tests.spark_io.making import append, numbers_in, out
from tests.tidy.tree import ROOT

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


def test_over_spark_connect_a_replay_after_a_kill_doubles_nothing(
    pipe: Path, tmp_path: Path
) -> None:
    """Spark names the query nowhere there; a `sink_id` continues after the restart. Two queries with one
    plan run at once, their rows differ on replay, and a write whose query is unknown is refused."""
    pytest.importorskip("grpc_status")
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / "kill").touch()
    topics = ("good", "bad", "direct", "thread", "named")
    with eosdb.connect(pipe) as db:
        for topic in topics[2:]:
            db.admin.create_topic(topic)
    for expected in (-signal.SIGKILL, 0):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "tests.spark.connected", pipe, folder],
            cwd=ROOT, env=environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == expected, done.stderr
    for topic in topics:
        found = sorted(int(value.partition(b"-")[0]) for value in out(pipe, topic))
        assert found == list(range(100)), topic
    assert out(pipe, "more") == [b"0"]
    assert "its query is not known here" in done.stdout
    assert "newest batch is 9" in done.stdout
