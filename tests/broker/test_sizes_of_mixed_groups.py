"""`group.consumer.max.size` in a group that changes over, and members of it that die or are late."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb import BrokerConfig, ManualClock
from eosdb.errors import GroupIdNotFoundError, GroupMaxSizeReachedError
from eosdb.model.protocol.consumer_protocol import encode_assignment
from tests.broker.test_mixed_groups import ALL, beat, classic, synced

MOST = 3


@pytest.fixture
def db(db_path: Path, clock: ManualClock) -> Iterator[eosdb.Database]:
    config = BrokerConfig(group_consumer_max_size=MOST)
    with eosdb.connect(db_path, clock=clock, durability="off", config=config) as opened:
        opened.admin.create_topic("t", partitions=4)
        yield opened
        assert opened.verify().ok


def classic_members(db: eosdb.Database, count: int) -> list[str]:
    """A stable classic group of so many members."""
    known: list[str] = []
    while len(known) < count:
        known.append(classic(db).member_id)
        joined = [classic(db, member_id) for member_id in known]
        joined = [classic(db, member_id) for member_id in known]
    generation, leader = joined[0].generation_id, joined[0].leader
    assert leader is not None
    shares = {
        member_id: encode_assignment((tp,)) for member_id, tp in zip(known, ALL, strict=False)
    }
    db.broker.sync_group("g", generation, leader, assignments=shares)
    return known


@pytest.mark.parametrize("count", [MOST - 1, MOST, MOST + 1])
def test_a_classic_group_changes_over_if_it_leaves_room_for_the_newcomer(
    db: eosdb.Database, count: int
) -> None:
    """One that is too large cannot become a group of the new kind; one that is full can, and takes nobody
    else."""
    classic_members(db, count)
    if count > MOST:
        with pytest.raises(GroupIdNotFoundError, match=r"group\.consumer\.max\.size is 3"):
            beat(db, "new")
    elif count == MOST:
        with pytest.raises(GroupMaxSizeReachedError):
            beat(db, "new")
    else:
        beat(db, "new")
        assert len(db.broker.describe_consumer_group("g").members) == count + 1
    # The classic protocol has another limit.
    if count >= MOST:
        assert db.broker.describe_group("g").group_type.value == "classic"


def test_a_full_group_takes_no_classic_member_either(db: eosdb.Database) -> None:
    for name in ("a", "b"):
        beat(db, name)
    joined = classic(db)
    with pytest.raises(GroupMaxSizeReachedError):
        classic(db)
    assert classic(db, joined.member_id).member_id == joined.member_id


def test_a_classic_member_that_synced_in_time_stays(db: eosdb.Database, clock: ManualClock) -> None:
    (old,) = classic_members(db, 1)
    beat(db, "new")
    again = classic(db, old, session_timeout_ms=300_000)
    synced(db, again)
    clock.advance(30_001)  # Its rebalance time-out.
    db.broker.heartbeat("g", again.generation_id, old)
    assert len(db.broker.describe_consumer_group("g").members) == 2


def test_a_classic_member_that_joined_and_does_not_sync_is_removed(
    db: eosdb.Database, clock: ManualClock
) -> None:
    (old,) = classic_members(db, 1)
    beat(db, "new")
    again = classic(db, old, session_timeout_ms=300_000)
    clock.advance(30_000)
    db.broker.heartbeat("g", again.generation_id, old)
    clock.advance(1)
    with pytest.raises(eosdb.UnknownMemberIdError):
        db.broker.heartbeat("g", again.generation_id, old)
