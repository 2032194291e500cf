"""Reading by the data source: what a read_committed consumer sees, under the Kafka connector's names."""

from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

import eosdb
from eosdb import Record, RecordBatch
from eosdb.spark_io.planning import files, options, plan
from eosdb.spark_io.planning.errors import SparkOptionError
from eosdb.spark_io.reading import tasks
from eosdb.spark_io.source import EosdbDataSource
from tests.cases import each
from tests.readers import committed_values
from tests.spark_io.like_spark import SCHEMA, tables, texts
from tests.spark_io.making import TP0, TP1, fill


def test_a_time_beyond_microseconds_is_named_and_other_columns_are_read(shop: Path) -> None:
    with eosdb.connect(shop) as db:
        (base, *_) = db.broker.append(
            TP0, RecordBatch([Record(b"", b"", (), n) for n in (1, 2**62)])
        )
        db.admin.abort_transaction(TP0, db.broker.offsets(TP0).last_stable_offset)
    given = options.parse({"assign": '{"orders":[0]}'}, streaming=False)
    planned = plan.batch([str(shop)], given)
    said = rf"{shop.name}, orders-0: the record at offset {base + 1} has a timestamp of {2**62} ms"
    with pytest.raises(eosdb.errors.InvalidTimestampError, match=said):
        list(tasks.batches(planned, ("value", "timestamp"), given))
    assert list(tasks.batches(planned, ("value", "offset"), given))


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
        list(tasks.batches(all_of_it, ("offset",), strict))
    left = list(tasks.batches(all_of_it, ("offset",), forgiving))
    assert min(offset for batch in left for offset in batch.column(0).to_pylist()) >= 10


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
    found = tasks.batches([plan.Range(str(path), *TP0, 0, 9)], names, given)
    assert next(found).column("offset").to_pylist() == [0, 1, 2, 3]
    with pytest.raises(eosdb.CorruptRecordError, match=f"{TP0}: the record at offset 4"):
        next(found)


def rows_of(path: Path | str, **options: object) -> list[dict[str, Any]]:
    source = EosdbDataSource({"path": str(path), **texts(options)})
    names = plan.chosen(source.options, is_fleet=files.of_options(source.options).is_fleet)
    reader = source.reader(StructType([StructField(name, BinaryType()) for name in names]))
    return [row for table in tables(reader, reader.partitions()) for row in table.to_pylist()]


def test_open_and_aborted_records_are_for_those_who_ask(shop: Path) -> None:
    seen = [row["value"] for row in rows_of(shop, isolationLevel="read_uncommitted")]
    assert {b"open", b"waits"} <= set(seen)
    assert len(seen) > len(rows_of(shop))


def test_columns_are_chosen_by_option(shop: Path) -> None:
    row = rows_of(shop, columns="offset,producerId,sequence,source_file")[0]
    assert set(row) == {"offset", "producerId", "sequence", "source_file"}
    assert row["source_file"] == str(shop)


@each(
    ("given", "text"),
    [
        ({"subscribe": "nowhere"}, "no nowhere in any of the files"),
        ({"subcribe": "orders"}, "option subcribe is not known"),
        ({"columns": "price"}, "columns: got price"),
        ({"path": "/nothing.db"}, "found nothing"),
    ],
)
def test_a_missing_file_topic_or_option_is_said_by_name(
    shop: Path, given: dict[str, str], text: str
) -> None:
    with pytest.raises(SparkOptionError, match=text):
        rows_of(**{"path": str(shop), **given})


@pytest.mark.slow
def test_many_files_are_one_table(tmp_path: Path) -> None:
    folder = tmp_path / "fleet"
    folder.mkdir()
    expected = []
    for i in range(8):
        path = folder / f"device-{i}.db"
        fill(path, 20, topic=f"t{i % 3}")
        with eosdb.connect(path) as db:
            expected += [
                (str(path), value)
                for tp in db.admin.partition_offsets()
                for value in committed_values(db, tp)
            ]
    for named in (folder, f"{folder}/device-*.db"):
        found = [(row["source_file"], row["value"]) for row in rows_of(named)]
        assert sorted(found) == sorted(expected)
    reader = EosdbDataSource({"path": str(folder)}).reader(SCHEMA)
    assert len(reader.partitions()) == 1, "small files share a task"


@pytest.mark.slow
def test_a_live_file_is_read_whole_transactions_only(db_path: Path) -> None:
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
            reader = EosdbDataSource({"path": str(db_path)}).reader(SCHEMA)
            planned = reader.partitions()
            # More comes between planning and reading.
            with producer.transaction():
                producer.send("orders", f"late {round_}", partition=0)
                producer.send("orders", f"late {round_}", partition=1)
            values = [v for table in tables(reader, planned) for v in table["value"].to_pylist()]
            assert set(Counter(values).values()) == {2}
            assert not any(
                value.endswith(b"-3") or b"late %d" % round_ in value for value in values
            )
