"""Spark's streams: from topic to topic exactly once, and the offsets that Spark keeps."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import Record, RecordBatch, TopicPartition
from eosdb.spark_io import foreach_batch, read, read_stream
from tests.crash.children import environment
from tests.spark import killed, queries
from tests.spark_io.like_spark import LOCATION, Query, forget_last_batch, to_topic
from tests.spark_io.making import TP0, append, fill, make, numbers_in, out, remove
from tests.spark_io.test_target_identity import OTHER_FILE
from tests.tidy.tree import ROOT


@pytest.fixture
def pipe(db_path: Path) -> Path:
    fill(db_path)
    with eosdb.connect(db_path, durability="off") as db:
        db.admin.create_topic("out", partitions=2)
    return db_path


def copy(
    spark: Any,
    source: Path,
    target: Path,
    checkpoint: Path | None,
    value: str = "value",
    **options: object,
) -> Any:
    """Runs the query until it has read what is there now."""
    settings = {"subscribe": "orders", "startingOffsets": "earliest", **options}
    writer = (
        read_stream(spark, source, **settings)
        .selectExpr("key", f"{value} AS value")
        .writeStream.format("eosdb")
        .queryName("copy")
        .option("topic", "out")
        .trigger(availableNow=True)
    )
    if checkpoint is not None:
        writer = writer.option("checkpointLocation", str(checkpoint))
    return queries.run(lambda: writer.start(str(target)))


def test_a_query_goes_on_where_it_stopped_by_spark_and_like_spark(
    spark: Any, pipe: Path, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "cp"

    def like_spark() -> None:
        Query(pipe, checkpoint).run(to_topic(pipe, "out", checkpointLocation=checkpoint))

    copy(spark, pipe, pipe, checkpoint)
    first = out(pipe, "orders")
    assert out(pipe) == first
    like_spark()
    assert out(pipe) == first, "nothing is new"
    with eosdb.connect(pipe) as db:
        db.admin.abort_transaction(TP0, db.broker.offsets(TP0).last_stable_offset)
        for i in range(20):
            db.broker.append(TP0, RecordBatch([Record(b"k", b"later %d" % i)]))
    like_spark()
    assert out(pipe) == out(pipe, "orders")
    forget_last_batch(checkpoint)
    append(pipe, range(5))
    copy(spark, pipe, pipe, checkpoint)  # The last micro-batch of the other, and one more.
    assert out(pipe) == out(pipe, "orders")
    assert len(out(pipe)) == len(first) + 21 + 5


def test_micro_batches_are_as_large_as_wanted_and_progress_is_committed(
    spark: Any, pipe: Path, tmp_path: Path
) -> None:
    query = copy(spark, pipe, pipe, tmp_path / "cp", maxOffsetsPerTrigger=20, groupId="job")
    offsets = [
        json.loads(file.read_text().splitlines()[-1])
        for file in sorted(
            (tmp_path / "cp/offsets").glob("[0-9]*"), key=lambda file: int(file.name)
        )
    ]
    assert len(offsets) >= 3
    assert all(
        set(offset) == {"orders"} and set(offset["orders"]) == {"0", "1"} for offset in offsets
    )
    progress = [p for p in query.recentProgress if p["numInputRows"]]
    assert all(p["numInputRows"] <= 20 for p in progress)
    assert out(pipe) == out(pipe, "orders")
    with eosdb.connect(pipe) as db:
        report = db.admin.describe_group_offsets("job")
    assert {p.partition: p.lag for p in report.partitions} == {0: 0, 1: 0}


@pytest.fixture
def session(spark: Any, tmp_path: Path) -> Iterator[Any]:
    """A session that names the folder of all checkpoints, as on clusters."""
    made = spark.newSession()
    made.conf.set(LOCATION, str(tmp_path / "checkpoints"))
    yield made
    made.conf.unset(LOCATION)


def test_a_sessions_checkpoint_is_found_and_knows_its_target(
    session: Any, source: Path, tmp_path: Path
) -> None:
    target = make(tmp_path / "target.db", topic="out")
    copy(session, source, target, None, "concat(value, '-', uuid())")
    forget_last_batch(tmp_path / "checkpoints" / "copy")
    append(source, range(20, 30))
    copy(session, source, target, None, "concat(value, '-', uuid())")
    assert sorted(int(value.partition(b"-")[0]) for value in out(target)) == list(range(30))
    append(source, range(30, 40))
    remove(target)
    make(target, topic="out")
    with pytest.raises(Exception, match=OTHER_FILE.replace("to 0", "to 1")):
        copy(session, source, target, None)
    assert numbers_in(target, "out") == []


def test_aggregates_are_appended_in_complete_mode_and_by_foreach_batch_in_update_mode(
    spark: Any, pipe: Path, tmp_path: Path
) -> None:
    with eosdb.connect(pipe) as db:
        db.admin.create_topic("complete")
        db.admin.create_topic("update")
    counts = (
        read_stream(spark, pipe, subscribe="orders", startingOffsets="earliest")
        .groupBy("partition")
        .count()
        .selectExpr("CAST(partition AS STRING) AS key", "CAST(count AS STRING) AS value")
    )
    rows = read(spark, pipe, subscribe="orders").groupBy("partition").count().collect()
    expected = sorted(b"%d" % row["count"] for row in rows)
    for mode, target in (
        ("complete", counts.writeStream.format("eosdb").option("topic", "complete")),
        ("update", counts.writeStream.foreachBatch(foreach_batch(pipe, topic="update"))),
    ):
        writer = (
            target.outputMode(mode)
            .option("checkpointLocation", str(tmp_path / mode))
            .option("path", str(pipe))
            .trigger(availableNow=True)
        )
        queries.run(writer.start)
        assert out(pipe, mode) == expected


def test_a_query_that_is_killed_again_and_again_copies_each_record_once(
    spark: Any, db_path: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Its checkpoint is set by the session, and its rows differ on replay."""
    kills = 1 + request.config.getoption("--seeds") // 4
    count = 200 * (kills + 1)
    with eosdb.connect(db_path, durability="off") as db:
        db.admin.create_topic("orders", partitions=2)
        db.admin.create_topic("out", partitions=2)
        with db.producer(batch_size=100_000, linger_ms=50) as producer:
            for i in range(count):
                producer.send("orders", b"%d" % i, key=b"key %d" % (i % 10))
    instants = tmp_path / "cp-instants"
    instants.mkdir()
    for attempt in range(kills + 1):
        batch = 4 * attempt  # Of about four for each attempt.
        (instants / "task").write_text(str(batch))
        (instants / "before").write_text(str(batch + 1))
        if attempt == kills:
            killed.copy(spark, db_path, tmp_path / "cp")
        else:
            (instants / "after").write_text(str(batch + 2))
            done = subprocess.run(
                [sys.executable, "-W", "ignore", "-m", "tests.spark.killed", db_path, tmp_path / "cp"],
                cwd=ROOT, env=environment(), stderr=subprocess.DEVNULL, start_new_session=True, check=False,
            )  # fmt: skip
            assert done.returncode == -signal.SIGKILL
        assert not list(instants.iterdir()), "each has happened"
    assert not os.path.exists(f"{db_path}-staging"), "what the killed ones staged is gone"
    with eosdb.connect(db_path) as db:
        by_key: dict[bytes | None, list[int]] = {}
        for partition in range(2):
            tp = TopicPartition("out", partition)
            for rows in db.admin.scan(
                tp, 0, db.broker.offsets(tp).last_stable_offset, columns=("key", "value")
            ):
                for key, value in rows:
                    by_key.setdefault(key, []).append(int(value.partition(b"-")[0]))
        assert db.verify().ok
    assert sorted(n for found in by_key.values() for n in found) == list(range(count))
    assert all(found == sorted(found) for found in by_key.values()), "in order for each key"
