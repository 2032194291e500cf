"""Housekeeping searches all partitions, page by page, and leaves a reserve of free pages in the file."""

from __future__ import annotations

from pathlib import Path

import pytest

import eosdb
from eosdb import ManualClock, Record, RecordBatch, TopicPartition
from eosdb.log import partition_rows
from eosdb.maintenance import housekeeping
from eosdb.store import space
from eosdb.store.space import Pages
from tests.maintenance import everything


@pytest.mark.parametrize("page", [1, 2, 4, 5, 100])
def test_partitions_behind_the_first_page_are_looked_at(
    db: eosdb.Database, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr(partition_rows, "_PAGE", page)
    monkeypatch.setattr(housekeeping, "_TOPICS_A_STEP", page)
    for name in ("t", "u", "v"):
        db.admin.create_topic(name, partitions=2, config={"retention.ms": 1_000})
    tps = [TopicPartition(name, number) for name in ("t", "u", "v") for number in range(2)]
    for tp in tps:
        db.broker.append(tp, RecordBatch([Record(value=b"v")]))
    clock.advance(1_001)
    assert db.housekeeping().deleted_records == len(tps)
    assert [db.broker.offsets(tp).log_start_offset for tp in tps] == [1] * len(tps)
    raw = everything.raw(Path(db.path))
    assert raw.execute("SELECT count(*) FROM records").fetchone() == (0,)
    raw.close()


def test_each_partition_is_treated_by_the_settings_of_its_topic(
    db: eosdb.Database, clock: ManualClock
) -> None:
    configs: dict[str, dict[str, object]] = {
        "kept": {"retention.ms": -1},
        "default": {},
        "by_time": {"retention.ms": 1_000},
        "small": {"retention.ms": -1, "retention.bytes": 2},
        "large": {"retention.bytes": 4},
        "compacted": {"cleanup.policy": "compact", "retention.ms": 1},
        "of_the_future": {"retention.ms": 1_000},
    }
    for name, config in configs.items():
        db.admin.create_topic(name, config=config)
        later_ms = 1_000_000 if name == "of_the_future" else 0
        record = Record(key=b"k", value=b"v", timestamp=clock.time_ms() + later_ms)
        db.broker.append(TopicPartition(name, 0), RecordBatch([record] * 2))
    clock.advance(1_001)
    db.housekeeping()
    starts = {name: db.broker.offsets(TopicPartition(name, 0)).log_start_offset for name in configs}
    assert {name for name, start in starts.items() if start} == {
        "by_time",
        "small",
        "of_the_future",
    }


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
