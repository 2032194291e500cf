"""Writing batches: all rows or none, once, whatever Spark does with its tasks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import TopicPartition
from eosdb.model.records.partitioner import consistent_random
from eosdb.spark_io import read, register, write
from tests.readers import committed_values
from tests.spark.conftest import values

pytestmark = pytest.mark.spark


@pytest.fixture
def target(db_path: Path) -> Path:
    with eosdb.connect(db_path, durability="off") as db:
        db.admin.create_topic("out", partitions=3)
        db.admin.create_topic("other")
    return db_path


def out(path: Path, topic: str = "out") -> list[bytes]:
    with eosdb.connect(path) as db:
        count = db.broker.partitions_for(topic)
        found = [v for p in range(count) for v in committed_values(db, TopicPartition(topic, p))]
        assert db.verify().ok
    return sorted(value or b"" for value in found)


def numbers(spark: Any, count: int, tasks: int = 4) -> Any:
    return spark.range(0, count, 1, tasks).selectExpr(
        "CAST(id % 7 AS STRING) AS key", "CAST(id AS STRING) AS value"
    )


def expected(count: int) -> list[bytes]:
    return sorted(b"%d" % n for n in range(count))


def test_rows_become_records_in_the_partitions_of_their_keys(spark: Any, target: Path) -> None:
    write(numbers(spark, 500), target, topic="out")
    assert out(target) == expected(500)
    for row in read(spark, target, subscribe="out").collect():
        assert row.partition == consistent_random(bytes(row.key), 3)
    assert not os.path.exists(f"{target}-staging")


def test_every_column_arrives(spark: Any, target: Path) -> None:
    frame = spark.sql(
        "SELECT 'out' AS topic, 2 AS partition, X'00FF' AS key, 'v' AS value, "
        "timestamp_millis(1700000000123) AS timestamp, "
        "array(named_struct('key', 'h', 'value', X'01'), "
        "named_struct('key', 'n', 'value', NULL)) AS headers "
        "UNION ALL SELECT 'other', NULL, NULL, NULL, NULL, NULL"
    )
    register(spark)
    frame.write.format("eosdb").mode("append").save(str(target))
    with eosdb.connect(target) as db:
        (record,) = db.broker.fetch(TopicPartition("out", 2), 0).records
        assert (record.key, record.value, record.timestamp) == (
            b"\x00\xff",
            b"v",
            1_700_000_000_123,
        )
        assert record.headers == (("h", b"\x01"), ("n", None))
        (empty,) = db.broker.fetch(TopicPartition("other", 0), 0).records
        assert (empty.key, empty.value, empty.headers) == (None, None, ())


def test_a_job_that_is_run_again_appends_nothing(spark: Any, target: Path) -> None:
    for _ in range(2):
        write(numbers(spark, 100), target, topic="out", txn_app_id="nightly", txn_version=3)
    assert out(target) == expected(100)
    write(numbers(spark, 50), target, topic="out", txn_app_id="nightly", txn_version=2)
    assert out(target) == expected(100), "an older run is over, too"
    write(numbers(spark, 100), target, topic="out", txn_app_id="another", txn_version=3)
    assert len(out(target)) == 200


def test_tasks_that_fail_and_are_tried_again_write_once(
    spark: Any, target: Path, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()

    def fails_first(batches: Any) -> Any:
        """Half of the rows go out, then the first attempt of each task dies."""
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        mark = marks / str(task.partitionId())
        for batch in batches:
            yield batch.slice(0, batch.num_rows // 2)
            if not mark.exists():
                mark.touch()
                raise RuntimeError("this attempt is lost")
            yield batch.slice(batch.num_rows // 2)

    frame = numbers(spark, 2_000).mapInArrow(fails_first, "key string, value string")
    write(frame, target, topic="out")
    assert len(list(marks.iterdir())) == 4
    assert out(target) == expected(2_000)


def test_a_job_that_fails_for_good_leaves_nothing(spark: Any, target: Path) -> None:
    frame = numbers(spark, 100).selectExpr(
        "key", "CASE WHEN value = '77' THEN raise_error('bad row') ELSE value END AS value"
    )
    with pytest.raises(Exception, match="bad row"):
        write(frame, target, topic="out", txn_app_id="a", txn_version=1)
    assert out(target) == []
    write(numbers(spark, 100), target, topic="out", txn_app_id="a", txn_version=1)
    assert out(target) == expected(100)


def test_a_row_that_cannot_be_a_record_stops_all_of_them(spark: Any, target: Path) -> None:
    frame = numbers(spark, 100).selectExpr("value", "IF(value = '50', 9, 0) AS partition")
    with pytest.raises(Exception, match="no such topic or partition"):
        write(frame, target, topic="out")
    assert out(target) == []


def test_a_large_batch_is_one_transaction(spark: Any, target: Path) -> None:
    write(numbers(spark, 120_000), target, topic="out")
    assert len(out(target)) == 120_000
    with eosdb.connect(target) as db:
        ends = db.query(
            "SELECT transactional_id, count(*) FROM all_records WHERE control = 'COMMIT'"
        )
        ((transactional_id, markers),) = ends.rows
        grown = [o for o in db.admin.partition_offsets().values() if o.log_end_offset]
    assert transactional_id.startswith("__eosdb.sink:spark-batch:")
    assert markers == len(grown)


def test_what_is_wrong_is_said(spark: Any, target: Path) -> None:
    register(spark)
    for frame, options, text in (
        (numbers(spark, 1), {}, "name the topic"),
        (spark.range(1), {"topic": "out"}, "no column value"),
        (numbers(spark, 1), {"topic": "out", "txnAppId": "a"}, "both or neither"),
        (numbers(spark, 1), {"topic": "nowhere"}, "nowhere"),
    ):
        with pytest.raises(Exception, match=text):
            frame.write.format("eosdb").options(**options).mode("append").save(str(target))
    with pytest.raises(Exception, match="append"):
        numbers(spark, 1).write.format("eosdb").option("topic", "out").mode("overwrite").save(
            str(target)
        )
    with pytest.raises(Exception, match="does not exist"):
        write(numbers(spark, 1), target.parent / "nothing.db", topic="out")
    assert out(target) == []


def test_what_was_read_can_be_written_to_another_topic(spark: Any, target: Path) -> None:
    write(numbers(spark, 300), target, topic="out")
    frame = read(spark, target, subscribe="out").selectExpr(
        "key", "upper(CAST(value AS STRING)) AS value"
    )
    write(frame, target, topic="other")
    assert values(read(spark, target, subscribe="other")) == expected(300)
