"""Members of a group whose partitions the coordinator assigns (KIP-848): what they do otherwise, and what
they tell while their program is still giving up or taking partitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

import eosdb
from eosdb import ManualClock, OffsetAndMetadata, TopicPartition
from eosdb.client.consumer.consumer_membership import ConsumerMembership, Step, next_step
from eosdb.testing import FaultyTransport
from tests.client.consumer.members import TPS, Events, Member, all_of, settle, shares

KIND = "consumer"
FIRST = {TPS[0]: OffsetAndMetadata(1)}


@pytest.fixture(autouse=True)
def _verified(db: eosdb.Database) -> Iterator[None]:
    yield
    assert db.verify().ok


# -- one step towards an assignment ---------------------------------------------------------------

OLD, NEW = UUID(int=1), UUID(int=2)
A, B, C = TPS[:3]


@pytest.mark.parametrize(
    ("owned", "assigned", "step"),
    [
        ({}, {A: OLD}, Step(frozenset(), frozenset({A}), {A: OLD})),
        ({A: OLD}, {A: OLD}, Step(frozenset(), frozenset(), {A: OLD})),
        ({A: OLD, B: OLD}, {A: OLD, C: OLD}, Step(frozenset({B}), frozenset(), {A: OLD})),
        ({A: OLD}, {A: NEW}, Step(frozenset({A}), frozenset(), {})),
    ],
    ids=["takes", "keeps", "gives up before it takes", "a topic made anew"],
)
def test_the_next_step(
    owned: dict[TopicPartition, UUID], assigned: dict[TopicPartition, UUID], step: Step
) -> None:
    assert next_step(owned, assigned) == step


# -- coming and going -----------------------------------------------------------------------------


def test_what_a_member_keeps_is_read_while_another_does_not_give_up(
    db: eosdb.Database, member: Member
) -> None:
    """Nobody waits for the slow one but who is to have its partitions."""
    slow = member("slow")
    b = member("b")
    assert shares(slow, b) == [4, 0]
    slow.poll()
    c = member("c")
    settle(b, c)
    assert shares(b, c) == [2, 0]
    db.producer().send("t", b"1", partition=2).result()
    assert [r.value for r in b.poll(timeout_ms=20)] == [b"1"]
    settle(slow, b, c)
    assert sorted(shares(slow, b, c)) == [1, 1, 2]


def test_waiting_members_do_not_wake_each_other_for_nothing(
    db: eosdb.Database, member: Member
) -> None:
    """While one keeps what another is to get, they heartbeat once for each change, not in a circle."""
    holds, waits = member("holds"), member("waits")
    for _ in range(50):
        waits.poll(timeout_ms=20)
    assert shares(holds, waits) == [4, 0]
    assert waits.metrics()["consumer-group-heartbeat-total"] <= 3


def test_a_member_that_does_not_give_up_in_time_is_removed(
    db: eosdb.Database, member: Member, clock: ManualClock, events: Events
) -> None:
    """Its other thread has heard what to give up, and it works on for too long."""
    a, b = member("a", max_poll_interval_ms=10_000), member("b")
    a_id = a.group_metadata().member_id
    heard = eosdb.MemberHeartbeat(member_id=a_id, member_epoch=1)
    assert db.broker.consumer_group_heartbeat("g", heard).assignment is not None
    clock.advance(10_001)
    settle(b)
    assert shares(b) == [4]
    with pytest.raises(eosdb.UnknownMemberIdError):
        a.commit(FIRST)
    a.poll()
    assert ("a", "lost", TPS) in events


# -- static members -------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_static_member_comes_back_to_its_partitions(
    member: Member, events: Events, clock: ManualClock
) -> None:
    a, b = member("a", group_instance_id="one"), member("b", group_instance_id="two")
    settle(a, b)
    held, before = a.assignment(), len(events)
    a.close()
    settle(b)
    again = member("a2", group_instance_id="one")
    settle(again, b)
    assert again.assignment() == held
    assert events[before:] == [("a", "revoke", sorted(held)), ("a2", "assign", sorted(held))]
    again.close()
    for _ in range(10):
        clock.advance(5_000)
        settle(b)
    assert shares(b) == [4]


def test_a_static_member_whose_place_is_taken_is_fenced(member: Member, clock: ManualClock) -> None:
    former = member("a", group_instance_id="one")
    clock.advance(45_001)
    again = member("a2", group_instance_id="one")
    assert shares(again) == [4]
    for _ in range(2):
        with pytest.raises(eosdb.FencedInstanceIdError):
            former.poll()


def test_a_topic_made_anew_is_read_from_its_beginning(db: eosdb.Database, member: Member) -> None:
    a = member("a")
    db.producer().send("t", b"old", partition=0).result()
    assert [r.value for r in a.poll()] == [b"old"]
    db.admin.delete_topic("t")
    db.admin.create_topic("t", partitions=4)
    db.producer().send("t", b"new", partition=0).result()
    assert [r.value for _ in range(5) for r in a.poll(timeout_ms=20)] == [b"new"]
    assert shares(a) == [4]


def test_a_fenced_member_gives_up_everything_and_joins_again(
    db: eosdb.Database, member: Member, events: Events
) -> None:
    """Somebody else has spoken for it, twice, so that its epoch is older than the previous one."""
    a = member("a")
    before = a.group_metadata()
    for epoch, topics in ((1, ("u",)), (2, ("t",))):
        beat = eosdb.MemberHeartbeat(
            member_id=before.member_id,
            member_epoch=epoch,
            subscribed_topic_names=topics,
            topic_partitions={},
        )
        assert db.broker.consumer_group_heartbeat("g", beat).member_epoch == epoch + 1
    settle(a)
    assert ("a", "lost", TPS) in events
    assert shares(a) == [4]
    assert a.group_metadata().member_id != before.member_id


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_requests_that_are_lost_or_come_twice_do_no_harm(
    db: eosdb.Database, member: Member, seed: int
) -> None:
    faults: dict[str, Any] = {
        "lose_request": 0.2,
        "lose_response": 0.2,
        "duplicate": 0.2,
        "silent": 0.5,
    }
    network = FaultyTransport(db.broker, seed=seed, delay_ms=(0, 5), **faults)
    patience = {"request_timeout_ms": 100, "retry_backoff_ms": 10, "default_api_timeout_ms": 60_000}
    a = member("a", transport=network, **patience)
    b = member("b")
    for _ in range(15):
        settle(a, b)
    network.deliver_all()
    settle(a, b)
    assert shares(a, b) == [2, 2]
    assert all_of(a, b) == TPS


# -- what it tells meanwhile ----------------------------------------------------------------------


def beat(consumer: eosdb.Consumer) -> None:
    """A heartbeat as the background thread sends it, whatever the thread that polls does."""
    membership = consumer._membership
    assert isinstance(membership, ConsumerMembership)
    with membership._lock:
        membership._send()


def test_a_partition_is_told_as_given_up_only_after_on_revoke_has_run(member: Member) -> None:
    """A slow on_revoke, during which heartbeats go on: the other member must not read meanwhile."""
    slow, other = member("slow", None), member("other", None)
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


def test_a_partition_is_told_as_owned_before_on_assign_runs(
    db: eosdb.Database, member: Member
) -> None:
    """A slow on_assign, during which another member joins: what is being taken is not given away."""
    slow, other = member("slow", None), member("other", None)
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
    members = db.broker.describe_consumer_group("g").members
    shared = [number for m in members for share in m.assignment for number in share.partitions]
    assert sorted(shared) == [0, 1, 2, 3]


def epoch_of(db: eosdb.Database, consumer: eosdb.Consumer) -> int:
    own = consumer.group_metadata().member_id
    members = db.broker.describe_consumer_group("g").members
    return next(m.member_epoch for m in members if m.member_id == own)


def test_a_stale_epoch_in_a_commit_makes_the_next_poll_ask_for_the_new_one(
    db: eosdb.Database, member: Member
) -> None:
    """The answer with the new epoch was lost; the clock stands, so that no heartbeat is due."""
    db.admin.create_topic("u")
    consumer = member("a")
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
    with pytest.raises(eosdb.StaleMemberEpochError):
        consumer.commit(FIRST)
    consumer.poll(timeout_ms=0)
    consumer.commit(FIRST)
    assert consumer.group_metadata().generation_id == epoch_of(db, consumer)


# -- both protocols, and settings -----------------------------------------------------------------


def test_a_group_changes_over_member_by_member(db: eosdb.Database, member: Member) -> None:
    old = [db.consumer("g", client_id=f"old{i}") for i in range(2)]
    for consumer in old:
        consumer.subscribe("t")
    new = [member("new0")]
    for _ in range(10):
        settle(*old, *new)
    assert sorted(shares(*old, *new)) == [1, 1, 2]
    assert db.broker.describe_group("g").group_type is eosdb.GroupType.CONSUMER
    for consumer in old:
        consumer.close()
        new.append(member(f"new{len(new)}"))
    settle(*new)
    assert sorted(shares(*new)) == [1, 1, 2]
    assert all_of(*new) == TPS


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"partition_assignment_strategy": "roundrobin"}, "alter_group_config"),
        ({"session_timeout_ms": 10_000}, "alter_group_config"),
        ({"heartbeat_interval_ms": 1_000}, "alter_group_config"),
        ({"group_protocol": "Consumer"}, "group_protocol"),
    ],
    ids=str,
)
def test_what_the_coordinator_decides_is_no_setting_of_a_member(
    db: eosdb.Database, config: dict[str, Any], told: str
) -> None:
    with pytest.raises(eosdb.ConfigError, match=told):
        db.consumer("g", **{"group_protocol": "consumer"} | config)
