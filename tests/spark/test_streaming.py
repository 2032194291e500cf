"""Streams: from topic to topic exactly once, and the offsets that Spark keeps."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import BinaryType, StructType

import eosdb
from eosdb import Record, RecordBatch, TopicPartition
from eosdb.spark_io import foreach_batch, read_stream
from eosdb.spark_io.planning.options import parse
from eosdb.spark_io.reading.stream import _limited
from eosdb.spark_io.source import EosdbDataSource
from tests.crash.children import environment
from tests.spark.conftest import TP0, fill
from tests.spark.test_writing import out
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.spark


@pytest.fixture
def pipe(db_path: Path) -> Path:
    fill(db_path)
    with eosdb.connect(db_path, durability="off") as db:
        db.admin.create_topic("out", partitions=2)
    return db_path


def copy(spark: Any, path: Path, checkpoint: Path, **options: object) -> Any:
    """Runs the query until it has read what is there now."""
    settings = {"subscribe": "orders", "startingOffsets": "earliest", **options}
    query = (
        read_stream(spark, path, **settings)
        .selectExpr("key", "value")
        .writeStream.format("eosdb")
        .option("topic", "out")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start(str(path))
    )
    query.awaitTermination()
    return query


def readable(path: Path, topic: str = "orders") -> list[bytes]:
    return out(path, topic)


def test_a_query_goes_on_where_it_stopped(spark: Any, pipe: Path, tmp_path: Path) -> None:
    copy(spark, pipe, tmp_path / "cp")
    first = readable(pipe)
    assert out(pipe) == first
    with eosdb.connect(pipe) as db:
        db.admin.abort_transaction(TP0, db.broker.offsets(TP0).last_stable_offset)
        for i in range(20):
            db.broker.append(TP0, RecordBatch([Record(b"k", b"later %d" % i)]))
    copy(spark, pipe, tmp_path / "cp")
    assert out(pipe) == readable(pipe)
    assert len(readable(pipe)) == len(first) + 21
    copy(spark, pipe, tmp_path / "cp")
    assert out(pipe) == readable(pipe)


def test_micro_batches_are_as_large_as_wanted_and_offsets_as_kafkas(
    spark: Any, pipe: Path, tmp_path: Path
) -> None:
    query = copy(spark, pipe, tmp_path / "cp", maxOffsetsPerTrigger=20)
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
    assert out(pipe) == readable(pipe)


def test_progress_is_committed_for_a_group(spark: Any, pipe: Path, tmp_path: Path) -> None:
    copy(spark, pipe, tmp_path / "cp", groupId="spark-job", maxOffsetsPerTrigger=20)
    with eosdb.connect(pipe) as db:
        report = db.admin.describe_group_offsets("spark-job")
    assert {p.partition for p in report.partitions} == {0, 1}
    assert [p.lag for p in report.partitions] == [0, 0]


def test_foreach_batch_appends_each_batch_once(spark: Any, pipe: Path, tmp_path: Path) -> None:
    append = foreach_batch(pipe, topic="out")

    def twice(frame: Any, batch_id: int) -> None:
        append(frame, batch_id)
        append(frame, batch_id)

    options = {"subscribe": "orders", "startingOffsets": "earliest", "maxOffsetsPerTrigger": 30}
    for _ in range(2):
        query = (
            read_stream(spark, pipe, **options)
            .selectExpr("key", "value")
            .writeStream.foreachBatch(twice)
            .option("checkpointLocation", str(tmp_path / "cp"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    assert out(pipe) == readable(pipe)


def test_another_checkpoint_is_another_sink(spark: Any, pipe: Path, tmp_path: Path) -> None:
    copy(spark, pipe, tmp_path / "one")
    copy(spark, pipe, tmp_path / "two")
    assert len(out(pipe)) == 2 * len(readable(pipe))


def test_partitions_and_files_that_come_later_are_read_from_their_beginning(
    spark: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "fleet"
    folder.mkdir()
    fill(folder / "a.db", 20)
    target = tmp_path / "target.db"
    with eosdb.connect(target, durability="off") as db:
        db.admin.create_topic("out")

    def run() -> None:
        query = (
            read_stream(spark, folder, startingOffsets="earliest")
            .selectExpr("value")
            .writeStream.format("eosdb")
            .option("topic", "out")
            .option("checkpointLocation", str(tmp_path / "cp"))
            .trigger(availableNow=True)
            .start(str(target))
        )
        query.awaitTermination()

    run()
    assert len(out(target)) == len(readable(folder / "a.db"))
    with eosdb.connect(folder / "a.db", durability="off") as db:
        db.admin.create_partitions("orders", 3)
        db.broker.append(TopicPartition("orders", 2), RecordBatch([Record(value=b"new partition")]))
    fill(folder / "b.db", 20)
    run()
    assert out(target) == sorted(readable(folder / "a.db") + readable(folder / "b.db"))


def test_records_that_retention_has_taken_stop_the_query_unless_allowed(
    spark: Any, pipe: Path, tmp_path: Path
) -> None:
    options = {"subscribe": "orders", "startingOffsets": "earliest"}
    with eosdb.connect(pipe) as db:
        db.admin.abort_transaction(TP0, db.broker.offsets(TP0).last_stable_offset)
    copy(spark, pipe, tmp_path / "cp", **options)
    with eosdb.connect(pipe) as db:
        for i in range(9):
            db.broker.append(TP0, RecordBatch([Record(value=b"lost %d" % i)]))
        db.broker.delete_records(TP0, db.broker.offsets(TP0).log_end_offset - 2)
    with pytest.raises(Exception, match="failOnDataLoss=false"):
        copy(spark, pipe, tmp_path / "cp", **options)
    copy(spark, pipe, tmp_path / "cp", **options, failOnDataLoss=False)
    copied = out(pipe)
    assert {b"lost 7", b"lost 8"} <= set(copied)
    assert b"lost 6" not in copied


def test_shares_of_a_micro_batch_follow_what_waits() -> None:
    a, b, c = (("f", TopicPartition("t", i)) for i in range(3))
    before, first = {a: 10, b: 0}, {a: 0, b: 0, c: 5}
    assert _limited(before, first, {a: 110, b: 300, c: 5}, 40) == {a: 20, b: 30, c: 5}
    assert _limited(before, first, {a: 110, b: 300, c: 5}, 1_000) == {a: 110, b: 300, c: 5}
    assert sum(_limited({}, {a: 0, b: 0, c: 0}, {a: 1, b: 1, c: 1}, 2).values()) == 2
    assert _limited({a: 50}, first, {a: 20}, 5) == {a: 50}
    assert parse({"maxOffsetsPerTrigger": "40"}, streaming=True).max_offsets_per_trigger == 40


@pytest.mark.parametrize(
    ("waiting", "most", "shares"),
    [
        pytest.param([3, 10_000], 100, [1, 99], id="a few beside a backlog"),
        pytest.param([0, 3, 10_000], 100, [0, 1, 99], id="nothing waits, nothing is read"),
        pytest.param([1, 1, 1, 997], 4, [1, 1, 1, 1], id="as many partitions as offsets"),
        pytest.param([1] * 3 + [97], 50, [1, 1, 1, 47], id="small shares are rounded up"),
        pytest.param([100, 300], 40, [10, 30], id="in proportion"),
        pytest.param([2**62, 2**62], 2**61, [2**60, 2**60], id="large numbers"),
        pytest.param([7, 2], 9, [7, 2], id="all there is"),
    ],
)
def test_every_partition_in_which_records_wait_gets_a_share(
    waiting: list[int], most: int, shares: list[int]
) -> None:
    """As with Kafka's connector. The partitions are those of two files."""
    places = [("ab"[i % 2], TopicPartition("t", i)) for i in range(len(waiting))]
    first = {place: 10 * i for i, place in enumerate(places)}
    newest = {place: first[place] + count for place, count in zip(places, waiting, strict=True)}
    reached = _limited({places[0]: 0}, first, newest, most)
    assert [reached[place] - first[place] for place in places] == shares


