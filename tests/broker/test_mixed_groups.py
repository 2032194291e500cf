"""Members of both protocols in one group (KIP-848), beside the table of groups: consumers of this library,
who waits, locks and sizes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import (
    BrokerConfig,
    JoinGroupResult,
    ManualClock,
    OffsetAndMetadata,
    TopicPartition,
)
from eosdb.coordinator.groups import rows
from eosdb.model.protocol.consumer_protocol import Subscription
from eosdb.model.values import GroupType
from tests.broker.asked import FIRST, Asked, rebuilt
from tests.coordinator.groups.steps import Join, Sync, bring_about, enter

ALL = tuple(TopicPartition("t", number) for number in range(4))


@pytest.fixture
def db(db_path: Path, clock: ManualClock) -> Iterator[eosdb.Database]:
    with rebuilt(eosdb.connect(db_path, clock=clock, durability="normal")) as opened:
        opened.admin.create_topic("t", partitions=4)
        yield opened


def classic(
    db: eosdb.Database, member_id: str = "", assignor: str = "range", **given: Any
) -> JoinGroupResult:
    options = {"session_timeout_ms": 20_000, "rebalance_timeout_ms": 30_000} | given
    wants = [(assignor, Subscription(("t",)).encode())]
    return db.broker.join_group("g", member_id=member_id, protocols=wants, **options)


def beat(db: eosdb.Database, member_id: str, epoch: int = 0, **given: Any) -> dict[str, Any]:
    """What the member should own now, if the answer says so."""
    told = given or (FIRST if epoch == 0 else {})
    answer = db.broker.consumer_group_heartbeat(
        "g", member_id=member_id, member_epoch=epoch, **told
    )
    assigned = {part.topic: part.partitions for part in answer.assignment or ()}
    return {"epoch": answer.member_epoch, **assigned}


def kinds(db: eosdb.Database) -> dict[str, bool]:
    """Whether each member speaks the classic protocol."""
    members = db.broker.describe_consumer_group("g").members
    return {member.member_id: member.is_classic for member in members}


def test_a_consumer_of_this_library_shares_its_topic_with_a_member_of_the_new_protocol(
    db: eosdb.Database,
) -> None:
    consumer = db.consumer("g")
    consumer.subscribe(["t"])
    consumer.poll()
    assert set(consumer.assignment()) == set(ALL)
    beat(db, "new")
    for _ in range(3):
        consumer.poll()
    assert beat(db, "new", 2) == {"epoch": 2, "t": (2, 3)}
    assert set(consumer.assignment()) == set(ALL[:2])
    beat(db, "new", -1)
    for _ in range(3):
        consumer.poll()
    assert set(consumer.assignment()) == set(ALL)
    consumer.close()


def test_a_consumer_of_this_library_joins_a_group_of_the_new_protocol(
    db: eosdb.Database, clock: ManualClock
) -> None:
    """Also one whose members have left: that becomes a classic group."""
    topic_id = db.broker.topic("t").topic_id
    beat(db, "new")
    consumer = db.consumer("g")
    consumer.subscribe(["t"])
    assert not consumer.assignment()
    assert beat(db, "new", 2, topic_partitions={topic_id: range(4)}) == {"epoch": 2, "t": (0, 1)}
    beat(db, "new", 2, topic_partitions={topic_id: (0, 1)})
    clock.advance(3_000)
    for _ in range(3):
        consumer.poll()
    assert set(consumer.assignment()) == set(ALL[2:])
    consumer.commit({ALL[2]: OffsetAndMetadata(1)})
    consumer.close()
    beat(db, "new", -1)
    assert db.broker.describe_group("g").group_type is GroupType.CONSUMER
    alone = db.consumer("g")
    alone.subscribe(["t"])
    assert set(alone.assignment()) == set(ALL)
    assert db.broker.describe_group("g").group_type is GroupType.CLASSIC
    alone.close()


def commits(db: eosdb.Database, member_id: str, generation: int, tp: TopicPartition) -> bool:
    """Whether a transaction with a record and this offset of the member is committed."""
    me = db.broker.init_producer_id(f"of {member_id}")
    offsets = {tp: OffsetAndMetadata(1)}
    try:
        db.broker.txn_offset_commit(
            f"of {member_id}", "g", *me, offsets, generation_id=generation, member_id=member_id
        )
    except eosdb.IllegalGenerationError:
        return False
    db.broker.end_txn(f"of {member_id}", *me, True)
    return True


def test_who_dies_while_it_waits_is_removed_after_its_session_when_the_group_has_changed_over(
    db: eosdb.Database, clock: ManualClock
) -> None:
    """As over the wire: the server waits for the others in the member's name."""
    classic(db)
    newcomer = classic(db, waits=True)
    assert not newcomer.is_complete
    beat(db, "new")
    clock.advance(20_001)
    beat(db, "new", 2)
    assert kinds(db) == {"new": False}


