"""Spark writes batches: all rows or none, once, whatever it does with its tasks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import TopicPartition
from eosdb.model.records.partitioner import consistent_random
from eosdb.spark_io import read, register, write
from tests.spark.conftest import numbers
from tests.spark_io.making import expected, out


def test_rows_become_records_in_the_partitions_of_their_keys(spark: Any, target: Path) -> None:
    write(numbers(spark, 500).selectExpr("*", "1 AS price"), target, topic="out")
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


def test_a_job_that_is_run_again_appends_nothing_and_says_so(spark: Any, target: Path) -> None:
    for skipped in (False, True):
        report = write(
            numbers(spark, 100), target, topic="out", txn_app_id="nightly", txn_version=3
        )
        assert (report.rows, report.skipped) == (0 if skipped else 100, skipped)
    assert out(target) == expected(100)


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

    frame = numbers(spark, 2_000, tasks=2).mapInArrow(fails_first, "key string, value string")
    write(frame, target, topic="out")
    assert len(list(marks.iterdir())) == 2
    assert out(target) == expected(2_000)


def test_a_job_that_fails_for_good_leaves_nothing(spark: Any, target: Path) -> None:
    frame = numbers(spark, 100, tasks=2).selectExpr(
        "key", "CASE WHEN value = '77' THEN raise_error('bad row') ELSE value END AS value"
    )
    with pytest.raises(Exception, match="bad row"):
        write(frame, target, topic="out", txn_app_id="a", txn_version=1)
    assert out(target) == []
    write(numbers(spark, 100), target, topic="out", txn_app_id="a", txn_version=1)
    assert out(target) == expected(100)


def test_what_is_wrong_is_said(spark: Any, target: Path) -> None:
    register(spark)
    rows = numbers(spark, 100).selectExpr("value", "IF(value = '50', 9, 0) AS partition")
    for mode, options, text in (
        ("append", {}, "name the topic"),
        ("append", {"topic": "nowhere"}, "nowhere"),
        ("append", {"topic": "out"}, "a row is for partition 9 of topic out, which has 3"),
        ("overwrite", {"topic": "out"}, "append"),
    ):
        with pytest.raises(Exception, match=text):
            rows.write.format("eosdb").options(**options).mode(mode).save(str(target))
    assert out(target) == []
