"""Consumers that share a group: who gets what when members come, go, stall and return."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import eosdb
from eosdb import ConsumerGroupMetadata, ManualClock, OffsetAndMetadata, TopicPartition
from eosdb.model.protocol.consumer_protocol import decode_subscription

TPS = [TopicPartition("t", i) for i in range(4)]
EAGER = "range"
COOPERATIVE = "cooperative-sticky"
Events = list[tuple[str, str, list[TopicPartition]]]


@pytest.fixture(autouse=True)
def _topic(db: eosdb.Database) -> None:
    db.admin.create_topic("t", partitions=4)


@pytest.fixture
def events() -> Events:
    return []


@pytest.fixture
def member(db: eosdb.Database, events: Events) -> Callable[..., eosdb.Consumer]:
    """Makes a consumer of group `g` that writes down what happens to it."""

    def make(name: str, topics: Any = "t", **config: Any) -> eosdb.Consumer:
        settings = {
            "auto_offset_reset": "earliest",
            "session_timeout_ms": 10_000,
            "client_id": name,
        }
        consumer = db.consumer("g", **{**settings, **config})
        consumer.subscribe(
            topics,
            on_assign=lambda tps: events.append((name, "assign", tps)),
            on_revoke=lambda tps: events.append((name, "revoke", tps)),
            on_lost=lambda tps: events.append((name, "lost", tps)),
        )
        return consumer

    return make


def settle(*consumers: eosdb.Consumer) -> None:
    """Everybody polls for a little longer than an interval of heartbeats."""
    for _ in range(200 // len(consumers)):
        for consumer in consumers:
            assert consumer.poll(timeout_ms=20) == []


def shares(*consumers: eosdb.Consumer) -> list[int]:
    return [len(consumer.assignment()) for consumer in consumers]


def all_of(*consumers: eosdb.Consumer) -> list[TopicPartition]:
    return sorted(tp for consumer in consumers for tp in consumer.assignment())


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [EAGER, "roundrobin", COOPERATIVE])
def test_members_share_the_partitions_and_take_over_from_one_that_leaves(
    member: Callable[..., eosdb.Consumer], strategy: str
) -> None:
    a = member("a", partition_assignment_strategy=strategy)
    assert shares(a) == [4]
    b = member("b", partition_assignment_strategy=strategy)
    settle(a, b)
    assert shares(a, b) == [2, 2]
    assert all_of(a, b) == TPS
    c = member("c", partition_assignment_strategy=strategy)
    settle(a, b, c)
    assert sorted(shares(a, b, c)) == [1, 1, 2]
    assert all_of(a, b, c) == TPS
    a.close()
    settle(b, c)
    assert shares(b, c) == [2, 2]
    assert all_of(b, c) == TPS


@pytest.mark.slow
def test_an_eager_member_gives_everything_back_before_it_joins_again(
    member: Callable[..., eosdb.Consumer], events: Events
) -> None:
    a = member("a", partition_assignment_strategy=EAGER)
    b = member("b", partition_assignment_strategy=EAGER)
    settle(a, b)
    assert events == [
        ("a", "assign", TPS),
        ("a", "revoke", TPS),
        ("a", "assign", TPS[:2]),
        ("b", "assign", TPS[2:]),
    ]
    b.close()
    assert events[-1] == ("b", "revoke", TPS[2:])


@pytest.mark.parametrize(("strategy", "says"), [(EAGER, 0), ("roundrobin", 0), (COOPERATIVE, 4)])
def test_only_a_cooperative_member_says_what_it_owns(
    db: eosdb.Database, member: Callable[..., eosdb.Consumer], strategy: str, says: int
) -> None:
    """An eager one has given everything up, and a leader of another program would believe it."""
    consumer = member("a", partition_assignment_strategy=strategy)
    consumer.poll()
    assert consumer.assignment() == {*TPS}
    consumer.enforce_rebalance()
    consumer.poll()
    (described,) = db.broker.describe_group("g").members
    assert len(decode_subscription(described.metadata).owned) == says
    consumer.close()


@pytest.mark.slow
def test_a_cooperative_member_gives_back_only_what_moves(
    member: Callable[..., eosdb.Consumer], events: Events
) -> None:
    a = member("a", partition_assignment_strategy=COOPERATIVE)
    b = member("b", partition_assignment_strategy=COOPERATIVE)
    settle(a, b)
    revoked = [tps for name, what, tps in events if (name, what) == ("a", "revoke")]
    assert [len(tps) for tps in revoked] == [2]
    assert b.assignment() == set(revoked[0])
    assert [tps for name, what, tps in events if name == "b" and tps] == revoked


@pytest.mark.slow
def test_what_a_cooperative_member_keeps_is_read_on_while_others_join(
    db: eosdb.Database, member: Callable[..., eosdb.Consumer]
) -> None:
    a = member("a", partition_assignment_strategy=COOPERATIVE)
    db.producer().send("t", b"1", partition=0)
    assert len(a.poll()) == 1
    b = member("b", partition_assignment_strategy=COOPERATIVE)
    db.producer().send("t", b"2", partition=0)
    read = [r.value for _ in range(200) for c in (a, b) for r in c.poll(timeout_ms=20)]
    assert read == [b"2"]


@pytest.mark.slow
def test_a_member_that_falls_silent_loses_its_partitions_when_its_session_ends(
    member: Callable[..., eosdb.Consumer], clock: ManualClock, events: Events
) -> None:
    silent, b = member("silent"), member("b")
    settle(silent, b)
    clock.advance(9_000)
    b.poll()
    clock.advance(1_100)
    settle(b)
    assert shares(b) == [4]
    held = silent.assignment()
    with pytest.raises((eosdb.UnknownMemberIdError, eosdb.IllegalGenerationError)):
        silent.commit({TPS[0]: OffsetAndMetadata(7)})
    silent.poll()
    assert ("silent", "lost", sorted(held)) in events
    settle(silent, b)
    assert shares(silent, b) == [2, 2]


def test_a_member_that_does_not_poll_for_too_long_makes_room(
    db: eosdb.Database, member: Callable[..., eosdb.Consumer], clock: ManualClock, events: Events
) -> None:
    a = member("a", max_poll_interval_ms=3_000, session_timeout_ms=10_000)
    clock.advance(3_001)
    a.poll()
    assert ("a", "lost", TPS) in events
    assert shares(a) == [4]
    assert db.broker.describe_group("g").members[0].member_id != ""


def test_commits_of_an_old_generation_are_refused_and_the_member_joins_again(
    db: eosdb.Database, member: Callable[..., eosdb.Consumer]
) -> None:
    a = member("a", heartbeat_interval_ms=9_999)
    old = a.group_metadata()
    b = member("b")
    for _ in range(3):
        a.enforce_rebalance()
        a.poll(timeout_ms=200)
        b.poll(timeout_ms=200)
    assert a.group_metadata().generation_id > old.generation_id
    with pytest.raises(eosdb.IllegalGenerationError):
        db.broker.offset_commit(
            "g",
            {TPS[0]: OffsetAndMetadata(1)},
            generation_id=old.generation_id,
            member_id=old.member_id,
        )
    a.commit({TPS[0]: OffsetAndMetadata(1)})
    assert b.committed([TPS[0]])[TPS[0]].offset == 1


def test_a_transaction_of_a_zombie_is_refused_with_the_groups_error(
    db: eosdb.Database, member: Callable[..., eosdb.Consumer], clock: ManualClock
) -> None:
    zombie = member("zombie")
    producer = db.producer(transactional_id="tx")
    producer.init_transactions()
    clock.advance(10_001)
    heir = member("heir")
    assert shares(heir) == [4]
    producer.begin_transaction()
    producer.send("t", b"result")
    with pytest.raises(eosdb.UnknownMemberIdError):
        producer.send_offsets_to_transaction(
            {TPS[0]: OffsetAndMetadata(1)}, zombie.group_metadata()
        )
    producer.abort_transaction()
    assert heir.committed(TPS) == {}


@pytest.mark.slow
def test_a_static_member_returns_without_a_rebalance_and_fences_its_former_self(
    member: Callable[..., eosdb.Consumer], events: Events
) -> None:
    former = member("a", group_instance_id="one")
    b = member("b", group_instance_id="two")
    settle(former, b)
    generation = b.group_metadata().generation_id
    before = [event for event in events if event[0] == "b"]
    again = member("a2", group_instance_id="one")
    settle(again, b)
    assert again.assignment() == former.assignment()
    assert b.group_metadata().generation_id == generation
    assert [event for event in events if event[0] == "b"] == before
    for call in (former.commit, former.poll):
        former.seek(min(former.assignment()), 0)
        with pytest.raises(eosdb.FencedInstanceIdError):
            call()


@pytest.mark.slow
def test_a_static_member_that_closes_keeps_its_place_until_its_session_ends(
    member: Callable[..., eosdb.Consumer], clock: ManualClock
) -> None:
    a, b = member("a", group_instance_id="one"), member("b")
    settle(a, b)
    a.close()
    settle(b)
    assert shares(b) == [2]
    clock.advance(9_000)
    settle(b)
    assert shares(b) == [4]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [EAGER, COOPERATIVE])
def test_new_partitions_and_topics_that_fit_a_pattern_are_noticed(
    db: eosdb.Database, member: Callable[..., eosdb.Consumer], strategy: str
) -> None:
    pattern = re.compile("t.*")
    a = member("a", pattern, partition_assignment_strategy=strategy)
    b = member("b", pattern, partition_assignment_strategy=strategy)
    settle(a, b)
    db.admin.create_partitions("t", 6)
    settle(a, b)
    assert shares(a, b) == [3, 3]
    db.admin.create_topic("t2", partitions=2)
    db.admin.create_topic("other")
    settle(a, b)
    assert shares(a, b) == [4, 4]
    db.admin.delete_topic("t2")
    settle(a, b)
    assert shares(a, b) == [3, 3]


def test_a_busy_member_notices_new_partitions_when_its_metadata_is_old(
    db: eosdb.Database, member: Callable[..., eosdb.Consumer], clock: ManualClock
) -> None:
    a = member("a", metadata_max_age_ms=5_000, max_poll_records=1)
    producer = db.producer()
    for i in range(10):
        producer.send("t", b"%d" % i, partition=0)
    a.poll()
    db.admin.create_partitions("t", 5)
    a.poll()
    assert shares(a) == [4]
    clock.advance(5_000)
    a.poll()
    a.poll()
    assert shares(a) == [5]


@pytest.mark.slow
def test_members_of_one_group_may_want_different_topics(
    db: eosdb.Database, member: Callable[..., eosdb.Consumer]
) -> None:
    db.admin.create_topic("u", partitions=2)
    a, b = member("a", "t"), member("b", ["t", "u"])
    settle(a, b)
    assert {tp.topic for tp in a.assignment()} == {"t"}
    assert {TopicPartition("u", 0), TopicPartition("u", 1)} <= b.assignment()
    a.subscribe("u")
    settle(a, b)
    assert a.assignment() == {TopicPartition("u", 0)}


def test_unsubscribing_leaves_the_group(
    db: eosdb.Database, member: Callable[..., eosdb.Consumer]
) -> None:
    a = member("a")
    a.unsubscribe()
    assert a.assignment() == set()
    assert db.broker.describe_group("g").state == "Empty"
    a.subscribe("t")
    assert shares(a) == [4]
    a.assign([TPS[1]])
    assert db.broker.describe_group("g").state == "Empty"


@pytest.mark.slow
def test_positions_are_committed_before_they_are_given_away(
    db: eosdb.Database, member: Callable[..., eosdb.Consumer]
) -> None:
    db.producer().send("t", b"1", partition=3)
    a = member("a", enable_auto_commit=True)
    assert len(a.poll()) == 1
    b = member("b", enable_auto_commit=True)
    settle(a, b)
    assert TPS[3] in b.assignment()
    assert b.position(TPS[3]) == 1


@pytest.mark.slow
def test_callbacks_may_commit_what_is_taken_away(
    db: eosdb.Database, member: Callable[..., eosdb.Consumer]
) -> None:
    db.producer().send("t", b"1", partition=3)
    a = db.consumer("g", auto_offset_reset="earliest", client_id="a")
    a.subscribe(
        "t", on_revoke=lambda tps: a.commit({tp: OffsetAndMetadata(a.position(tp)) for tp in tps})
    )
    a.poll()
    b = member("b")
    settle(a, b)
    assert b.position(TPS[3]) == 1


@pytest.mark.slow
def test_a_failing_callback_is_told_to_whoever_polls_and_loses_nothing(
    member: Callable[..., eosdb.Consumer], db: eosdb.Database
) -> None:
    def refuse(tps: list[TopicPartition]) -> None:
        raise RuntimeError(f"cannot give back {len(tps)}")

    a = db.consumer("g")
    a.subscribe("t", on_revoke=refuse)
    b = member("b")
    with pytest.raises(RuntimeError, match="cannot give back 4"):
        for _ in range(200):
            a.poll(timeout_ms=20)
    settle(a, b)
    assert shares(a, b) == [2, 2]


def test_assignors_that_have_nothing_in_common_cannot_share_a_group(
    member: Callable[..., eosdb.Consumer],
) -> None:
    member("a", partition_assignment_strategy="range")
    with pytest.raises(eosdb.InconsistentGroupProtocolError):
        member("b", partition_assignment_strategy="roundrobin")


@pytest.mark.slow
def test_a_group_moves_to_another_assignor_through_members_that_know_both(
    member: Callable[..., eosdb.Consumer], db: eosdb.Database
) -> None:
    a = member("a", partition_assignment_strategy=["roundrobin", "range"])
    b = member("b", partition_assignment_strategy="range")
    settle(a, b)
    assert db.broker.describe_group("g").protocol_name == "range"
    b.close()
    settle(a)
    assert db.broker.describe_group("g").protocol_name == "roundrobin"


def test_programs_that_are_no_consumers_are_told_apart(
    db: eosdb.Database, member: Callable[..., eosdb.Consumer]
) -> None:
    joined = db.broker.join_group("g", protocols=[("range", b"something else")])
    db.broker.sync_group("g", joined.generation_id, joined.member_id)
    a = db.consumer("g")
    a.subscribe("t")
    db.broker.leave_group("g", joined.member_id)
    a.poll()
    db.broker.join_group("g", protocols=[("range", b"something else")])
    with pytest.raises(eosdb.InconsistentGroupProtocolError, match="separate group"):
        for _ in range(2_000):
            a.poll(timeout_ms=20)


def test_group_metadata_names_the_membership(
    db: eosdb.Database, member: Callable[..., eosdb.Consumer]
) -> None:
    alone = db.consumer("g", group_instance_id="i")
    assert alone.group_metadata() == ConsumerGroupMetadata("g", group_instance_id="i")
    a = member("a")
    assert a.group_metadata() == ConsumerGroupMetadata("g", 1, "a-3")
    with pytest.raises(eosdb.IllegalStateError, match="enforce_rebalance"):
        alone.enforce_rebalance()


def test_a_waiting_poll_is_woken(db: eosdb.Database) -> None:
    consumer = db.consumer()
    consumer.subscribe("t")
    consumer.wakeup()
    with pytest.raises(eosdb.WakeupError):
        consumer.poll(timeout_ms=60_000)
    assert consumer.poll() == []
