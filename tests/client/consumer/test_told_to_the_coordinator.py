"""What a member tells the coordinator while its program is still giving up or taking partitions."""

from __future__ import annotations

import pytest

import eosdb
from eosdb import TopicPartition
from eosdb.client.consumer.consumer_membership import ConsumerMembership

TPS = [TopicPartition("t", i) for i in range(4)]


def member(db: eosdb.Database) -> eosdb.Consumer:
    return db.consumer("g", group_protocol="consumer", auto_offset_reset="earliest")


def held(db: eosdb.Database) -> dict[TopicPartition, int]:
    """How many members have each partition, by what the coordinator has told them."""
    members = db.broker.describe_consumer_group("g").members
    tps = [
        TopicPartition(share.topic, number)
        for member in members
        for share in member.assignment
        for number in share.partitions
    ]
    return {tp: tps.count(tp) for tp in tps}


def beat(consumer: eosdb.Consumer) -> None:
    """A heartbeat as the background thread sends it, whatever the thread that polls does."""
    membership = consumer._membership
    assert isinstance(membership, ConsumerMembership)
    with membership._lock:
        membership._send()


def test_a_partition_is_told_as_given_up_only_after_on_revoke_has_run(db: eosdb.Database) -> None:
    """A slow on_revoke, during which heartbeats go on: the other member must not read meanwhile."""
    db.admin.create_topic("t", partitions=4)
    slow, other = member(db), member(db)
    seen: list[set[TopicPartition]] = []

    def on_revoke(_: list[TopicPartition]) -> None:
        beat(slow)
        other.poll(timeout_ms=0)
        seen.append(other.assignment())

    slow.subscribe("t", on_revoke=on_revoke)
    other.subscribe("t")
    for _ in range(4):
        slow.poll(timeout_ms=0)
        other.poll(timeout_ms=0)
    assert seen == [set()]
    assert (slow.assignment(), other.assignment()) == ({*TPS[:2]}, {*TPS[2:]})


def test_a_partition_is_told_as_owned_before_on_assign_runs(db: eosdb.Database) -> None:
    """A slow on_assign, during which another member joins: what is being taken is not given away."""
    db.admin.create_topic("t", partitions=4)
    slow, other = member(db), member(db)
    seen: list[set[TopicPartition]] = []

    def on_assign(_: list[TopicPartition]) -> None:
        if not seen:
            other.subscribe("t")
            other.poll(timeout_ms=0)
            beat(slow)
            beat(slow)
            other.poll(timeout_ms=0)
            seen.append(other.assignment())

    slow.subscribe("t", on_assign=on_assign)
    slow.poll(timeout_ms=0)
    assert seen == [set()]
    for _ in range(4):
        slow.poll(timeout_ms=0)
        other.poll(timeout_ms=0)
    assert (slow.assignment(), other.assignment()) == ({*TPS[:2]}, {*TPS[2:]})
    assert set(held(db).values()) == {1}


def epoch_of(db: eosdb.Database, consumer: eosdb.Consumer) -> int:
    own = consumer.group_metadata().member_id
    members = db.broker.describe_consumer_group("g").members
    return next(m.member_epoch for m in members if m.member_id == own)


def test_a_static_member_leaves_for_a_while(db: eosdb.Database) -> None:
    """KIP-345: whoever restarts within its session finds its partitions, and nobody else moves."""
    db.admin.create_topic("t", partitions=4)
    first = db.consumer("g", group_protocol="consumer", group_instance_id="one")
    first.subscribe("t")
    first.poll(timeout_ms=0)
    first.close()
    (away,) = db.broker.describe_consumer_group("g").members
    assert (away.group_instance_id, away.member_epoch) == ("one", -2)
    other = member(db)
    other.subscribe("t")
    other.poll(timeout_ms=0)
    assert other.assignment() == set(), "the one that is away keeps what it reads"


def test_a_stale_epoch_in_a_commit_makes_the_next_poll_ask_for_the_new_one(
    db: eosdb.Database,
) -> None:
    """The answer with the new epoch was lost; the clock stands, so that no heartbeat is due."""
    db.admin.create_topic("t", partitions=4)
    db.admin.create_topic("u")
    consumer = member(db)
    consumer.subscribe("t")
    consumer.poll(timeout_ms=0)
    own = consumer.group_metadata()
    db.broker.consumer_group_heartbeat(
        "g",
        eosdb.MemberHeartbeat(
            member_id=own.member_id,
            member_epoch=own.generation_id,
            subscribed_topic_names=("t", "u"),
        ),
    )
    assert epoch_of(db, consumer) > own.generation_id
    offsets = {TPS[0]: eosdb.OffsetAndMetadata(0)}
    with pytest.raises(eosdb.StaleMemberEpochError):
        consumer.commit(offsets)
    consumer.poll(timeout_ms=0)
    consumer.commit(offsets)
    assert consumer.group_metadata().generation_id == epoch_of(db, consumer)
