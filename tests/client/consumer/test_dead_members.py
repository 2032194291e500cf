"""A member whose process dies is missed by nobody: it holds a lock that its death releases. Whoever lives,
and does not answer, has its session.

`abandon` ends a database object as the death of its process does: what it held is released, nothing more is
written. Sessions are five minutes here, so that none of them ends unless a test says so.
"""

from __future__ import annotations

import gc
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

import eosdb
from eosdb import ManualClock, Record, RecordBatch, TopicPartition
from eosdb.errors import CorruptDatabaseError, StorageError
from eosdb.events.encoding import members_of
from eosdb.store.file import locks
from eosdb.system.road import road
from eosdb.testing import FaultyTransport

pytestmark = pytest.mark.slow

TPS = {TopicPartition("t", i) for i in range(4)}
SESSION_MS = 300_000
Open = Callable[..., eosdb.Database]


@pytest.fixture
def process(db_path: Path, clock: ManualClock) -> Iterator[Open]:
    """Opens the file once more, as another process does."""
    opened: list[eosdb.Database] = []

    def make(**options: Any) -> eosdb.Database:
        opened.append(eosdb.connect(db_path, clock=clock, durability="off", **options))
        return opened[-1]

    make().admin.create_topic("t", partitions=4)
    yield make
    for db in opened:
        db.close()


def member(db: eosdb.Database, name: str = "", **config: Any) -> eosdb.Consumer:
    settings: Any = {"session_timeout_ms": SESSION_MS, "client_id": name, **config}
    consumer = db.consumer("g", **settings)
    consumer.subscribe("t")
    return consumer


