"""What `eosdb export` wrote as Parquet, read by Spark's own reader."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import Record, RecordBatch, TopicPartition
from eosdb.integrations.lakehouse import export, exporting
from eosdb.spark_io import read
from tests.spark.conftest import values

COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]


def test_spark_reads_the_same_rows_from_parquet_as_from_the_file(
    spark: Any, shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, target = tmp_path / "parquet", tmp_path / "killed"

    def kill(_: object) -> None:
        shutil.copytree(whole, target)  # What a process leaves that is killed here.
        raise ZeroDivisionError

    with eosdb.connect(shop) as db:
        done = export(db, whole)
        # Data files that are not committed are no rows.
        db.broker.append(TopicPartition("orders", 1), RecordBatch([Record(value=b"later")]))
        with monkeypatch.context() as patched, pytest.raises(ZeroDivisionError):
            patched.setattr(exporting, "reach", kill)
            export(db, whole)
    before = [target / path.relative_to(whole) for path in whole.rglob("topic=*/day=*/*.parquet")]
    assert list(target.rglob("*.unfinished"))
    frame = spark.read.parquet(str(target))
    assert len(values(frame)) == done.records
    assert sorted(target.rglob("topic=*/day=*/*.parquet")) == sorted(before)
    with eosdb.connect(shop) as db:
        export(db, target)
    frame = spark.read.parquet(str(target))
    there = read(spark, shop, includeHeaders="true")
    assert (
        frame.select(COLUMNS).schema.simpleString() == there.select(COLUMNS).schema.simpleString()
    )
    assert frame.select(COLUMNS).exceptAll(there.select(COLUMNS)).count() == 0
    assert frame.count() == there.count()