def test_who_dies_while_it_waits_is_removed_after_its_session_when_another_rebalance_begins(
    db: eosdb.Database, clock: ManualClock
) -> None:
    leader, other = classic(db), classic(db)
    classic(db, leader.member_id)
    follower = other.member_id
    db.broker.sync_group("g", 2, follower, waits=True)
    classic(db)
    clock.advance(20_001)
    classic(db)
    assert follower not in {member.member_id for member in db.broker.describe_group("g").members}


def test_nobody_is_given_what_a_consumer_owns_that_has_joined_and_not_synced(
    db: eosdb.Database, clock: ManualClock
) -> None:
    """The leader has already taken a partition from it when the group changes over. As Java's consumer, it
    names the generation whose assignment it knows, so it commits nothing in the one that it has joined."""
    leader, follower = (
        db.consumer("g", partition_assignment_strategy="cooperative-sticky") for _ in range(2)
    )
    for consumer in (leader, follower):
        consumer.subscribe(["t"])
    db.admin.create_partitions("t", 6)
    while len(follower.assignment()) != 3:
        leader.poll(0)
        follower.poll(0)
        clock.advance(3_500)
    third = classic(db, assignor="cooperative-sticky", session_timeout_ms=45_000)
    clock.advance(3_500)
    leader.poll(0)
    follower.poll(0)
    while db.broker.describe_group("g").state == "CompletingRebalance":
        clock.advance(50)
        leader.poll(0)
    held, me = set(follower.assignment()), follower.group_metadata()
    new = beat(db, "new")
    assert not held & {TopicPartition("t", number) for number in new.get("t", ())}
    assert third.member_id in kinds(db)
    assert not any(commits(db, me.member_id, me.generation_id, tp) for tp in held)
    with pytest.raises(eosdb.RebalanceInProgressError):
        follower.commit(dict.fromkeys(held, OffsetAndMetadata(0)))
    for consumer in (leader, follower):
        consumer.close()


@pytest.mark.parametrize("again", [False, True])
def test_nobody_is_given_what_a_consumer_commits_in_its_on_revoke(
    db: eosdb.Database, clock: ManualClock, again: bool
) -> None:
    """A member of the new protocol joins during the callback; or one joins, leaves and another joins."""
    given, revoked = set[int](), set[int]()

    def on_revoke(partitions: list[TopicPartition]) -> None:
        if not revoked:
            if again:
                beat(db, "brief")
                beat(db, "brief", -1)
            given.update(beat(db, "new").get("t", ()))
            revoked.update(tp.partition for tp in partitions)
            if not again:  # Else its generation has ended, and the group refuses it.
                keeper.commit(dict.fromkeys(partitions, OffsetAndMetadata(1)))

    keeper, second = (
        db.consumer("g", partition_assignment_strategy="cooperative-sticky") for _ in range(2)
    )
    keeper.subscribe(["t"], on_revoke=on_revoke)
    second.subscribe(["t"])
    while not revoked:
        keeper.poll(0)
        second.poll(0)
        clock.advance(3_500)
    assert not given & revoked
    mine = set(keeper.assignment())
    assert given.isdisjoint(tp.partition for tp in mine)
    for consumer in (keeper, second):
        consumer.close()


# -- sizes ---------------------------------------------------------------------------------------------

MOST = 3


@pytest.mark.parametrize(
    ("count", "answer"),
    [(MOST - 1, "4: 2"), (MOST, "GROUP_MAX_SIZE_REACHED"), (MOST + 1, "GROUP_ID_NOT_FOUND")],
)
def test_a_classic_group_changes_over_if_it_leaves_room_for_the_newcomer(
    db_path: Path, clock: ManualClock, count: int, answer: str
) -> None:
    """One that is too large cannot become a group of the new kind; one that is full can, and takes nobody
    else. The classic protocol has another limit."""
    config = BrokerConfig(group_consumer_max_size=MOST)
    with eosdb.connect(db_path, clock=clock, durability="off", config=config) as db:
        db.admin.create_topic("t", partitions=4)
        group = Asked(db, "g", clock)
        known = [Join(name) for name in "abcd"[:count]]
        bring_about(group, [*known, *known, Sync("a", "a=0 b=1 c=2 d=3"), *known])
        assert group.ask(enter("new")).startswith(answer)
        described = db.broker.describe_group("g")
        assert len(described.members) == count + (count < MOST)
        assert described.group_type is (GroupType.CONSUMER if count < MOST else GroupType.CLASSIC)


# -- locks ---------------------------------------------------------------------------------------------


def locks(db: eosdb.Database) -> dict[str, int]:
    with db._store.read() as connection:
        group = rows.load(connection, "g")
    assert group is not None
    return {member.member_id: member.owner_lock for member in group.members}


def test_a_members_lock_is_that_of_its_join(db: eosdb.Database) -> None:
    """Its process holds it while the group changes over, and back."""
    consumer = db.consumer("g")
    consumer.subscribe("t")
    consumer.poll(timeout_ms=0)
    own = consumer.group_metadata().member_id
    number = locks(db)[own]
    assert number > 0
    beat(db, "new")
    assert locks(db) == {own: number, "new": 0}
    beat(db, "new", -1)
    assert locks(db) == {own: number}
    assert db._core.coordinator.presences.is_there(number)
