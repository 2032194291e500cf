"""How long a group's offsets are kept: as long as it has members, then for offsets_retention_minutes."""

from __future__ import annotations

import contextlib
import random

import pytest

import eosdb
from eosdb import ManualClock, OffsetAndMetadata, TopicPartition
from eosdb.model.protocol.consumer_protocol import Subscription

pytestmark = pytest.mark.slow

TP = TopicPartition("t", 0)
DAY_MS = 24 * 3600 * 1000
RETENTION_MS = 7 * DAY_MS


@pytest.fixture(autouse=True)
def _topic(db: eosdb.Database) -> None:
    db.admin.create_topic("t")
    db.admin.create_topic("u")


def member(db: eosdb.Database, group: str = "g", topics: tuple[str, ...] = ("t",)) -> str:
    """Joins a member whose session is as long as can be; its id."""
    told = Subscription(topics).encode()
    joined = db.broker.join_group(group, protocols=[("range", told)], session_timeout_ms=1_800_000)
    db.broker.sync_group(group, joined.generation_id, joined.member_id)
    return joined.member_id


def stay(db: eosdb.Database, clock: ManualClock, member_id: str, ms: int) -> None:
    """Time passes, and the member goes on saying that it is there."""
    for _ in range(ms // 1_750_000):
        clock.advance(1_750_000)
        db.broker.heartbeat("g", db.broker.describe_group("g").generation_id, member_id)


def commit(db: eosdb.Database, group: str = "g", member_id: str = "", topic: str = "t") -> None:
    generation = db.broker.describe_group(group).generation_id if member_id else -1
    db.broker.offset_commit(
        group,
        {TopicPartition(topic, 0): OffsetAndMetadata(1)},
        generation_id=generation,
        member_id=member_id,
    )


def test_a_group_without_members_keeps_an_offset_from_its_commit_on(
    db: eosdb.Database, clock: ManualClock
) -> None:
    commit(db)
    clock.advance(RETENTION_MS - 1)
    assert db.housekeeping().expired_offsets == 0
    clock.advance(1)
    assert db.housekeeping().expired_offsets == 1
    assert db.broker.offset_fetch("g") == {}


def test_offsets_of_a_group_with_members_are_kept_and_then_from_when_the_last_one_left(
    db: eosdb.Database, clock: ManualClock
) -> None:
    name = member(db)
    commit(db, member_id=name)
    stay(db, clock, name, RETENTION_MS + DAY_MS)
    assert db.housekeeping().expired_offsets == 0
    db.broker.leave_group("g", name)
    clock.advance(RETENTION_MS - 1)
    assert db.housekeeping().expired_offsets == 0
    clock.advance(1)
    assert db.housekeeping().expired_offsets == 1


def test_a_member_that_comes_back_in_time_keeps_them(
    db: eosdb.Database, clock: ManualClock
) -> None:
    name = member(db)
    commit(db, member_id=name)
    db.broker.leave_group("g", name)
    clock.advance(RETENTION_MS - 1)
    name = member(db)
    stay(db, clock, name, DAY_MS)
    assert db.housekeeping().expired_offsets == 0
    assert TP in db.broker.offset_fetch("g")


def test_a_later_commit_counts_from_itself(db: eosdb.Database, clock: ManualClock) -> None:
    name = member(db)
    db.broker.leave_group("g", name)
    clock.advance(DAY_MS)
    commit(db)
    clock.advance(RETENTION_MS - DAY_MS)
    assert db.housekeeping().expired_offsets == 0
    clock.advance(DAY_MS)
    assert db.housekeeping().expired_offsets == 1


def test_offsets_of_a_transaction_count_from_their_commit_unless_the_group_has_members(
    db: eosdb.Database, clock: ManualClock
) -> None:
    for group in ("g", "alone"):
        if group == "g":
            name = member(db)
        producer = db.producer(transactional_id=group)
        producer.init_transactions()
        with producer.transaction():
            producer.send_offsets_to_transaction({TP: OffsetAndMetadata(5)}, group)
    stay(db, clock, name, RETENTION_MS + 3_500_000)
    assert db.broker.offset_fetch("alone") == {}
    assert TP in db.broker.offset_fetch("g")


def test_a_group_whose_last_offset_expires_is_forgotten(
    db: eosdb.Database, clock: ManualClock
) -> None:
    name = member(db)
    commit(db, member_id=name)
    clock.advance(1_000)
    commit(db, member_id=name, topic="u")
    db.broker.leave_group("g", name)
    clock.advance(RETENTION_MS)
    db.housekeeping()
    assert db.broker.list_groups() == []
    with pytest.raises(eosdb.GroupIdNotFoundError):
        db.broker.describe_group("g")
    assert db.verify().ok
    db.rebuild()
    assert db.broker.list_groups() == []


def test_a_group_without_members_and_offsets_is_forgotten_by_housekeeping(
    db: eosdb.Database, clock: ManualClock
) -> None:
    for group, topic in (("silent", None), ("of deleted topic", "u"), ("stays", "t")):
        name = member(db, group)
        if topic is not None:
            commit(db, group, name, topic)
        db.broker.leave_group(group, name)
    member(db, "living")
    db.admin.delete_topic("u")
    assert len(db.broker.list_groups()) == 4
    db.housekeeping()
    assert db.broker.list_groups() == ["living", "stays"]
    assert db.verify().ok


def test_eosdbs_own_notes_do_not_expire(db: eosdb.Database, clock: ManualClock) -> None:
    commit(db, "__eosdb.note")
    clock.advance(10 * RETENTION_MS)
    assert db.housekeeping().expired_offsets == 0


def live_through(db: eosdb.Database, clock: ManualClock, seed: int, jumps: tuple[int, ...]) -> None:
    """Groups get and lose members and offsets, come and go, in one order out of very many."""
    rng = random.Random(seed)
    members: dict[str, list[str]] = {"g": [], "h": [], "__eosdb.own": []}
    open_transactions: list[eosdb.Producer] = []
    for step in range(60):
        group = rng.choice(list(members))
        clock.advance(rng.choice((0, 1)))
        with contextlib.suppress(eosdb.ApiError):
            match rng.randrange(9):
                case 0:
                    members[group].append(member(db, group))
                case 1 | 8 if members[group]:
                    db.broker.leave_group(group, members[group].pop())
                case 2 | 3:
                    one = rng.choice(members[group]) if members[group] else ""
                    commit(db, group, one, rng.choice("tu"))
                case 4:
                    producer = db.producer(transactional_id=f"{group}-{step}")
                    producer.init_transactions()
                    producer.begin_transaction()
                    producer.send_offsets_to_transaction({TP: OffsetAndMetadata(5)}, group)
                    open_transactions.append(producer)
                case 5 if open_transactions:
                    producer = open_transactions.pop(rng.randrange(len(open_transactions)))
                    rng.choice((producer.commit_transaction, producer.abort_transaction))()
                case 6:
                    clock.advance(rng.choice(jumps))
                case 7 if rng.random() < 0.2:
                    db.broker.delete_group(group)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_due_is_what_expires_whatever_happened_before(
    db: eosdb.Database, clock: ManualClock, seed: int
) -> None:
    """A write that finds something due which then does not expire would never end."""
    live_through(db, clock, seed, (1_000, DAY_MS, RETENTION_MS))
    db.housekeeping()
    assert db.housekeeping().expired_offsets == 0
    assert db.verify().ok


# -- deleting offsets by hand -------------------------------------------------------------------
