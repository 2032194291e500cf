"""Members of both protocols in one group: a group that changes over while it has members, and back
(KIP-848). The answers are those of a Kafka 4.1.1 with its default policy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import JoinGroupResult, ManualClock, MemberHeartbeat, OffsetAndMetadata, TopicPartition
from eosdb.model.protocol.consumer_protocol import (
    Subscription,
    decode_assignment,
    encode_assignment,
)
from eosdb.model.values import GroupType

ALL = tuple(TopicPartition("t", number) for number in range(4))
FIRST: dict[str, Any] = {
    "rebalance_timeout_ms": 60_000,
    "subscribed_topic_names": ("t",),
    "topic_partitions": {},
}


@pytest.fixture
def db(db_path: Path, clock: ManualClock) -> Iterator[eosdb.Database]:
    with eosdb.connect(db_path, clock=clock, durability="normal") as opened:
        opened.admin.create_topic("t", partitions=4)
        yield opened
        before = opened.broker.describe_groups()
        assert opened.verify().ok
        opened.rebuild()
        assert opened.broker.describe_groups() == before


def classic(
    db: eosdb.Database,
    member_id: str = "",
    owned: tuple[TopicPartition, ...] = (),
    instance: str | None = None,
    **given: Any,
) -> JoinGroupResult:
    told = Subscription(("t",), owned).encode()
    options = {"session_timeout_ms": 20_000, "rebalance_timeout_ms": 30_000} | given
    return db.broker.join_group(
        "g",
        member_id=member_id,
        group_instance_id=instance,
        protocols=[("range", told)],
        **options,
    )


def beat(db: eosdb.Database, member_id: str, epoch: int = 0, **given: Any) -> dict[str, Any]:
    """What the member should own now, if the answer says so."""
    request = MemberHeartbeat(
        member_id=member_id, member_epoch=epoch, **(given or (FIRST if epoch == 0 else {}))
    )
    answer = db.broker.consumer_group_heartbeat("g", request)
    assigned = {part.topic: part.partitions for part in answer.assignment or ()}
    return {"epoch": answer.member_epoch, **assigned}


def synced(db: eosdb.Database, joined: JoinGroupResult) -> tuple[TopicPartition, ...]:
    answer = db.broker.sync_group("g", joined.generation_id, joined.member_id)
    return decode_assignment(answer.assignment)


def kinds(db: eosdb.Database) -> dict[str, bool]:
    """Whether each member speaks the classic protocol."""
    members = db.broker.describe_consumer_group("g").members
    return {member.member_id: member.is_classic for member in members}


@pytest.fixture
def old(db: eosdb.Database) -> str:
    """A member of the classic protocol, which has all partitions."""
    joined = classic(db)
    mine = {joined.member_id: encode_assignment(ALL)}
    db.broker.sync_group("g", 1, joined.member_id, assignments=mine)
    return joined.member_id


def test_a_classic_group_changes_over_when_a_member_of_the_new_protocol_joins(
    db: eosdb.Database, old: str
) -> None:
    assert beat(db, "new") == {"epoch": 2}
    assert kinds(db) == {old: True, "new": False}
    with pytest.raises(eosdb.RebalanceInProgressError):
        db.broker.heartbeat("g", 1, old)
    with pytest.raises(eosdb.RebalanceInProgressError):
        db.broker.sync_group("g", 1, old)
    again = classic(db, old)
    assert (again.is_complete, again.generation_id, again.leader) == (True, 2, None)
    assert synced(db, again) == ALL[:2]
    assert beat(db, "new", 2) == {"epoch": 2, "t": (2, 3)}
    db.broker.heartbeat("g", 2, old)
    assert db.broker.describe_group("g").state == "Stable"


def test_a_cooperative_member_gives_up_what_it_must_and_keeps_the_rest(
    db: eosdb.Database, old: str
) -> None:
    beat(db, "new")
    told = classic(db, old, ALL)
    assert (told.generation_id, synced(db, told)) == (1, ALL[:2])
    assert beat(db, "new", 2) == {"epoch": 2}
    with pytest.raises(eosdb.RebalanceInProgressError):
        db.broker.heartbeat("g", 1, old)
    assert classic(db, old, ALL[:2]).generation_id == 2
    assert beat(db, "new", 2) == {"epoch": 2, "t": (2, 3)}


def test_a_classic_member_joins_a_group_of_the_new_protocol(db: eosdb.Database) -> None:
    assert beat(db, "new") == {"epoch": 1, "t": (0, 1, 2, 3)}
    joined = classic(db)
    assert (joined.generation_id, synced(db, joined)) == (2, ())
    db.broker.heartbeat("g", 2, joined.member_id)
    assert beat(db, "new", 1) == {"epoch": 1, "t": (0, 1)}
    assert beat(db, "new", 1, topic_partitions={}) == {"epoch": 2}
    with pytest.raises(eosdb.RebalanceInProgressError):  # Its partitions are free now.
        db.broker.heartbeat("g", 2, joined.member_id)
    assert synced(db, classic(db, joined.member_id)) == ALL[2:]


def test_the_group_is_classic_again_when_the_last_member_of_the_new_protocol_has_left(
    db: eosdb.Database, old: str
) -> None:
    beat(db, "new")
    beat(db, "new", -1)
    described = db.broker.describe_group("g")
    assert (described.group_type, described.state) == (GroupType.CLASSIC, "PreparingRebalance")
    with pytest.raises(eosdb.RebalanceInProgressError):
        db.broker.heartbeat("g", described.generation_id, old)
    joined = classic(db, old)
    assert joined.leader == old
    assert joined.generation_id > described.generation_id


def test_the_group_is_classic_again_when_the_last_session_of_the_new_protocol_has_ended(
    db: eosdb.Database, clock: ManualClock
) -> None:
    beat(db, "new")
    old = classic(db, session_timeout_ms=100_000).member_id
    clock.advance(45_001)
    assert classic(db, old, session_timeout_ms=100_000).leader == old
    assert db.broker.describe_group("g").group_type is GroupType.CLASSIC


def test_a_classic_member_that_does_not_join_again_is_removed(
    db: eosdb.Database, clock: ManualClock, old: str
) -> None:
    beat(db, "new")
    for _ in range(2):
        with pytest.raises(eosdb.RebalanceInProgressError):
            db.broker.heartbeat("g", 1, old)
        clock.advance(15_001)
    assert beat(db, "new", 2) == {"epoch": 3, "t": (0, 1, 2, 3)}
    with pytest.raises(eosdb.UnknownMemberIdError):
        db.broker.heartbeat("g", 1, old)


def test_members_of_either_protocol_are_removed_by_their_names(
    db: eosdb.Database, old: str
) -> None:
    beat(db, "new")
    answers = db.broker.remove_members("g", [(old, None), ("nobody", None)])
    assert [type(answer).__name__ for answer in answers] == ["NoneType", "UnknownMemberIdError"]
    assert beat(db, "new", 2) == {"epoch": 3, "t": (0, 1, 2, 3)}
    db.broker.leave_group("g", "new")
    assert db.broker.describe_group("g").state == "Empty"


def test_a_classic_member_commits_in_its_generation(db: eosdb.Database, old: str) -> None:
    beat(db, "new")
    again = classic(db, old)
    offsets = {ALL[0]: OffsetAndMetadata(0)}
    db.broker.offset_commit("g", offsets, generation_id=again.generation_id, member_id=old)
    with pytest.raises(eosdb.IllegalGenerationError):
        db.broker.offset_commit("g", offsets, generation_id=1, member_id=old)


def test_a_static_member_changes_its_protocol_and_keeps_its_partitions(db: eosdb.Database) -> None:
    joined = classic(db, instance="one")
    mine = {joined.member_id: encode_assignment(ALL)}
    db.broker.sync_group("g", 1, joined.member_id, group_instance_id="one", assignments=mine)
    assert beat(db, "new", 0, **FIRST, group_instance_id="one")["t"] == (0, 1, 2, 3)
    assert kinds(db) == {"new": False}
    with pytest.raises(eosdb.FencedInstanceIdError):
        db.broker.heartbeat("g", 1, joined.member_id, group_instance_id="one")
    back = classic(db, instance="one")
    generation = back.generation_id
    again = db.broker.sync_group("g", generation, back.member_id, group_instance_id="one")
    assert decode_assignment(again.assignment) == ALL
    assert kinds(db) == {back.member_id: True}


@pytest.mark.parametrize("protocol_type", ["connect", "consumer"])
def test_who_is_no_consumer_shares_no_group_with_consumers(
    db: eosdb.Database, protocol_type: str
) -> None:
    stranger = db.broker.join_group("g", protocol_type=protocol_type, protocols=[("x", b"?")])
    with pytest.raises((eosdb.GroupIdNotFoundError, eosdb.InconsistentGroupProtocolError)):
        beat(db, "new")
    db.broker.leave_group("g", stranger.member_id)
    beat(db, "new")
    with pytest.raises(eosdb.InconsistentGroupProtocolError):
        db.broker.join_group("g", protocol_type=protocol_type, protocols=[("x", b"?")])


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


def test_a_member_between_join_and_sync_keeps_what_it_had_when_the_group_changes_over(
    db: eosdb.Database, old: str
) -> None:
    """Of two transactions with the offset of one partition exactly one is committed."""
    between = classic(db, old, ALL).generation_id
    assert db.broker.describe_group("g").state == "CompletingRebalance"
    assert beat(db, "new") == {"epoch": 3}
    assert [commits(db, old, between, tp) for tp in ALL] == [True] * 4
    told = classic(db, old, ALL)
    assert synced(db, told) == ALL[:2]
    assert classic(db, old, ALL[:2]).generation_id == 3
    assert beat(db, "new", 3)["t"] == (2, 3)
    assert [commits(db, old, between, ALL[3]), commits(db, "new", 3, ALL[3])] == [False, True]


def test_who_waits_for_a_second_rebalance_keeps_what_it_had_too(
    db: eosdb.Database, old: str
) -> None:
    """Kafka 4.1.1 forgets it, and gives the newcomer partitions that the member still commits."""
    classic(db, old, ALL)
    assert not classic(db).is_complete
    assert beat(db, "new") == {"epoch": 3}


def test_a_leader_that_leaves_a_member_out_takes_everything_from_it(
    db: eosdb.Database, old: str
) -> None:
    generation = classic(db, old, ALL).generation_id
    db.broker.sync_group("g", generation, old, assignments={})
    assert beat(db, "new")["t"]


def test_who_comes_back_before_the_classic_members_have_joined_gets_nothing_of_theirs(
    db: eosdb.Database, old: str
) -> None:
    beat(db, "new")
    for owned in (ALL, ALL[:2]):
        generation = classic(db, old, owned).generation_id
        db.broker.sync_group("g", generation, old)
    assert beat(db, "new", 2)["t"] == (2, 3)
    beat(db, "new", -1)
    (left,) = db.broker.describe_group("g").members
    assert decode_assignment(left.assignment) == ALL[:2]
    assert beat(db, "newer") == {"epoch": 3, "t": (2, 3)}
    assert [commits(db, old, 2, tp) for tp in ALL[:2]] == [True, True]


def test_the_generation_goes_on_when_the_last_member_of_the_new_protocol_has_left(
    db: eosdb.Database, old: str
) -> None:
    beat(db, "new")
    generation = classic(db, old).generation_id
    synced(db, classic(db, old))
    beat(db, "new", -1)
    assert commits(db, old, generation, ALL[0])
    with pytest.raises(eosdb.RebalanceInProgressError):
        db.broker.heartbeat("g", generation, old)
    with pytest.raises(eosdb.RebalanceInProgressError):
        db.broker.sync_group("g", generation, old, protocol_name="range")
    assert classic(db, old).generation_id == generation + 1


def test_who_is_behind_when_the_last_member_of_the_new_protocol_leaves_is_fenced(
    db: eosdb.Database, old: str
) -> None:
    beat(db, "new")
    beat(db, "new", -1)
    assert not commits(db, old, 1, ALL[0])
    with pytest.raises(eosdb.IllegalGenerationError):
        db.broker.heartbeat("g", 1, old)


def test_who_dies_while_it_waits_is_removed_after_its_session_when_the_group_has_changed_over(
    db: eosdb.Database, clock: ManualClock, old: str
) -> None:
    """As over the wire: the server waits for the others in the member's name."""
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


def test_a_consumer_that_has_joined_and_not_synced_commits_nothing_that_another_was_given(
    db: eosdb.Database, clock: ManualClock
) -> None:
    """The leader has already taken a partition from it when the group changes over. As Java's consumer, it
    names the generation whose assignment it knows."""
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
    third = classic_cooperative(db)
    clock.advance(3_500)
    leader.poll(0)
    follower.poll(0)
    while db.broker.describe_group("g").state == "CompletingRebalance":
        clock.advance(50)
        leader.poll(0)
    held, me = set(follower.assignment()), follower.group_metadata()
    new = beat(db, "new")
    given = {TopicPartition("t", number) for number in new["t"]}
    assert given & held
    assert third.member_id in kinds(db)
    assert not any(commits(db, me.member_id, me.generation_id, tp) for tp in given & held)
    with pytest.raises(eosdb.RebalanceInProgressError):
        follower.commit(dict.fromkeys(held, OffsetAndMetadata(0)))
    for consumer in (leader, follower):
        consumer.close()


def classic_cooperative(db: eosdb.Database) -> JoinGroupResult:
    told = Subscription(("t",)).encode()
    return db.broker.join_group("g", protocols=[("cooperative-sticky", told)])
