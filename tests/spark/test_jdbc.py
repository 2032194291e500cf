"""Views through Spark's JDBC: types, and one consistent cut while writers are at work."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import OffsetAndMetadata, Record, RecordBatch, TopicPartition
from eosdb.spark_io import jdbc_options, read_jdbc
from tests.spark_io.making import TP0, TP1
from tests.spark_io.test_consistency import consumed, no_transaction_in_part, written

__all__ = ["written"]

pytestmark = pytest.mark.usefixtures("with_jdbc")

BIG = 5_000_000_000


def test_records_are_those_of_the_view_with_64_bits(spark: Any, shop: Path) -> None:
    with eosdb.connect(shop) as db:
        db.broker.append(TP1, RecordBatch([Record(b"\xff", b"late", (), BIG * 1000)]))
    frame = read_jdbc(spark, shop)
    types = {field.name: field.dataType.simpleString() for field in frame.schema}
    assert types["offset"] == types["timestamp"] == types["partition"] == "bigint"
    assert types["key"] == types["value"] == "binary"
    assert types["topic"] == "string"
    with eosdb.connect(shop, read_only=True) as db:
        rows = db.query('SELECT * FROM committed_records ORDER BY partition, "offset"').rows
        expected = [tuple(row) for row in rows]
    found = [
        tuple(bytes(v) if isinstance(v, bytearray) else v for v in row)
        for row in frame.orderBy("partition", "offset").collect()
    ]
    assert found == expected
    assert frame.where(f"timestamp > {BIG}").where("key = X'FF'").count() == 1


VIEWS = [
    "all_records", "partition_offsets", "producer_states", "transactions", "transaction_history",
    "record_batches", "aborted_transactions", "consumer_offsets", "pending_offsets",
    "producer_snapshots", "journal",
]  # fmt: skip


def test_every_view_can_be_read(spark: Any, shop: Path) -> None:
    with eosdb.connect(shop) as db:
        db.broker.offset_commit("g", {TP0: OffsetAndMetadata(1)})
        db.take_snapshot()
    columns = {"INTEGER": "bigint", "TEXT": "string", "BLOB": "binary", "REAL": "double"}
    for view in VIEWS:
        frame = read_jdbc(spark, shop, view=view)
        with eosdb.connect(shop, read_only=True) as db:
            expected = {name: columns[kind] for name, kind in db.columns(view).items()}
            count = sum(1 for _ in db.query(f"SELECT 1 FROM {view}").rows)
        assert {f.name: f.dataType.simpleString() for f in frame.schema} == expected, view
        found = len(frame.collect())
        assert found == count or view == "all_records", (
            view
        )  # This one ends where readers may read to.


def test_a_typed_view_keeps_its_types(spark: Any, db_path: Path) -> None:
    with eosdb.connect(db_path) as db:
        db.admin.create_topic("flights")
        db.admin.create_view("f", "flights", {"carrier": "TEXT", "delay": "INTEGER", "km": "REAL"})
        with db.producer() as producer:
            for i in range(10):
                flight = {"carrier": "UA", "delay": None if i == 0 else i * BIG, "km": i / 2}
                producer.send("flights", json.dumps(flight))
    frame = read_jdbc(spark, db_path, view="f")
    types = {field.name: field.dataType.simpleString() for field in frame.schema}
    assert types == {
        "carrier": "string", "delay": "bigint", "km": "double", "_partition": "bigint",
        "_offset": "bigint", "_timestamp": "bigint", "_key": "string",
    }  # fmt: skip
    assert frame.selectExpr("sum(delay)", "max(km)").collect() == [(45 * BIG, 4.5)]
    assert frame.where("carrier = 'UA' AND delay IS NULL").count() == 1
    assert frame.where("km < double('Infinity') AND km <> double('NaN')").count() == 10


def test_jdbc_reads_what_a_pinned_consumer_reads(
    spark: Any, written: Path, request: pytest.FixtureRequest
) -> None:
    for _ in range(request.config.getoption("--seeds")):
        options = jdbc_options(written, rows_per_task=50)
        frame = spark.read.jdbc(
            options.url,
            options.table,
            predicates=list(options.predicates),
            properties=options.options,
        )
        seen: dict[TopicPartition, list[tuple[int, bytes]]] = {TP0: [], TP1: []}
        for row in frame.select("partition", "offset", "value").collect():
            seen[TopicPartition("orders", row.partition)].append((row.offset, bytes(row.value)))
        seen = {tp: sorted(found) for tp, found in seen.items()}
        ends = {TP0: 0, TP1: 0}
        for partition, end in re.findall(
            r'"partition" = (\d) .*?"offset" < (\d+)', " ".join(options.predicates)
        ):
            tp = TopicPartition("orders", int(partition))
            ends[tp] = max(ends[tp], int(end))
        assert seen == consumed(written, ends)
        no_transaction_in_part(seen)


LIKE = [
    f"{negated}{form}"
    for negated in ("", "NOT ")
    for form in (
        "name LIKE 'a%'", "name LIKE '%A'", "startswith(name, 'an')", "contains(name, 'NN')",
        "endswith(name, 'na')", r"startswith(name, 'a_')", r"contains(name, '\\\\')", "contains(name, '%')",
        "name IN ('anna', 'x')", "name > 'a'",
    )
]  # fmt: skip


def test_a_filter_finds_the_same_rows_in_sqlite_as_in_spark(spark: Any, db_path: Path) -> None:
    names = ["Anna", "anna", "ANNA", "a_b", "axb", "A%b", "a\\b", "a'b", "", None, "äÄ"]
    with eosdb.connect(db_path) as db:
        db.admin.create_topic("t")
        db.admin.create_view("order", "t", {"name": "TEXT"})
        with db.begin() as tx:
            for name in names:
                tx.publish("t", json.dumps({"name": name}))
    frame = read_jdbc(spark, db_path, view="order")
    local = spark.createDataFrame(frame.collect(), frame.schema)
    both = {
        like: [sorted(f"{row.name}" for row in one.where(like).collect()) for one in (frame, local)]
        for like in LIKE
    }
    assert {like: rows for like, rows in both.items() if rows[0] != rows[1]} == {}
    with pytest.raises(Exception, match="unrecognized token"):  # SQLite's SQL ends at the byte 0.
        frame.where("name = 'a\\u0000b'").count()
    assert frame.where("CAST(name AS BINARY) = X'610062'").count() == 0
    assert frame.where("CAST(name AS BINARY) = X'416E6E61'").count() == 1
