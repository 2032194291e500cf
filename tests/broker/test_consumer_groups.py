"""Groups whose partitions the coordinator assigns, at the request level: sessions on the clock, processes
that die, the journal, expressions over topics, settings, commits of zombies (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import ManualClock, OffsetAndMetadata, TopicPartition
from eosdb.model.values import ConsumerGroupHeartbeat, GroupType
from tests.broker.asked import FIRST, rebuilt

TP = TopicPartition("t", 0)


@pytest.fixture
def db(db_path: Path, clock: ManualClock) -> Iterator[eosdb.Database]:
    with rebuilt(eosdb.connect(db_path, clock=clock, durability="normal")) as opened:
        opened.admin.create_topic("t", partitions=4)
        yield opened


def beat(db: eosdb.Database, member_id: str, **given: Any) -> ConsumerGroupHeartbeat:
    return db.broker.consumer_group_heartbeat("g", member_id=member_id, **given)


def join(db: eosdb.Database, member_id: str, **given: Any) -> ConsumerGroupHeartbeat:
    return beat(db, member_id, **FIRST | given)


def owned(answer: ConsumerGroupHeartbeat) -> dict[str, tuple[int, ...]]:
    return {part.topic: part.partitions for part in answer.assignment or ()}


def state(db: eosdb.Database) -> str:
    return db.broker.describe_group("g").state


def share(db: eosdb.Database) -> None:
    """Two members, each with half of the partitions, in epoch 3."""
    join(db, "a")
    join(db, "b")
    told = beat(db, "a", member_epoch=2)
    has = {part.topic_id: part.partitions for part in told.assignment or ()}
    beat(db, "a", member_epoch=2, topic_partitions=has)
    beat(db, "b", member_epoch=3)


def test_two_members_share_a_topic(db: eosdb.Database) -> None:
    share(db)
    described = db.broker.describe_consumer_group("g")
    assert (described.state, described.group_epoch, described.assignor) == ("Stable", 3, "uniform")
    (topic_id,) = {part.topic_id for m in described.members for part in m.assignment}
    assert topic_id == db.broker.topic_metadata()[0].topic_id
    assert [m.assignment[0].partitions for m in described.members] == [(0, 1), (2, 3)]
    assert all(m.assignment == m.target_assignment for m in described.members)
    listed = db.broker.describe_group("g")
    assert (listed.group_type, listed.protocol_type) == (GroupType.CONSUMER, "consumer")
    report = db.admin.describe_group_offsets("g")
    assert [part.member_id for part in report.partitions] == ["a", "a", "b", "b"]


def test_a_heartbeat_that_changes_nothing_is_no_event(db: eosdb.Database) -> None:
    share(db)
    before = db.info()["journal_position"]
    beat(db, "a", member_epoch=3)
    assert db.info()["journal_position"] == before


def test_an_event_has_the_changed_members_alone(db: eosdb.Database) -> None:
    share(db)
    beat(db, "a", member_epoch=3, rack_id="r")
    ((members,),) = db.query(
        "SELECT json_array_length(detail, '$.members') FROM journal "
        "WHERE kind = 'GroupChanged' ORDER BY position DESC LIMIT 1"
    )
    assert members == 1


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


def test_a_group_with_members_keeps_its_offsets_and_its_name(db: eosdb.Database) -> None:
    join(db, "a")
    db.broker.offset_commit("g", {TP: OffsetAndMetadata(0)}, generation_id=2, member_id="a")
    with pytest.raises(eosdb.NonEmptyGroupError):
        db.broker.delete_group("g")
    beat(db, "a", member_epoch=-1)
    assert db.broker.offset_fetch("g", [TP])
    db.broker.delete_group("g")
    assert db.broker.list_groups() == []


def test_a_group_has_settings_of_its_own(db: eosdb.Database, clock: ManualClock) -> None:
    given = {"consumer.session.timeout.ms": 50_000, "consumer.heartbeat.interval.ms": "6000"}
    db.admin.alter_group_config("g", given)
    assert join(db, "a").heartbeat_interval_ms == 6_000
    clock.advance(49_000)
    assert state(db) == "Stable"
    values = {one.name: (one.value, one.source.name) for one in db.admin.describe_group_config("g")}
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    assert (values[session], values[heartbeat]) == (("50000", "GROUP"), ("6000", "GROUP"))
    db.admin.alter_group_config("g", {"consumer.session.timeout.ms": None})
    db.admin.alter_group_config("g", {}, anew=True, validate_only=True)
    sources = {one.name: one.source.name for one in db.admin.describe_group_config("g")}
    assert (sources[session], sources[heartbeat]) == ("DEFAULT", "GROUP")
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
