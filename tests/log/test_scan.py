"""Scanning a range gives exactly the committed records in it, whatever lies between them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eosdb
from eosdb import ManualClock, Record, RecordBatch, TopicPartition
from eosdb.admin.log import COLUMNS
from eosdb.errors import InvalidRequestError
from tests.random_log import random_log

pytestmark = pytest.mark.both_roads

TP = TopicPartition("t", 0)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_it_is_what_the_view_shows(seed: int) -> None:
    rng = random.Random(seed)
    with eosdb.connect(":memory:", clock=ManualClock(10**12)) as db:
        db.admin.create_topic("t")
        list(random_log(db, rng, rng.randrange(60)))
        stable = db.broker.offsets(TP).last_stable_offset
        for _ in range(6):
            start = rng.randrange(stable + 1)
            end = rng.randrange(start, stable + 1)
            size = rng.randrange(1, 9)
            found = list(db.admin.scan(TP, start, end, columns=("offset",), batch_size=size))
            assert all(0 < len(rows) <= size for rows in found)
            expected = db.query(
                'SELECT "offset" FROM committed_records WHERE "offset" >= ? AND "offset" < ? '
                'ORDER BY "offset"',
                (start, end),
            )
            assert [row for rows in found for row in rows] == list(expected.rows)


def test_every_column_can_be_asked_for(db: eosdb.Database) -> None:
    db.admin.create_topic("t")
    with db.producer() as producer:
        producer.send("t", b"v", key=b"k", headers=[("h", b"1")])
    ((row,),) = db.admin.scan(TP, 0, 1)
    assert dict(zip(COLUMNS, row, strict=True)) | {"timestamp": 0} == {
        "offset": 0, "timestamp": 0, "timestamp_type": 0, "key": b"k", "value": b"v",
        "headers": '[["h","MQ=="]]', "producer_id": 0, "producer_epoch": 0, "sequence": 0,
    }  # fmt: skip
    assert list(db.admin.scan(TP, 0, 0)) == []


@pytest.mark.parametrize(
    ("start", "end", "options"),
    [
        (0, 9, {}),
        (0, 1, {"columns": ("price",)}),
        (0, 1, {"columns": ()}),
        (0, 1, {"batch_size": 0}),
    ],
)
def test_what_cannot_be_scanned_is_refused(
    db: eosdb.Database, start: int, end: int, options: dict[str, object]
) -> None:
    db.admin.create_topic("t")
    db.broker.append(TP, RecordBatch([Record(value=b"v")]))
    with pytest.raises(InvalidRequestError):
        list(db.admin.scan(TP, start, end, **options))  # type: ignore[arg-type]
    db.broker.delete_records(TP, 1)
    with pytest.raises(eosdb.OffsetOutOfRangeError):
        list(db.admin.scan(TP, 0, 1))


def test_what_is_lost_while_it_is_scanned_is_skipped_if_that_is_wanted(db: eosdb.Database) -> None:
    db.admin.create_topic("t")
    db.broker.append(TP, RecordBatch([Record(value=b"%d" % i) for i in range(9)]))
    scans = [
        db.admin.scan(TP, 0, 9, columns=("offset",), batch_size=2, skip_lost=skip_lost)
        for skip_lost in (True, False)
    ]
    assert [next(found) for found in scans] == [[(0,), (1,)]] * 2
    db.broker.delete_records(TP, 5)
    assert list(scans[0]) == [[(5,), (6,)], [(7,), (8,)]]
    with pytest.raises(eosdb.OffsetOutOfRangeError):
        next(scans[1])