def settle(*consumers: eosdb.Consumer, ms: int = 400) -> None:
    """Everybody polls, for so long in all."""
    for _ in range(ms // 20 // len(consumers)):
        for consumer in consumers:
            consumer.poll(timeout_ms=20)


def write(db: eosdb.Database) -> None:
    db.broker.append(TopicPartition("t", 0), RecordBatch([Record(value=b"")]))


def members(db: eosdb.Database) -> list[str]:
    """The names of those that are stored: `describe_group` leaves out the dead (decisions/0076)."""
    rows = db.query("SELECT members FROM groups WHERE group_id = 'g'").rows
    return [m.client_id for (stored,) in rows for m in members_of(stored)]


def changes(db: eosdb.Database) -> int:
    """How many events of groups there are."""
    ((count,),) = db.query("SELECT count(*) FROM journal WHERE kind = 'GroupChanged'").rows
    return int(count)


def numbers(path: Path) -> list[int]:
    """Of their locks, as they are stored."""
    with sqlite3.connect(path) as file:
        ((stored,),) = file.execute("SELECT members FROM groups").fetchall()
    return [m.owner_lock for m in members_of(stored)]


def test_one_that_waits_takes_over_from_one_that_died(process: Open, clock: ManualClock) -> None:
    waits, dies = process(), process()
    heir, victim = member(waits), member(dies)
    settle(heir, victim)
    assert len(heir.assignment()) == len(victim.assignment()) == 2
    dies.abandon()
    died_ms = clock.time_ms()
    while heir.assignment() != TPS:
        heir.poll(timeout_ms=20)
    assert clock.time_ms() - died_ms < 1_000


def test_whoever_writes_removes_them_before_anything_else(
    process: Open, clock: ManualClock
) -> None:
    dies, writes = process(), process()
    member(dies, "dies")
    write(writes)
    dies.abandon()
    clock.advance(199)
    write(writes)
    assert members(writes) == ["dies"], "it is looked now and then, not at every write"
    clock.advance(1)
    write(writes)
    assert members(writes) == []
    assert writes.verify().ok


def test_whoever_opens_the_file_removes_them_unless_it_only_reads(process: Open) -> None:
    dies = process()
    member(dies, "dies")
    dies.abandon()
    reads = process(read_only=True)
    assert members(reads) == ["dies"]
    process()
    assert members(reads) == []


def test_a_static_member_keeps_its_place_for_its_session(
    process: Open, clock: ManualClock, db_path: Path
) -> None:
    dies, other = process(), process()
    member(dies, "static", group_instance_id="one", session_timeout_ms=10_000)
    assert numbers(db_path) == [0]
    dies.abandon()
    clock.advance(9_000)
    write(other)
    assert members(other) == ["static"]
    clock.advance(1_001)
    write(other)
    assert members(other) == []


def test_a_member_without_a_lock_keeps_its_session(process: Open, clock: ManualClock) -> None:
    """As one that came over the wire, or from a version before locks."""
    db = process()
    db.broker.join_group("g", client_id="stranger", protocols=[("range", b"")])
    clock.advance(44_000)
    write(db)
    assert members(db) == ["stranger"]
    clock.advance(1_001)
    write(db)
    assert members(db) == []


def test_where_no_lock_can_be_had_the_session_has_to_do(
    process: Open, clock: ManualClock, db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(path: str) -> NoReturn:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(road, "owner_file", fails)
    dies, other = process(), process()
    with pytest.raises(StorageError, match="Too many open files"):
        locks.OwnerLocks("x").hold(1)
    member(dies, "dies")
    assert numbers(db_path) == [0]
    dies.abandon()
    clock.advance(1_000)
    write(other)
    assert members(other) == ["dies"]


def test_a_forgotten_consumer_is_gone_with_its_object(process: Open, clock: ManualClock) -> None:
    db = process()
    forgotten = member(db, "forgotten")
    clock.advance(200)
    write(db)
    assert members(db) == ["forgotten"]
    del forgotten
    gc.collect()
    clock.advance(200)
    write(db)
    assert members(db) == []


def test_joining_again_keeps_the_lock(process: Open, db_path: Path) -> None:
    a, b = member(process()), member(process())
    settle(a, b)
    before = numbers(db_path)
    assert 0 not in before
    a.enforce_rebalance()
    settle(a, b)
    assert numbers(db_path) == before


def test_a_member_that_was_removed_joins_with_a_new_lock(process: Open, db_path: Path) -> None:
    db = process()
    removed = member(db)
    before = numbers(db_path)
    db.broker.leave_group("g", removed.group_metadata().member_id)
    with pytest.raises(eosdb.UnknownMemberIdError):
        removed.commit({TopicPartition("t", 0): eosdb.OffsetAndMetadata(1)})
    removed.poll()
    assert removed.assignment() == TPS
    assert numbers(db_path) != before
    assert 0 not in numbers(db_path)


def test_a_join_that_arrives_twice_is_one_member(process: Open, clock: ManualClock) -> None:
    db = process()
    network = FaultyTransport(db.broker, duplicate=1, delay_ms=(0, 5), only={"join_group"})
    consumer = db.consumer("g", transport=network, session_timeout_ms=SESSION_MS)
    consumer.subscribe("t")
    settle(consumer)
    network.deliver_all()
    assert network.counts["duplicate"] > 0
    assert len(members(db)) == 1
    settle(consumer)
    assert consumer.assignment() == TPS


def test_a_join_that_arrives_after_its_member_has_left_is_refused(process: Open) -> None:
    db = process()
    presence = db.broker.presence()
    assert presence is not None
    wants: list[tuple[str, bytes]] = [("range", b"")]
    joined = db.broker.join_group("g", protocols=wants, owner_lock=presence.number)
    db.broker.leave_group("g", joined.member_id)
    presence.end()
    with pytest.raises(eosdb.UnknownMemberIdError, match="left or died since"):
        db.broker.join_group("g", protocols=wants, owner_lock=presence.number)
    assert members(db) == []


def test_one_whose_last_commit_fails_leaves_all_the_same(process: Open) -> None:
    def fails(partitions: list[TopicPartition]) -> None:
        raise RuntimeError("no")

    db = process()
    consumer = db.consumer("g", session_timeout_ms=SESSION_MS)
    consumer.subscribe("t", on_revoke=fails)
    with pytest.raises(RuntimeError, match="no"):
        consumer.close()
    assert members(db) == []


def test_a_hundred_members_share_a_descriptor_and_go_at_once(
    process: Open, clock: ManualClock, db_path: Path
) -> None:
    dies, other = process(), process()
    held = [dies.broker.presence() for _ in range(100)]
    wants: list[tuple[str, bytes]] = [("range", b"")]
    for presence in held:
        assert presence is not None
        dies.broker.join_group("g", protocols=wants, owner_lock=presence.number)
    assert len(set(numbers(db_path))) == 100
    clock.advance(200)
    write(other)
    assert len(members(other)) == 100
    dies.abandon()
    clock.advance(200)
    before = changes(other)
    write(other)
    assert members(other) == []
    assert changes(other) == before + 1


def test_a_file_worked_on_as_a_whole_keeps_its_members_and_a_copy_has_none(
    process: Open, clock: ManualClock, db_path: Path
) -> None:
    db, other = process(), process()
    consumer = member(db)
    db.rebuild()
    db.compact()
    clock.advance(200)
    write(other)
    assert len(members(other)) == 1
    assert consumer.poll(timeout_ms=20) == []
    copy = db_path.with_name("copy.db")
    shutil.copy(db_path, copy)
    shutil.copy(f"{db_path}-wal", f"{copy}-wal")
    with eosdb.connect(copy, clock=clock) as copied:
        assert members(copied) == []
        assert copied.verify().ok


def test_damaged_members_are_damage(process: Open, clock: ManualClock, db_path: Path) -> None:
    db = process()
    consumer = member(db)
    with sqlite3.connect(db_path) as file:
        file.execute("UPDATE groups SET members = '[7]'")
    clock.advance(200)
    with pytest.raises(CorruptDatabaseError, match="groups: found a row that eosdb never writes"):
        write(db)
    with sqlite3.connect(db_path) as file:
        file.execute("UPDATE groups SET members = '[]'")
    consumer.close()
