"""Rows on their way into the log, without a session: their partitions, and what a write says it holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import eosdb
from eosdb import TopicPartition
from eosdb.model.records.partitioner import partitioner_of
from eosdb.spark_io.writing.outgoing import Outgoing, as_bytes, parse
from eosdb.spark_io.writing.writes import rows_of

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture
def path(db_path: Path) -> Path:
    with eosdb.connect(db_path, durability="off") as db:
        db.admin.create_topic("t", partitions=5)
        db.admin.create_topic("u", partitions=2)
    return db_path


def batch(**columns: Sequence[Any]) -> pa.RecordBatch:
    types = {"headers": HEADERS, "timestamp": pa.timestamp("us", "UTC"), "partition": pa.int32()}
    arrays = [pa.array(cells, types.get(name)) for name, cells in columns.items()]
    return as_bytes(pa.RecordBatch.from_arrays(arrays, list(columns)))


def outgoing(db: eosdb.Database, topic: str | None = "t", **options: str) -> Outgoing:
    given = {"path": str(db.path), **options} | ({} if topic is None else {"topic": topic})
    return Outgoing(db, parse(given, {"value": "binary", "topic": "string"}))


@pytest.mark.parametrize("partitioner", ["consistent_random", "murmur2_random"])
def test_records_go_where_the_producer_sends_their_keys_in_the_order_of_the_rows(
    path: Path, partitioner: str
) -> None:
    keys = [b"%d" % (i % 300) for i in range(900)]
    batches = [
        batch(key=keys[i : i + 90], value=[b"%d" % n for n in range(i, i + 90)])
        for i in range(0, 900, 90)
    ]
    with eosdb.connect(path) as db:
        found: dict[TopicPartition, list[int]] = {}
        for tp, records in outgoing(db, partitioner=partitioner).pairs(batches):
            found.setdefault(tp, []).extend(int(record.value or b"") for record in records)
    choose = partitioner_of(partitioner)
    assert found == {
        TopicPartition("t", p): of_it
        for p in range(5)
        if (of_it := [i for i, key in enumerate(keys) if choose(key, 5) == p])
    }


def test_a_row_may_name_its_topic_and_its_partition(path: Path) -> None:
    given = batch(
        key=[b"a", None, b"c", b"d", None],
        value=[b"1", b"2", None, b"4", b"5"],
        topic=["u", "t", "t", "u", "t"],
        partition=[1, 4, 4, None, 3],
        headers=[[{"key": "h", "value": b"x"}], None, [], None, [{"key": "n", "value": None}]],
        timestamp=[1_000, None, 3_000, None, 5_000],
    )
    with eosdb.connect(path) as db:
        found = {tp: list(records) for tp, records in outgoing(db, None).pairs([given])}
        place = TopicPartition("u", partitioner_of("consistent_random")(b"d", 2))
    last = eosdb.Record(b"d", b"4")
    first = eosdb.Record(b"a", b"1", (("h", b"x"),), 1)
    assert found.pop(TopicPartition("t", 4)) == [(None, b"2", (), None), (b"c", None, (), 3)]
    assert found.pop(TopicPartition("t", 3)) == [(None, b"5", (("n", None),), 5)]
    assert [record[:2] for record in found[place]][-1] == last[:2]
    assert first in found[TopicPartition("u", 1)]


def test_rows_have_the_same_digest_in_any_order_and_others_another() -> None:
    rows = [(b"a", b"b"), (b"c", None), (None, b""), (b"", b"c"), (b"a", b"b")]

    def digest(*parts: list[tuple[Any, Any]]) -> str:
        made = [batch(key=[k for k, _ in part], value=[v for _, v in part]) for part in parts]
        return str(rows_of(made))

    assert digest(rows) == digest(rows[3:], rows[::-1][2:])
    assert digest(rows).startswith("rows2 5:")
    for other in (
        rows[1:],
        [*rows[1:], (b"b", b"a")],
        [(b"ab", b""), *rows[1:]],
        [(b"a", b"c"), (b"c", b"b"), *rows[2:]],
        [(b"a", b"b"), (b"c", b""), *rows[2:]],
        [(b"a", b"b"), (b"c", None), (None, None), *rows[3:]],
    ):
        assert digest(other) != digest(rows)
