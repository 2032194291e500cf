"""`poll_columns`: the same records as `poll` gives, in the same order, and the same positions afterwards.

Method: two consumers with the same settings read the same file, one by each call; what they got, and where
they stand, is compared after each call.
"""

from __future__ import annotations

import sys
from itertools import chain, repeat
from typing import Any

import pytest

import eosdb
from eosdb import ConsumerRecord, PartitionColumns, PolledColumns, ProducerRecord, TopicPartition
from eosdb.model.values import IsolationLevel

pytestmark = pytest.mark.both_roads

TPS = [TopicPartition("t", i) for i in range(2)]
HEADERS = (("h", b"1"), ("none", None))


def as_records(columns: PolledColumns) -> list[ConsumerRecord]:
    def of(part: PartitionColumns) -> Any:
        return zip(
            repeat(part.topic, len(part)), repeat(part.partition), part.offsets, part.timestamps,
            part.timestamp_types, part.keys, part.values, part.headers or repeat(()), strict=False,
        )  # fmt: skip

    return [ConsumerRecord(*fields) for fields in chain.from_iterable(map(of, columns))]


@pytest.fixture
def filled(db: eosdb.Database) -> eosdb.Database:
    """Two partitions with committed, aborted and open transactions, keys, headers and tombstones."""
    db.admin.create_topic("t", partitions=2)
    producer = db.producer(transactional_id="a")
    producer.init_transactions()
    for number in range(9):
        producer.begin_transaction()
        for tp in TPS:
            producer.send_many("t", (f"{number}.{i}" for i in range(50)), partition=tp.partition)
            producer.send(
                "t", None, key="key", partition=tp.partition, headers=HEADERS[: number % 3]
            )
        if number < 8:
            producer.abort_transaction() if number % 4 == 1 else producer.commit_transaction()
    producer.flush()
    db.producer().send_many("t", [ProducerRecord(value="plain", partition=1)])
    return db


@pytest.mark.slow
@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("limit", [None, 1, 7, 130, 10_000])
@pytest.mark.parametrize("of_text", [False, True])
def test_the_same_records_and_positions_as_by_poll(
    filled: eosdb.Database, level: IsolationLevel, limit: int | None, of_text: bool
) -> None:
    config: dict[str, Any] = {"value_deserializer": bytes.decode} if of_text else {}
    consumers = [
        filled.consumer(
            auto_offset_reset="earliest", isolation_level=level, max_poll_records=60, **config
        )
        for _ in range(2)
    ]
    for consumer in consumers:
        consumer.assign(TPS)
    one, other = consumers
    total = 0
    while records := one.poll(max_records=limit):
        columns = other.poll_columns(max_records=limit)
        assert as_records(columns) == records
        assert len(columns) == len(records) <= (limit or 60)
        assert one.position_offsets() == other.position_offsets()
        total += len(records)
        if total == 60:
            for consumer in consumers:
                consumer.seek(TPS[0], 3)
                consumer.pause([TPS[1]])
        elif total > 150:
            for consumer in consumers:
                consumer.resume([TPS[1]])
    assert not other.poll_columns()
    assert total > 600
    counted = [consumer.metrics()["records-consumed-total"] for consumer in consumers]
    assert counted == [total, total]


def test_the_positions_are_those_that_a_group_commits(filled: eosdb.Database) -> None:
    with filled.consumer("g", auto_offset_reset="earliest", enable_auto_commit=True) as consumer:
        consumer.subscribe(["t"])
        got = len(consumer.poll_columns(max_records=70))
    with filled.consumer("g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["t"])
        while columns := consumer.poll_columns():
            got += len(columns)
    assert got == 2 * 6 * 51


def test_what_a_deserializer_refuses_is_met_again_and_what_is_before_it_is_returned(
    filled: eosdb.Database,
) -> None:
    refused: list[bytes] = [b"0.5"]

    def picky(value: bytes) -> str:
        if value in refused:
            raise ValueError(value)
        return value.decode()

    consumer = filled.consumer(auto_offset_reset="earliest", value_deserializer=picky)
    consumer.assign(TPS[:1])
    assert [len(part) for part in consumer.poll_columns()] == [5]
    for _ in range(2):
        with pytest.raises(ValueError, match=r"0\.5"):
            consumer.poll_columns()
        assert consumer.position(TPS[0]) == 5
    refused.clear()
    assert next(iter(consumer.poll_columns())).values[0] == "0.5"


@pytest.mark.parametrize("columns", [False, True])
def test_a_key_that_a_deserializer_refuses_holds_back_its_value_too(
    filled: eosdb.Database, columns: bool
) -> None:
    """Keys are gone through before values, and the record with the refused one is the 51st."""

    def refuses(key: bytes) -> str:
        raise ValueError(key)

    consumer = filled.consumer(auto_offset_reset="earliest", key_deserializer=refuses)
    consumer.assign(TPS[:1])
    found: PolledColumns | list[ConsumerRecord] = (
        consumer.poll_columns() if columns else consumer.poll()
    )
    assert len(found) == consumer.position(TPS[0]) == 50
    with pytest.raises(ValueError, match="key"):
        consumer.poll()


def test_an_arrow_table_has_every_record(filled: eosdb.Database) -> None:
    consumer = filled.consumer(auto_offset_reset="earliest")
    consumer.assign(TPS)
    columns = consumer.poll_columns(max_records=10_000)
    table = columns.to_arrow()
    records = as_records(columns)
    assert len(records) == 2 * 6 * 51
    assert table.column_names == list(ConsumerRecord._fields)
    for name in ("topic", "partition", "offset", "timestamp_type", "key", "value"):
        assert table[name].to_pylist() == [getattr(record, name) for record in records]
    assert str(table["timestamp"].type) == "timestamp[ms, tz=UTC]"
    assert table["timestamp"].cast("int64").to_pylist() == [record.timestamp for record in records]
    assert table["headers"].to_pylist() == [
        [{"name": name, "value": value} for name, value in record.headers] for record in records
    ]
    frame = columns.to_pandas()
    assert frame["value"].tolist() == [record.value for record in records]
    assert frame["headers"].tolist() == [record.headers for record in records]
    assert frame["timestamp"].iloc[0].value == records[0].timestamp * 1_000_000


def test_no_records_are_a_table_without_rows(filled: eosdb.Database) -> None:
    consumer = filled.consumer()
    consumer.assign(TPS)
    columns = consumer.poll_columns()
    assert not columns
    assert columns.to_arrow().num_rows == len(columns.to_pandas()) == 0
    assert str(columns.to_arrow()["value"].type) == "binary"


@pytest.mark.parametrize(("name", "method"), [("pyarrow", "to_arrow"), ("pandas", "to_pandas")])
def test_without_the_package_the_error_names_it(
    filled: eosdb.Database, monkeypatch: pytest.MonkeyPatch, name: str, method: str
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(eosdb.errors.IllegalStateError, match=rf"{method}\(\) needs {name}"):
        getattr(PolledColumns(()), method)()
