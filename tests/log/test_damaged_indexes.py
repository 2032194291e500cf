"""One damaged cell of an index serves no record for another, none twice, none from an aborted transaction,
and leaves none out: a reader is given what it asked for, or an error that says the file is damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

import eosdb
from eosdb import AbortedTransaction, LogRecord, Record, RecordBatch, TopicPartition
from eosdb.admin.tools import Tools
from eosdb.errors import CorruptDatabaseError, CorruptRecordError
from eosdb.integrations import arrow
from eosdb.log.partition_rows import Partition
from eosdb.log.reading import row_check
from tests.cases import each
from tests.log import damaged_cells

pytestmark = pytest.mark.simulation

TPS: Final = (TopicPartition("t", 0), TopicPartition("t", 1))
EACH: Final = 4
"""Damages of each index, times the seeds."""
INDEXES: Final = (
    "records_offset",
    "records_sequence",
    "transaction_index",
    "transaction_index_producer",
    "time_index",
    "sqlite_autoindex_partitions_1",
    "sqlite_autoindex_topics_1",
)
START: Final = 1_700_000_000_000


def filled(path: Path) -> None:
    """Two partitions with the same offsets, so that a record of the other one would fit; every third
    transaction is aborted. Indexes have more than one page, and the time index has entries."""
    clock = eosdb.ManualClock(START)
    with eosdb.connect(path, clock=clock, durability="off") as db:
        db.admin.create_topic("t", partitions=2)
        producers = [db.producer(transactional_id=f"p{i}") for i in range(3)]
        for producer in producers:
            producer.init_transactions()
        for i in range(90):
            producer = producers[i % 3]
            producer.begin_transaction()
            for tp in TPS:
                for j in range(3):
                    producer.send("t", b"%d %d" % (i, j), key=b"k%d" % i, partition=tp.partition)
            producer.flush()
            producer.commit_transaction() if i % 4 else producer.abort_transaction()
            clock.advance(10)
        for i in range(8):
            batch = RecordBatch([Record(value=bytes([i]) * 40_000, timestamp=clock.time_ms() - 5)])
            for tp in TPS:
                db.broker.append(tp, batch)
            clock.advance(100)
        db.housekeeping()


Found = Iterator[tuple[Any, ...]]


def by_poll(db: eosdb.Database, tp: TopicPartition, start: int) -> Found:
    with db.consumer(max_poll_records=100) as consumer:
        consumer.assign([tp])
        consumer.seek(tp, start)
        while found := consumer.poll():
            for record in found:
                yield record.partition, record.offset, record.key, record.value


def by_columns(db: eosdb.Database, tp: TopicPartition, start: int) -> Found:
    with db.consumer() as consumer:
        consumer.assign([tp])
        consumer.seek(tp, start)
        while found := consumer.poll_columns(max_records=150):
            for part in found.parts:
                for offset, key, value in zip(part.offsets, part.keys, part.values, strict=True):
                    yield part.partition, offset, key, value


def by_scan(db: eosdb.Database, tp: TopicPartition, start: int) -> Found:
    end = db.broker.offsets(tp).last_stable_offset
    for rows in db.admin.scan(tp, start, end, columns=("offset", "key", "value"), batch_size=90):
        for row in rows:
            yield tp.partition, *row


def by_arrow(db: eosdb.Database, tp: TopicPartition, start: int) -> Found:
    end = db.broker.offsets(tp).last_stable_offset
    for batch in arrow.batches(db.admin, tp, start, end, ("offset", "key", "value")):
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield tp.partition, *row


def by_fetch(db: eosdb.Database, tp: TopicPartition, start: int) -> Found:
    while True:
        fetched = db.broker.fetch(tp, start, isolation_level="read_committed", max_records=70)
        if not fetched.records:
            return
        for record in visible(fetched.records, fetched.aborted_transactions):
            yield tp.partition, record.offset, record.key, record.value
        start = fetched.next_offset


def visible(
    records: Sequence[LogRecord], aborted: Sequence[AbortedTransaction]
) -> Iterator[LogRecord]:
    for record in records:
        if record.control is None and not any(
            entry.producer_id == record.producer_id
            and entry.first_offset <= record.offset < entry.last_offset
            for entry in aborted
            if record.is_transactional
        ):
            yield record


def by_time(db: eosdb.Database, tp: TopicPartition, start: int) -> Found:
    """The same for lookups by time: one here and there."""
    for at in range(START + start, START + 2_000, 333):
        yield db.broker.list_offsets(tp, at)
        yield (Tools(db.admin).first_record_at(tp, at),)


FACES: dict[str, Callable[[eosdb.Database, TopicPartition, int], Found]] = {
    "poll": by_poll,
    "poll_columns": by_columns,
    "scan": by_scan,
    "arrow": by_arrow,
    "fetch": by_fetch,
    "times": by_time,
}
STARTS: Final = (0, 200)


def read(path: Path, face: str, start: int) -> tuple[list[Any], bool]:
    """What is served of both partitions, and whether all of it is: an error says that it is not."""
    found: list[Any] = []
    try:
        with eosdb.connect(path, read_only=True) as db:
            for tp in TPS:
                found.extend(FACES[face](db, tp, start))
    except (CorruptDatabaseError, CorruptRecordError):
        return found, False
    return found, True


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "whole.db"
    filled(path)
    return path


def test_whatever_cell_is_damaged_what_is_served_is_right(
    whole: Path, tmp_path: Path, seeds: list[int]
) -> None:
    each = EACH * len(seeds)
    right = {(face, start): read(whole, face, start) for face in FACES for start in STARTS}
    assert all(complete and found for found, complete in right.values())
    told, wrong = 0, []
    for damage in damaged_cells.damages(whole, INDEXES, each):
        path = tmp_path / "damaged.db"
        path.write_bytes(damage.data)
        for (face, start), (expected, _) in right.items():
            found, complete = read(path, face, start)
            told += not complete
            if found != expected[: len(found)] or (complete and found != expected):
                wrong.append((face, start, damage.what))
    assert not wrong
    assert told, "some of the damage is met"


@each(
    ("offsets", "clean_offset", "sound"),
    [
        ([3, 4, 5], 0, 3),
        ([], 0, 0),
        ([3, 5, 6], 0, 1),
        ([4, 5, 6], 0, 0),
        ([3, 4, 4, 5], 0, 2),
        ([3, 4, 3, 5], 0, 2),
        ([3, 4, 10], 0, 2),
        ([3, None, 5], 0, 1),
        ([4, 7, 8, 9], 8, 4),
        ([4, 7, 9], 8, 2),
        ([4, 7, 6, 8], 8, 2),
        ([4, 4, 8], 8, 1),
        ([2, 4], 8, 0),
        ([5, 9, 10], 10, 2),
        ([3, 4, 5, 6, 7, 8, 9, 10], 0, 7),
    ],
)
def test_offsets_equal_what_was_asked_for_or_rise_within_it(
    offsets: list[int | None], clean_offset: int, sound: int
) -> None:
    partition = Partition(1, 1, "t", 0, 0, 10, 10, -1, 0, -1, -1, -1, 0, clean_offset, 0, -1, 0)
    assert row_check.sound(partition, offsets, 3, 10) == sound


def test_a_topic_whose_row_an_index_does_not_find_is_not_unknown(tmp_path: Path) -> None:
    path = tmp_path / "one.db"
    with eosdb.connect(path) as db:
        db.admin.create_topic("t")
        db.producer().send("t", b"v").result()
    entry = b"\x05\x04\x0f\x08\x09t"  # A text of one letter, 0, and 1 for the row.
    data = path.read_bytes()
    assert data.count(entry) == 1
    path.write_bytes(data.replace(entry, entry[:-1] + b"u"))
    with (
        eosdb.connect(path, read_only=True) as db,
        pytest.raises(CorruptDatabaseError, match="partitions: the index does not lead to"),
    ):
        db.broker.fetch(TopicPartition("t", 0), 0)
