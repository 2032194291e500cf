"""Housekeeping looks at every partition, page by page, and leaves a reserve of free pages in the file."""

from __future__ import annotations

import pytest

import eosdb
from eosdb import ManualClock, Record, RecordBatch, TopicPartition
from eosdb.log import partition_rows
from eosdb.store import space
from eosdb.store.space import Pages


@pytest.mark.parametrize("page", [1, 2, 4, 5, 100])
def test_partitions_behind_the_first_page_are_looked_at(
    db: eosdb.Database, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr(partition_rows, "_PAGE", page)
    db.admin.create_topic("t", partitions=5, config={"retention.ms": 1_000})
    tps = [TopicPartition("t", number) for number in range(5)]
    for tp in tps:
        db.broker.append(tp, RecordBatch([Record(value=b"v")]))
    clock.advance(1_001)
    assert db.housekeeping().deleted_records == 5
    assert [db.broker.offsets(tp).log_start_offset for tp in tps] == [1] * 5


@pytest.mark.parametrize(
    ("total", "free", "surplus"),
    [
        (1_000, 256, 0),
        (1_000, 257, 1),
        (8_000, 1_000, 0),
        (8_000, 1_001, 1),
        (800, 700, 444),
        (100, 99, 0),
    ],
)
def test_256_pages_or_an_eighth_of_the_file_stay_free(
    db: eosdb.Database, monkeypatch: pytest.MonkeyPatch, total: int, free: int, surplus: int
) -> None:
    monkeypatch.setattr(space, "pages", lambda _: Pages(total, free, 4_096))
    with db._store.read() as connection:
        assert space.surplus(connection) == surplus
        monkeypatch.setattr(space, "gives_back", lambda _: False)
        assert space.surplus(connection) == 0
