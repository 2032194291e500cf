"""Spark reads by the data source what a read_committed consumer sees, under its Kafka connector's names."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb.integrations import publishing
from eosdb.spark_io import read, read_stream, register
from tests.spark import queries
from tests.spark_io.making import TP0, TP1, fill, new_file
from tests.spark_io.test_fleet import half


def test_the_schema_is_the_connectors(spark: Any, shop: Path) -> None:
    assert [f"{f.name} {f.dataType.simpleString()}" for f in read(spark, shop).schema] == [
        "key binary", "value binary", "topic string", "partition int", "offset bigint",
        "timestamp timestamp", "timestampType int",
    ]  # fmt: skip
    with_headers = read(spark, shop, includeHeaders=True).schema
    assert (
        with_headers["headers"].dataType.simpleString() == "array<struct<key:string,value:binary>>"
    )


def test_records_are_those_a_consumer_sees(spark: Any, shop: Path) -> None:
    frame = read(spark, shop, subscribe="orders", includeHeaders=True, minPartitions=4)
    assert frame.rdd.getNumPartitions() >= 4
    rows = frame.orderBy("partition", "offset").collect()
    with eosdb.connect(shop) as db, db.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([TP0, TP1])
        seen = []
        while batch := consumer.poll():
            seen += batch
    seen.sort(key=lambda record: (record.partition, record.offset))
    assert [(r.partition, r.offset, r.key, r.value) for r in rows] == [
        (s.partition, s.offset, s.key, s.value) for s in seen
    ]
    assert [[(h.key, h.value) for h in r.headers or ()] for r in rows] == [
        [*s.headers] for s in seen
    ]
    assert {row.topic for row in rows} == {"orders"}
    assert rows[0].timestamp == datetime.fromtimestamp(seen[0].timestamp / 1000, UTC).replace(
        tzinfo=None
    )


def test_columns_are_chosen_by_option_or_schema(spark: Any, shop: Path) -> None:
    row = read(spark, shop, columns="offset,producerId,sequence,source_file").first()
    assert row is not None
    assert row.source_file == str(shop)
    register(spark)
    typed = spark.read.format("eosdb").schema("partition int, offset bigint").load(str(shop))
    assert {tuple(row) for row in typed.collect()} >= {(0, 0), (1, 1)}


CONDITIONS = [
    "partition = 1", "partition in (0, 5)", "topic = 'orders'", "topic = 'nothing'", "offset = 7",
    "offset >= 5 and offset < 20", "offset > 5 and offset <= 20 and partition = 0",
    "offset < 3 or offset > 30", "partition = 0 and value like '%1%'", "key is null",
    "offset >= 1000", "partition + 1 = 2",
]  # fmt: skip


def test_filters_find_what_they_find_among_plain_rows(spark: Any, shop: Path) -> None:
    def found(frame: Any) -> list[tuple[int, int, int]]:
        each = [
            frame.where(condition).selectExpr(f"{i} AS i", "partition", "offset")
            for i, condition in enumerate(CONDITIONS)
        ]
        return sorted(tuple(row) for row in reduce(lambda a, b: a.union(b), each).collect())

    frame = read(spark, shop)
    assert found(frame) == found(spark.createDataFrame(frame.collect(), frame.schema))


def test_a_data_frame_reads_what_it_was_planned_for_or_is_refused(spark: Any, source: Path) -> None:
    frame = read(spark, source, subscribe="orders")
    assert frame.count() == 20
    new_file(source, range(100, 240))
    with pytest.raises(Exception, match=r"another file: its id is.* make the DataFrame again"):
        frame.count()
    assert read(spark, source, subscribe="orders").count() == 140


def test_local_and_published_files_are_one_table(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "fleet"
    folder.mkdir()
    for name in "abc":
        fill(folder / f"{name}.db", 20)
    with eosdb.connect(folder / "c.db", read_only=True) as db:
        db.publish_copy(f"local://{tmp_path}/published")
    (folder / "c.db").rename(tmp_path / "away.db")
    (url,) = publishing.files(f"local://{tmp_path}/published")
    counts = read(spark, [folder, url]).groupBy("source_file").count().collect()
    assert {row.source_file for row in counts} == {str(folder / "a.db"), str(folder / "b.db"), url}
    assert len({row["count"] for row in counts}) == 1


def test_spark_sees_what_was_left_out(spark: Any, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet"
    fleet.mkdir()
    new_file(fleet / "a.db", range(10))
    new_file(fleet / "b.db", range(10, 20))
    half(fleet / "c.db")
    with pytest.raises(Exception, match="ignoreCorruptFiles=true"):
        read(spark, fleet).count()
    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    try:
        assert read(spark, fleet).count() == 20
        stream = read_stream(spark, fleet, startingOffsets="earliest")
    finally:
        spark.conf.unset("spark.sql.files.ignoreCorruptFiles")
    query = queries.run(
        stream.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start
    )
    assert sum(progress.numInputRows for progress in query.recentProgress) == 20
    told = [source.latestOffset for p in query.recentProgress for source in p.sources]
    assert any(str(fleet / "c.db") in (offset or "") for offset in told), told