@pytest.mark.parametrize("files", [101, 250, 1_000])
def test_more_partitions_than_offsets_take_turns_under_overload(files: int) -> None:
    most = 100
    places = [(f"{file:04}", TopicPartition("t", 0)) for file in range(files)]
    reached = dict.fromkeys(places, 0)
    rounds = 4 * -(-files // most)
    for written in range(1, rounds + 1):  # A record more in each, and many in one.
        newest = {place: written + (10**6 if place == places[7] else 0) for place in places}
        before, reached = reached, _limited(reached, {}, newest, most)
        assert sum(reached.values()) - sum(before.values()) == most, "never more than asked for"
    assert min(reached.values()) >= 3


def test_a_first_backfill_comes_in_pieces(pipe: Path) -> None:
    schema = StructType().add("value", BinaryType())
    for given, most in (({}, 5_000_000), ({"maxOffsetsPerTrigger": "9000000000"}, 9_000_000_000)):
        reader = EosdbDataSource({"path": str(pipe), **given}).streamReader(schema)
        assert reader.getDefaultReadLimit() == ReadMaxRows(most)


PROGRAM = """
import sys
sys.path.insert(0, {root!r})
from tests.spark.conftest import builder
from eosdb.spark_io import read_stream
spark = builder("local[2]").getOrCreate()
query = (
    read_stream(spark, {path!r}, subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger=200)
    .selectExpr("key", "value").writeStream.format("eosdb").option("topic", "out")
    .option("checkpointLocation", {checkpoint!r}).trigger(availableNow=True).start({path!r})
)
print("running", flush=True)
query.awaitTermination()
"""


def python_workers(session: int) -> list[int]:
    """The processes of Spark's Python workers in a session."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and b"pyspark" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def test_a_query_that_is_killed_again_and_again_copies_each_record_once(
    db_path: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    seeds = request.config.getoption("--seeds")
    count = 4_000 * seeds
    with eosdb.connect(db_path, durability="off") as db:
        db.admin.create_topic("orders", partitions=2)
        db.admin.create_topic("out", partitions=2)
        with db.producer(batch_size=100_000, linger_ms=50) as producer:
            for i in range(count):
                producer.send("orders", b"%d" % i, b"key %d" % (i % 10))
    program = PROGRAM.format(root=str(ROOT), path=str(db_path), checkpoint=str(tmp_path / "cp"))
    rng = random.Random(3)
    killed = 0
    for attempt in range(200):
        child = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", program],
            cwd=ROOT,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "running\n"
        last = attempt >= seeds
        try:
            child.wait(None if last else 3 + rng.random() * 3)
            break
        except subprocess.TimeoutExpired:
            workers = python_workers(child.pid)
            if attempt % 2 and workers:
                # Spark begins the task anew, or gives the query up, which ends the program.
                os.kill(rng.choice(workers), signal.SIGKILL)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(4)
            if child.returncode == 0:
                break
            if child.returncode is None:
                # The driver's Python, its JVM and all workers, at once.
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
            killed += 1
        finally:
            child.stdout.close()
    assert child.returncode == 0
    assert not os.path.exists(f"{db_path}-staging"), "what the killed ones staged is gone"
    with eosdb.connect(db_path) as db:
        by_key: dict[bytes | None, list[int]] = {}
        for partition in range(2):
            tp = TopicPartition("out", partition)
            for rows in db.admin.scan(
                tp, 0, db.broker.offsets(tp).last_stable_offset, columns=("key", "value")
            ):
                for key, value in rows:
                    by_key.setdefault(key, []).append(int(value))
        assert db.verify().ok
    assert sorted(n for found in by_key.values() for n in found) == list(range(count))
    assert all(found == sorted(found) for found in by_key.values()), "in order for each key"
