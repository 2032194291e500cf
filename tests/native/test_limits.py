"""What is read at once, and what is left to the way row by row: what is larger than the room, or lacks a
row."""

from __future__ import annotations

from pathlib import Path

import pytest

import eosdb
from eosdb import Record, RecordBatch, TopicPartition
from eosdb.log import partition_rows
from eosdb.log.reading import block
from eosdb.model.fetched import Want
from tests.maintenance import everything
from tests.native.roads import ROADS, road

TP = TopicPartition("t", 0)


def given_at_once(db: eosdb.Database, max_bytes: int) -> int | None:
    """How many of the records come at once; None if it is left to the other way."""
    with db._store.read() as connection:
        partition = partition_rows.read(connection, TP)
        end = partition.log_end_offset
        found = block.read_whole(connection, partition, 0, end, Want.SHOWN, max_bytes)
    return None if found is None else len(found[0].offset)


def test_not_more_than_the_room_is_read_at_once_whatever_the_caller_allows(
    db: eosdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert block._ROOM == 8 << 20
    db.admin.create_topic("t")
    db.broker.append(TP, RecordBatch([Record(value=b"v" * 100)] * 10))
    monkeypatch.setattr(block, "_ROOM", 1_000)
    with road("1"):
        assert given_at_once(db, 1 << 30) == 10
        assert given_at_once(db, 999) is None
        monkeypatch.setattr(block, "_ROOM", 999)
        assert given_at_once(db, 1 << 30) is None
    assert db.broker.fetch_data(TP, 0).size == 10


@pytest.mark.parametrize("sizes", [(100, 900), (900, 100), (0, 1_000), (500, 250, 250)])
def test_keys_values_and_headers_of_all_records_count(
    db: eosdb.Database, monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...]
) -> None:
    """In C, which sees each record, and not only by the partition's mean."""
    db.admin.create_topic("t")
    db.broker.append(TP, RecordBatch([Record(b"k" * (n // 2), b"v" * (n - n // 2)) for n in sizes]))
    monkeypatch.setattr(partition_rows.Partition, "size_bytes", 0)
    with road("1"):
        assert given_at_once(db, 1_000) == len(sizes)
        assert given_at_once(db, 999) is None


@pytest.mark.parametrize("gone", [0, 4, 9])
def test_a_range_that_lacks_a_row_is_not_read_at_once(db: eosdb.Database, gone: int) -> None:
    db.admin.create_topic("t")
    db.broker.append(TP, RecordBatch([Record(value=b"v")] * 10))
    raw = everything.raw(Path(db.path))
    raw.execute('DELETE FROM records WHERE "offset" = ?', (gone,))
    raw.close()
    with road("1"):
        assert given_at_once(db, 1_000) is None
        with db._store.read() as connection:
            partition = partition_rows.read(connection, TP)
            for want in Want:
                assert block.read_whole(connection, partition, 0, 10, want, 1_000) is None


@pytest.mark.parametrize("setting", ROADS)
def test_times_that_come_again_are_those_of_their_records(db_path: Path, setting: str) -> None:
    """A value is taken over from the row before, and from no other."""
    times = [5, 9, 9, 7, 7, 5, 5, 9, 5]
    with road(setting), eosdb.connect(db_path, durability="off") as db:
        db.admin.create_topic("t", config={"retention.ms": -1})
        db.broker.append(TP, RecordBatch([Record(value=b"v", timestamp=time) for time in times]))
        assert [*db.broker.fetch_data(TP, 0).rows.timestamp] == times
        assert db.verify().ok
