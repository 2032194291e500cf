"""tests/data/json_members.db: two static members of "g", i0 and i1, which closed their consumers when these
still wrote JSON."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb import ManualClock, TopicPartition

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
CLOSED_AT_MS = 1_700_000_013_000
HALVES = [{TopicPartition("t", p) for p in half} for half in ((0, 1), (2, 3))]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start_ms=CLOSED_AT_MS)


@pytest.fixture
def db(db_path: Path, clock: ManualClock) -> Iterator[eosdb.Database]:
    shutil.copy(ROOT / "tests/data/json_members.db", db_path)
    with eosdb.connect(db_path, clock=clock) as opened:
        yield opened
        assert opened.verify().ok


def member(db: eosdb.Database, instance: str | None) -> eosdb.Consumer:
    consumer = db.consumer(
        "g", group_instance_id=instance, partition_assignment_strategy="cooperative-sticky"
    )
    consumer.subscribe(["t"])
    return consumer


def test_what_its_members_read_is_shown(db: eosdb.Database) -> None:
    report = db.admin.describe_group_offsets("g")
    assert {p.partition: p.member_id for p in report.partitions} == {
        0: "old-3", 1: "old-3", 2: "old-5", 3: "old-5",
    }  # fmt: skip


def test_its_members_return_to_their_partitions(db: eosdb.Database) -> None:
    before = db.broker.describe_group("g").generation_id
    returned = [member(db, instance) for instance in ("i0", "i1")]
    assert [consumer.assignment() for consumer in returned] == HALVES
    assert db.broker.describe_group("g").generation_id == before
    for consumer in returned:
        consumer.close()


def test_they_share_with_new_members(db: eosdb.Database, clock: ManualClock) -> None:
    group = [member(db, instance) for instance in ("i0", "i1", None)]
    for _ in range(20):
        for consumer in group:
            consumer.poll()
        clock.advance(3_000)
    shares = [consumer.assignment() for consumer in group]
    assert sorted(map(len, shares)) == [1, 1, 2]
    assert shares[0] <= HALVES[0]
    assert shares[1] <= HALVES[1]
    for consumer in group:
        consumer.close()
