"""A relay's chunk ends at its cut, whatever has been committed or removed meanwhile."""

from __future__ import annotations

import pytest

import eosdb
from eosdb import Record, RecordBatch, TopicPartition
from eosdb.integrations.relay.file_ends import FileSource
from eosdb.integrations.relay.values import RelayLimits

TP = TopicPartition("t", 0)


@pytest.fixture
def compacted(db: eosdb.Database) -> eosdb.Database:
    """The records at 4 and 6 to 9; those before and between are gone."""
    db.admin.create_topic("t", config={"cleanup.policy": "compact", "min.compaction.lag.ms": 0})
    keys = [b"a"] * 5 + [b"b"] * 2 + [b"c", b"d", b"e"]
    for number, key in enumerate(keys):
        db.broker.append(TP, RecordBatch([Record(key=key, value=b"%d" % number)]))
    db.housekeeping()
    found = [record.offset for record in db.broker.fetch(TP, 0).records]
    assert found == [4, 6, 7, 8, 9]
    return db


@pytest.mark.parametrize("end", range(5, 11))
def test_a_range_with_gaps_gives_nothing_from_beyond_its_end(
    compacted: eosdb.Database, end: int
) -> None:
    """So many records as the range has offsets would reach beyond it."""
    chunk = FileSource(compacted)._read_ranges({TP: (0, end)}, 1_000_000)
    assert [record.offset for record in chunk.records] == [o for o in (4, 6, 7, 8, 9) if o < end]
    assert chunk.positions == {TP: end}


def test_what_is_committed_while_it_reads_is_the_next_chunks(
    db: eosdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.admin.create_topic("t")
    producer = db.producer()
    producer.send("t", b"before").result()
    source = FileSource(db)
    source.begin(source.topics(["t"]), {TP: 0})
    read = source._read_ranges

    def late(*args: object) -> object:
        producer.send("t", b"meanwhile").result()
        return read(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(source, "_read_ranges", late)
    assert [record.value for record in source.read(RelayLimits()).records] == [b"before"]
    monkeypatch.undo()
    assert [record.value for record in source.read(RelayLimits()).records] == [b"meanwhile"]
