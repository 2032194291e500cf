"""The checksum of a record fits whatever the record is, and nothing but that."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

import eosdb
from eosdb import Record, RecordBatch, TopicPartition
from eosdb.log import checksum

pytestmark = pytest.mark.both_roads

TP = TopicPartition("t", 0)
LATE = 2**63 - 1
TIMES: dict[str, Callable[[int], int]] = {
    "one time": lambda i: 10**12,
    "running times": lambda i: 10**12 + i * 3,
    "the last times there are": lambda i: LATE - i,
    "some late ones": lambda i: LATE if i % 7 == 0 else i,
}


def check(path: Path, count: int) -> None:
    connection = sqlite3.connect(path)
    rows = connection.execute(
        f"SELECT key, value, headers, {checksum.CONTENT}, {checksum.CONTENT_GIVEN} "
        "FROM (SELECT ? AS asked, * FROM records) WHERE partition_id = asked AND control IS NULL",
        (1,),
    ).fetchall()
    connection.close()
    keys, values, headers, found, given = zip(*rows, strict=True)
    assert list(found) == list(given) == checksum.content_sums(keys, values, headers)
    assert len(rows) == count


@pytest.mark.slow
@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("size", [1, 8, 9, 300])
def test_it_fits_after_every_way_of_writing(
    db: eosdb.Database, db_path: Path, times: str, size: int
) -> None:
    db.admin.create_topic("t")
    records = [
        Record(b"k" if i % 3 else None, b"%d" % i if i % 5 else None, timestamp=TIMES[times](i))
        for i in range(size)
    ]
    who = db.broker.init_producer_id()
    db.broker.append(TP, RecordBatch(records, *who, 0))
    db.broker.append(TP, RecordBatch(records))
    check(db_path, 2 * size)
    assert db.verify().ok


def test_it_fits_where_a_number_begins_anew(db: eosdb.Database, db_path: Path) -> None:
    """A remainder within the checksum, or the sequence itself."""
    db.admin.create_topic("t")
    for base in (32_749 - 50, 2**31 - 50):
        who = db.broker.init_producer_id()
        records = [Record(value=b"%d" % i) for i in range(100)]
        db.broker.append(TP, RecordBatch(records, *who, base))
    check(db_path, 200)
    assert db.verify().ok


@pytest.mark.parametrize("size", [5_552, 5_553, 9_000, 70_000])
@pytest.mark.parametrize("byte", [b"\xff", b"\0", b"x"])
def test_it_fits_whatever_a_record_is_made_of_and_however_long_it_is(
    db: eosdb.Database, db_path: Path, size: int, byte: bytes
) -> None:
    """Sums of large bytes are the first that no longer fit into a word."""
    db.admin.create_topic("t")
    db.broker.append(TP, RecordBatch([Record(byte * size, byte * size), Record(value=byte * size)]))
    check(db_path, 2)
    assert len(db.broker.fetch(TP, 0).records) == 2
    assert db.verify().ok


def test_nothing_is_not_the_same_as_what_is_empty_or_elsewhere() -> None:
    sums = checksum.content_sums
    found = {
        tuple(sums([key], [value], [text]))
        for key in (None, b"", b"a")
        for value in (None, b"", b"a")
        for text in (None, "", "a")
    }
    assert len(found) == 27
