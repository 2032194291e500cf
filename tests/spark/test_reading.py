"""Reading by the data source: what a read_committed consumer sees, under the Kafka connector's names."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import Record, RecordBatch
from eosdb.spark_io import read, register
from eosdb.spark_io.planning import options, plan
from eosdb.spark_io.reading import batches as reading
from tests.readers import committed_values
from tests.spark.conftest import TP0, TP1, fill, values

pytestmark = pytest.mark.spark


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
    rows = read(spark, shop, subscribe="orders").orderBy("partition", "offset").collect()
    with eosdb.connect(shop) as db, db.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([TP0, TP1])
        seen = []
        while batch := consumer.poll():
            seen += batch
    seen.sort(key=lambda record: (record.partition, record.offset))
    assert [(r.partition, r.offset, r.key, r.value) for r in rows] == [
        (s.partition, s.offset, s.key, s.value) for s in seen
    ]
    assert {row.topic for row in rows} == {"orders"}
    assert rows[0].timestamp == datetime.fromtimestamp(seen[0].timestamp / 1000, UTC).replace(
        tzinfo=None
    )


def test_open_and_aborted_records_are_for_those_who_ask(spark: Any, shop: Path) -> None:
    seen = values(read(spark, shop, isolationLevel="read_uncommitted"))
    assert b"open" in seen
    assert b"waits" in seen
    assert len(seen) > read(spark, shop).count()


def test_headers_come_along(spark: Any, shop: Path) -> None:
    frame = read(spark, shop, includeHeaders=True)
    row = next(row for row in frame.collect() if row.headers)
    assert [(h.key, h.value) for h in row.headers] == [("h", b"\x00"), ("n", None)]


def test_columns_are_chosen_by_option_or_schema(spark: Any, shop: Path) -> None:
    frame = read(spark, shop, columns="offset,producerId,sequence,source_file")
    row = frame.first()
    assert row is not None
    assert row.source_file == str(shop)
    register(spark)
    typed = spark.read.format("eosdb").schema("partition int, offset bigint").load(str(shop))
    assert typed.count() == frame.count()
    assert spark.read.format("eosdb").load(str(shop)).count() == frame.count()


@pytest.mark.parametrize(
    "condition",
    [
        "partition = 1", "partition in (0, 5)", "topic = 'orders'", "topic = 'nothing'", "offset = 7",
        "offset >= 5 and offset < 20", "offset > 5 and offset <= 20 and partition = 0",
        "offset < 3 or offset > 30", "partition = 0 and value like '%1%'", "key is null",
        "offset >= 1000", "partition + 1 = 2",
    ],
)  # fmt: skip
def test_filters_find_what_they_find_among_plain_rows(
    spark: Any, shop: Path, condition: str
) -> None:
    everything = read(spark, shop).collect()
    plain = spark.createDataFrame(everything, read(spark, shop).schema)
    expected = sorted((r.partition, r.offset) for r in plain.where(condition).collect())
    found = read(spark, shop).where(condition).collect()
    assert sorted((r.partition, r.offset) for r in found) == expected


def test_tasks_are_as_many_as_asked_for(spark: Any, shop: Path) -> None:
    assert read(spark, shop).rdd.getNumPartitions() == 1
    assert read(spark, shop, minPartitions=4).rdd.getNumPartitions() >= 4
    assert values(read(spark, shop, minPartitions=4)) == values(read(spark, shop))
    assert read(spark, shop, maxRecordsPerPartition=10).rdd.getNumPartitions() >= 6


def test_what_retention_takes_between_planning_and_reading_is_an_error_unless_allowed(
    shop: Path,
) -> None:
    planned = plan.batch([str(shop)], options.parse({"assign": '{"orders":[0]}'}, streaming=False))
    (all_of_it,) = plan.split(planned, options.parse({}, streaming=False))
    with eosdb.connect(shop) as db:
        db.broker.delete_records(TP0, 10)
    strict, forgiving = (
        options.parse({"failOnDataLoss": word}, streaming=False) for word in ("true", "false")
    )
    with pytest.raises(eosdb.OffsetOutOfRangeError, match="failOnDataLoss=false"):
        list(reading.batches(all_of_it, ("offset",), strict))
    left = list(reading.batches(all_of_it, ("offset",), forgiving))
    assert min(offset for batch in left for offset in batch.column(0).to_pylist()) >= 10


def test_a_missing_file_topic_or_option_is_said_by_name(spark: Any, shop: Path) -> None:
    for given, text in (
        ({"subscribe": "nowhere"}, "no nowhere in any of the files"),
        ({"subcribe": "orders"}, "option subcribe is not known"),
        ({"columns": "price"}, "columns: got price"),
    ):
        with pytest.raises(Exception, match=text):
            read(spark, shop, **given).collect()
    with pytest.raises(Exception, match="no such file"):
        read(spark, shop.parent / "nothing.db").collect()


def test_many_files_are_one_table(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "fleet"
    folder.mkdir()
    expected = []
    for i in range(30):
        fill(folder / f"device-{i:02}.db", 20, topic=f"t{i % 3}")
        with eosdb.connect(folder / f"device-{i:02}.db") as db:
            expected += [
                (f"device-{i:02}.db", value)
                for tp in db.admin.partition_offsets()
                for value in committed_values(db, tp)
            ]
    for path in (folder, f"{folder}/device-*.db", sorted(folder.glob("*.db"))):
        rows = read(spark, path).collect()
        found = [(Path(row.source_file).name, bytes(row.value)) for row in rows]
        assert sorted(found) == sorted(expected)
    assert read(spark, folder).rdd.getNumPartitions() < 5, "small files share tasks"
    one = read(spark, folder).where(f"source_file = '{folder}/device-07.db'")
    assert one.count() == sum(name == "device-07.db" for name, _ in expected)


def test_a_live_file_is_read_whole_transactions_only(spark: Any, db_path: Path) -> None:
    with eosdb.connect(db_path, durability="off") as db:
        db.admin.create_topic("orders", partitions=2)
        producer = db.producer(transactional_id="x")
        producer.init_transactions()
        for round_ in range(12):
            for i in range(5):
                producer.begin_transaction()
                for tp in (TP0, TP1):
                    producer.send("orders", f"{round_}-{i}", partition=tp.partition)
                producer.abort_transaction() if i == 3 else producer.commit_transaction()
            frame = read(spark, db_path)
            # More comes between planning and reading.
            with producer.transaction():
                producer.send("orders", f"late {round_}", partition=0)
                producer.send("orders", f"late {round_}", partition=1)
            by_value: dict[bytes, int] = {}
            for value in values(frame):
                by_value[value] = by_value.get(value, 0) + 1
            assert set(by_value.values()) == {2}
            assert not any(value[-2:] == b"-3" for value in by_value)
        db.broker.append(TP0, RecordBatch([Record(value=b"x")]))


def test_a_damaged_record_is_no_row(tmp_path: Path) -> None:
    """Kafka's connector reads with a consumer, which checks CRCs, and so does this source."""
    path = tmp_path / "damaged.db"
    with eosdb.connect(path) as db:
        db.admin.create_topic(TP0.topic)
        db.broker.append(TP0, RecordBatch([Record(value=b"%d" % i) for i in range(9)]))
    with sqlite3.connect(path) as file:
        file.execute("DROP TRIGGER records_refuse_update")
        file.execute("UPDATE records SET value = X'6F' WHERE \"offset\" = 4")
    file.close()
    names = ("offset", "value")
    given = options.parse({}, streaming=False)
    found = reading.batches([plan.Range(str(path), *TP0, 0, 9)], names, given)
    assert next(found).column("offset").to_pylist() == [0, 1, 2, 3]
    with pytest.raises(eosdb.CorruptRecordError, match=f"{TP0}: the record at offset 4"):
        next(found)
