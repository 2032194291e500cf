"""Groups whose partitions the coordinator assigns, at the request level: sessions on the clock, processes
that die, the journal, expressions over topics, settings, commits of zombies (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import ManualClock, OffsetAndMetadata, TopicPartition
from eosdb.model.values import ConsumerGroupHeartbeat, GroupType, MemberHeartbeat

TP = TopicPartition("t", 0)
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


def beat(db: eosdb.Database, member_id: str, **given: Any) -> ConsumerGroupHeartbeat:
    return db.broker.consumer_group_heartbeat("g", MemberHeartbeat(member_id=member_id, **given))


def join(db: eosdb.Database, member_id: str, **given: Any) -> ConsumerGroupHeartbeat:
    return beat(db, member_id, **FIRST | given)


def owned(answer: ConsumerGroupHeartbeat) -> dict[str, tuple[int, ...]]:
    return {part.topic: part.partitions for part in answer.assignment or ()}


def state(db: eosdb.Database) -> str:
    return db.broker.describe_group("g").state


def share(db: eosdb.Database) -> None:
    """Two members, each with half of the partitions, in epoch 2."""
    join(db, "a")
    join(db, "b")
    told = beat(db, "a", member_epoch=1)
    has = {part.topic_id: part.partitions for part in told.assignment or ()}
    beat(db, "a", member_epoch=1, topic_partitions=has)
    beat(db, "b", member_epoch=2)


def test_two_members_share_a_topic(db: eosdb.Database) -> None:
    share(db)
    described = db.broker.describe_consumer_group("g")
    assert (described.state, described.group_epoch, described.assignor) == ("Stable", 2, "uniform")
    (topic_id,) = {part.topic_id for m in described.members for part in m.assignment}
    assert topic_id == db.broker.topic_metadata()[0].topic_id
    assert [m.assignment[0].partitions for m in described.members] == [(0, 1), (2, 3)]
    assert all(m.assignment == m.target_assignment for m in described.members)
    listed = db.broker.describe_group("g")
    assert (listed.group_type, listed.protocol_type) == (GroupType.CONSUMER, "consumer")
    report = db.admin.describe_group_offsets("g")
    assert [part.member_id for part in report.partitions] == ["a", "a", "b", "b"]


def test_an_answer_says_only_what_is_new(db: eosdb.Database) -> None:
    first = join(db, "a")
    assert (first.member_epoch, first.heartbeat_interval_ms) == (1, 5_000)
    assert owned(first) == {"t": (0, 1, 2, 3)}
    assert beat(db, "a", member_epoch=1).assignment is None


def test_a_heartbeat_that_changes_nothing_is_no_event(db: eosdb.Database) -> None:
    share(db)
    before = db.info()["journal_position"]
    beat(db, "a", member_epoch=2)
    assert db.info()["journal_position"] == before


def test_an_event_has_the_changed_members_alone(db: eosdb.Database) -> None:
    share(db)
    beat(db, "a", member_epoch=2, rack_id="r")
    ((members,),) = db.query(
        "SELECT json_array_length(detail, '$.members') FROM journal "
        "WHERE kind = 'ConsumerGroupChanged' ORDER BY position DESC LIMIT 1"
    )
    assert members == 1


def test_a_silent_member_is_removed_when_its_session_ends(
    db: eosdb.Database, clock: ManualClock
) -> None:
    share(db)
    clock.advance(40_000)
    beat(db, "b", member_epoch=2)
    clock.advance(5_001)
    assert owned(beat(db, "b", member_epoch=2)) == {"t": (0, 1, 2, 3)}
    with pytest.raises(eosdb.UnknownMemberIdError):
        beat(db, "a", member_epoch=2)


def test_a_member_that_keeps_what_it_should_give_up_is_removed(
    db: eosdb.Database, clock: ManualClock
) -> None:
    join(db, "a", rebalance_timeout_ms=10_000)
    join(db, "b")
    beat(db, "a", member_epoch=1)
    clock.advance(10_001)
    assert owned(beat(db, "b", member_epoch=2)) == {"t": (0, 1, 2, 3)}


def test_a_static_member_comes_back_to_its_partitions(db: eosdb.Database) -> None:
    join(db, "a", group_instance_id="one")
    beat(db, "a", member_epoch=-2, group_instance_id="one")
    assert owned(join(db, "b", group_instance_id="one")) == {"t": (0, 1, 2, 3)}
    with pytest.raises(eosdb.UnreleasedInstanceIdError):
        join(db, "c", group_instance_id="one")
    with pytest.raises(eosdb.FencedInstanceIdError):
        beat(db, "a", member_epoch=1, group_instance_id="one")


def test_a_member_without_an_id_gets_one_and_a_repeat_the_same(
    db: eosdb.Database, clock: ManualClock
) -> None:
    presence = db.broker.presence()
    assert presence is not None
    first = join(db, "", client_id="c", owner_lock=presence.number)
    assert first.member_id.startswith("c-")
    assert join(db, "", owner_lock=presence.number).member_id == first.member_id
    presence.end()
    with pytest.raises(eosdb.UnknownMemberIdError, match="left or died"):
        join(db, "", owner_lock=presence.number)
    clock.advance(200)
    presence.look()
    assert state(db) == "Empty"


def test_an_expression_follows_the_topics_that_come(db: eosdb.Database) -> None:
    given = {"subscribed_topic_names": None, "subscribed_topic_regex": "t|u.*"}
    assert owned(join(db, "a", **given)) == {"t": (0, 1, 2, 3)}
    db.admin.create_topic("uu")
    assert owned(beat(db, "a", member_epoch=1)) == {"t": (0, 1, 2, 3), "uu": (0,)}
    assert owned(beat(db, "a", member_epoch=2, subscribed_topic_regex="uu")) == {"uu": (0,)}
    with pytest.raises(eosdb.InvalidRegularExpressionError):
        beat(db, "a", member_epoch=2, subscribed_topic_regex="(")


def test_a_topic_that_is_created_again_is_another_one(db: eosdb.Database) -> None:
    before = join(db, "a").assignment
    db.admin.delete_topic("t")
    db.admin.create_topic("t", partitions=1)
    assert owned(beat(db, "a", member_epoch=1)) == {}
    after = beat(db, "a", member_epoch=1, topic_partitions={}).assignment
    assert before is not None
    assert after is not None
    assert (after[0].topic, after[0].partitions) == ("t", (0,))
    assert after[0].topic_id != before[0].topic_id


def test_only_a_member_in_its_epoch_commits(db: eosdb.Database) -> None:
    share(db)
    offsets = {TP: OffsetAndMetadata(0)}
    db.broker.offset_commit("g", offsets, generation_id=2, member_id="a")
    for generation, member_id, error in (
        (1, "a", eosdb.StaleMemberEpochError),
        (2, "z", eosdb.UnknownMemberIdError),
        (-1, "", eosdb.UnknownMemberIdError),
    ):
        with pytest.raises(error):
            db.broker.offset_commit("g", offsets, generation_id=generation, member_id=member_id)
    assert db.broker.offset_fetch("g", [TP], member_id="a", member_epoch=2)
    with pytest.raises(eosdb.StaleMemberEpochError):
        db.broker.offset_fetch("g", [TP], member_id="a", member_epoch=1)


def test_offsets_in_a_transaction_are_those_of_a_member_in_its_epoch(db: eosdb.Database) -> None:
    share(db)
    me = db.broker.init_producer_id("p", 60_000)
    offsets = {TP: OffsetAndMetadata(0)}
    db.broker.txn_offset_commit("p", "g", *me, offsets, generation_id=2, member_id="a")
    with pytest.raises(eosdb.IllegalGenerationError):
        db.broker.txn_offset_commit("p", "g", *me, offsets, generation_id=1, member_id="a")
    db.broker.end_txn("p", *me, committed=True)
    assert db.broker.offset_fetch("g", [TP]) == offsets


def test_a_group_with_members_keeps_its_offsets_and_its_name(db: eosdb.Database) -> None:
    join(db, "a")
    db.broker.offset_commit("g", {TP: OffsetAndMetadata(0)}, generation_id=1, member_id="a")
    with pytest.raises(eosdb.GroupSubscribedToTopicError):
        db.broker.offset_delete("g", [TP])
    with pytest.raises(eosdb.NonEmptyGroupError):
        db.broker.delete_group("g")
    beat(db, "a", member_epoch=-1)
    assert db.broker.offset_fetch("g", [TP])
    db.broker.delete_group("g")
    assert db.broker.list_groups() == []


def test_a_group_without_members_takes_either_protocol(db: eosdb.Database) -> None:
    classic = db.broker.join_group("g", protocols=[("range", b"")], session_timeout_ms=10_000)
    with pytest.raises(eosdb.GroupIdNotFoundError):
        db.broker.describe_consumer_group("g")
    db.broker.leave_group("g", classic.member_id)
    assert join(db, "a").member_epoch > classic.generation_id
    beat(db, "a", member_epoch=-1)
    again = db.broker.join_group("g", protocols=[("range", b"")], session_timeout_ms=10_000)
    assert again.generation_id > classic.generation_id
    db.broker.leave_group("g", again.member_id)


def test_a_group_has_settings_of_its_own(db: eosdb.Database, clock: ManualClock) -> None:
    given = {"consumer.session.timeout.ms": 50_000, "consumer.heartbeat.interval.ms": "6000"}
    db.admin.alter_group_config("g", given)
    assert join(db, "a").heartbeat_interval_ms == 6_000
    clock.advance(49_000)
    assert state(db) == "Stable"
    values = {one.name: (one.value, one.source.name) for one in db.admin.describe_group_config("g")}
    assert values == {
        "consumer.session.timeout.ms": ("50000", "GROUP"),
        "consumer.heartbeat.interval.ms": ("6000", "GROUP"),
    }
    db.admin.alter_group_config("g", {"consumer.session.timeout.ms": None})
    db.admin.alter_group_config("g", {}, anew=True, validate_only=True)
    assert [one.source.name for one in db.admin.describe_group_config("g")] == ["DEFAULT", "GROUP"]
    for wrong in (
        {"consumer.session.timeout.ms": 1_000},
        {"consumer.session.timeout.ms": "x"},
        {"x": 1},
    ):
        with pytest.raises(eosdb.InvalidConfigError):
            db.admin.alter_group_config("g", wrong)


def test_who_may_not_see_a_topic_does_not_get_it(db: eosdb.Database, db_path: Path) -> None:
    db.admin.create_topic("tt")
    rights = (("describe", "topic", "tt"), ("read", "group", "g"))
    db.admin.create_acls([eosdb.Acl("User:eve", *right) for right in rights])
    with eosdb.connect(db_path, principal="User:eve", clock=db.broker.clock) as eve:
        with pytest.raises(eosdb.TopicAuthorizationFailedError):
            join(eve, "a")
        given = {"subscribed_topic_names": None, "subscribed_topic_regex": "t+"}
        assert owned(join(eve, "a", **given)) == {"tt": (0,)}
