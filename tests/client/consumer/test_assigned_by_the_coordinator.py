"""Consumers of a group whose partitions the coordinator assigns (KIP-848): who gets what when members come,
go, stall and return, and that nobody stops for it."""

from __future__ import annotations

import gc
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import eosdb
from eosdb import ConsumerGroupMetadata, ManualClock, OffsetAndMetadata, TopicPartition
from eosdb.client.consumer.consumer_membership import Step, next_step
from eosdb.testing import FaultyTransport

TPS = [TopicPartition("t", i) for i in range(4)]
Events = list[tuple[str, str, list[TopicPartition]]]
Member = Callable[..., eosdb.Consumer]


@pytest.fixture(autouse=True)
def _topic(db: eosdb.Database) -> Iterator[None]:
    db.admin.create_topic("t", partitions=4)
    yield
    assert db.verify().ok


@pytest.fixture
def events() -> Events:
    return []


@pytest.fixture
def member(db: eosdb.Database, events: Events) -> Member:
    """Makes a consumer of group `g` that writes down what happens to it."""

    def make(name: str, topics: Any = "t", **config: Any) -> eosdb.Consumer:
        config = {"auto_offset_reset": "earliest", "client_id": name, **config}
        consumer = db.consumer("g", group_protocol="consumer", **config)
        consumer.subscribe(
            topics,
            on_assign=lambda tps: events.append((name, "assign", tps)),
            on_revoke=lambda tps: events.append((name, "revoke", tps)),
            on_lost=lambda tps: events.append((name, "lost", tps)),
        )
        return consumer

    return make


def settle(*consumers: eosdb.Consumer) -> None:
    """Everybody polls a few times, for far less than an interval of heartbeats."""
    for _ in range(6):
        for consumer in consumers:
            assert consumer.poll(timeout_ms=20) == []


def shares(*consumers: eosdb.Consumer) -> list[int]:
    return [len(consumer.assignment()) for consumer in consumers]


def all_of(*consumers: eosdb.Consumer) -> list[TopicPartition]:
    return sorted(tp for consumer in consumers for tp in consumer.assignment())


def members(db: eosdb.Database) -> list[str]:
    return [m.client_id for m in db.broker.describe_group("g").members]


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


@pytest.mark.slow
def test_members_share_the_partitions_and_take_over_from_one_that_leaves(
    db: eosdb.Database, member: Member
) -> None:
    a = member("a")
    assert shares(a) == [4]
    b = member("b")
    settle(a, b)
    assert shares(a, b) == [2, 2]
    c = member("c")
    settle(a, b, c)
    assert sorted(shares(a, b, c)) == [1, 1, 2]
    assert all_of(a, b, c) == TPS
    a.close()
    settle(b, c)
    assert shares(b, c) == [2, 2]
    assert all_of(b, c) == TPS
    assert db.broker.describe_consumer_group("g").state == "Stable"


def test_a_member_gives_up_only_what_moves(member: Member, events: Events) -> None:
    a, b = member("a"), member("b")
    settle(a, b)
    assert events == [
        ("a", "assign", TPS),
        ("b", "assign", []),
        ("a", "revoke", TPS[2:]),
        ("b", "assign", TPS[2:]),
    ]
    b.close()
    assert events[-1] == ("b", "revoke", TPS[2:])


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


def test_a_silent_member_loses_its_partitions_when_its_session_ends(
    db: eosdb.Database, member: Member, clock: ManualClock, events: Events
) -> None:
    silent, b = member("silent"), member("b")
    settle(silent, b)
    held = sorted(silent.assignment())
    for _ in range(10):
        clock.advance(5_000)
        settle(b)
    assert shares(b) == [4]
    with pytest.raises(eosdb.UnknownMemberIdError):
        silent.commit({held[0]: OffsetAndMetadata(7)})
    silent.poll()
    assert ("silent", "lost", held) in events
    settle(silent, b)
    assert shares(silent, b) == [2, 2]
    assert db.consumer("g").committed(TPS) == {}


def test_a_member_that_does_not_poll_for_too_long_leaves(
    member: Member, clock: ManualClock, events: Events
) -> None:
    a = member("a", max_poll_interval_ms=3_000)
    before = a.group_metadata().member_id
    clock.advance(3_001)
    a.poll()
    assert events[1:] == [("a", "lost", TPS), ("a", "assign", TPS)]
    assert a.group_metadata().member_id != before


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
        a.commit({A: OffsetAndMetadata(1)})
    a.poll()
    assert ("a", "lost", TPS) in events


def test_unsubscribing_leaves_the_group(db: eosdb.Database, member: Member) -> None:
    a = member("a")
    a.unsubscribe()
    assert a.assignment() == set()
    assert members(db) == []
    a.subscribe("t")
    assert shares(a) == [4]
    a.close()
    assert members(db) == []


def test_a_member_that_dies_is_missed_at_once(
    db: eosdb.Database, db_path: Path, member: Member, clock: ManualClock
) -> None:
    """The lock of decision 34, as for the classic protocol."""
    dies = eosdb.connect(db_path, clock=clock)
    victim = dies.consumer("g", group_protocol="consumer")
    victim.subscribe("t")
    heir = member("heir")
    settle(victim, heir)
    assert shares(victim, heir) == [2, 2]
    dies.abandon()
    died_ms = clock.time_ms()
    while shares(heir) != [4]:
        heir.poll(timeout_ms=20)
    assert clock.time_ms() - died_ms < 1_000
    dies.close()


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


def test_a_static_members_id_is_not_free_before_it_has_left(member: Member) -> None:
    a = member("a", group_instance_id="one")
    with pytest.raises(eosdb.UnreleasedInstanceIdError, match="still held"):
        member("b", group_instance_id="one")
    assert shares(a) == [4]


def test_a_static_member_whose_place_is_taken_is_fenced(member: Member, clock: ManualClock) -> None:
    former = member("a", group_instance_id="one")
    clock.advance(45_001)
    again = member("a2", group_instance_id="one")
    assert shares(again) == [4]
    for _ in range(2):
        with pytest.raises(eosdb.FencedInstanceIdError):
            former.poll()


# -- subscriptions --------------------------------------------------------------------------------


@pytest.mark.slow
def test_new_topics_and_partitions_are_noticed(db: eosdb.Database, member: Member) -> None:
    a, b = member("a", re.compile("t.*")), member("b", re.compile("t.*"))
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
    db: eosdb.Database, member: Member, clock: ManualClock
) -> None:
    a = member("a", metadata_max_age_ms=4_000, max_poll_records=1)
    producer = db.producer()
    for i in range(10):
        producer.send("t", b"%d" % i, partition=0)
    a.poll()
    db.admin.create_partitions("t", 5)
    a.poll()
    assert shares(a) == [4]
    clock.advance(4_000)
    a.poll()
    assert shares(a) == [5]


@pytest.mark.slow
def test_members_may_want_different_topics_and_change_their_minds(
    db: eosdb.Database, member: Member
) -> None:
    db.admin.create_topic("u", partitions=2)
    a, b = member("a", "t"), member("b", ["t", "u"])
    settle(a, b)
    assert {tp.topic for tp in a.assignment()} == {"t"}
    assert {TopicPartition("u", 0), TopicPartition("u", 1)} <= b.assignment()
    a.subscribe("u")
    settle(a, b)
    assert {tp.topic for tp in a.assignment()} == {"u"}
    assert len(all_of(a, b)) == 6


def test_a_topic_made_anew_is_read_from_its_beginning(db: eosdb.Database, member: Member) -> None:
    a = member("a")
    db.producer().send("t", b"old", partition=0).result()
    assert [r.value for r in a.poll()] == [b"old"]
    db.admin.delete_topic("t")
    db.admin.create_topic("t", partitions=4)
    db.producer().send("t", b"new", partition=0).result()
    assert [r.value for _ in range(5) for r in a.poll(timeout_ms=20)] == [b"new"]
    assert shares(a) == [4]


# -- offsets and callbacks ------------------------------------------------------------------------


def test_positions_are_committed_before_they_are_given_away(
    db: eosdb.Database, member: Member
) -> None:
    db.producer().send("t", b"1", partition=3)
    a = member("a", enable_auto_commit=True)
    assert len(a.poll()) == 1
    b = member("b", enable_auto_commit=True)
    settle(a, b)
    assert TPS[3] in b.assignment()
    assert b.position(TPS[3]) == 1


def test_a_failing_callback_is_told_to_whoever_polls_and_loses_nothing(
    db: eosdb.Database, member: Member
) -> None:
    def refuse(tps: list[TopicPartition]) -> None:
        raise RuntimeError(f"cannot give back {len(tps)}")

    a = db.consumer("g", group_protocol="consumer")
    a.subscribe("t", on_revoke=refuse)
    b = member("b")
    with pytest.raises(RuntimeError, match="cannot give back 2"):
        settle(a)
    settle(a, b)
    assert shares(a, b) == [2, 2]
    with pytest.raises(RuntimeError, match="cannot give back 2"):
        a.close()


def test_a_commit_of_an_old_epoch_is_refused_and_of_the_member_itself_repeated(
    db: eosdb.Database, member: Member
) -> None:
    a = member("a")
    old = a.group_metadata()
    assert old == ConsumerGroupMetadata("g", 1, old.member_id)
    b = member("b")
    settle(a, b)
    assert a.group_metadata().generation_id == 2
    with pytest.raises(eosdb.StaleMemberEpochError):
        db.broker.offset_commit(
            "g", {A: OffsetAndMetadata(1)}, generation_id=1, member_id=old.member_id
        )
    a.commit({A: OffsetAndMetadata(1)})
    assert b.committed([A])[A].offset == 1


def test_a_transaction_of_a_zombie_is_refused(
    db: eosdb.Database, member: Member, clock: ManualClock
) -> None:
    zombie = member("zombie")
    producer = db.producer(transactional_id="tx")
    producer.init_transactions()
    clock.advance(45_001)
    heir = member("heir")
    assert shares(heir) == [4]
    producer.begin_transaction()
    producer.send("t", b"result")
    with pytest.raises(eosdb.UnknownMemberIdError):
        producer.send_offsets_to_transaction({A: OffsetAndMetadata(1)}, zombie.group_metadata())
    producer.abort_transaction()
    assert heir.committed(TPS) == {}


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
    network = FaultyTransport(
        db.broker,
        seed=seed,
        lose_request=0.2,
        lose_response=0.2,
        duplicate=0.2,
        delay_ms=(0, 5),
        silent=0.5,
    )
    a = member(
        "a",
        transport=network,
        request_timeout_ms=100,
        retry_backoff_ms=10,
        default_api_timeout_ms=60_000,
    )
    b = member("b")
    for _ in range(30):
        settle(a, b)
    network.deliver_all()
    settle(a, b)
    assert shares(a, b) == [2, 2]
    assert all_of(a, b) == TPS


# -- the thread that heartbeats -------------------------------------------------------------------


@pytest.fixture
def real(db_path: Path) -> Iterator[eosdb.Database]:
    """A database on the machine's clock."""
    config = eosdb.BrokerConfig(
        group_consumer_session_timeout_ms=2_000, group_consumer_heartbeat_interval_ms=20
    )
    with eosdb.connect(db_path, durability="off", config=config) as opened:
        yield opened


def alone(db: eosdb.Database, **config: Any) -> eosdb.Consumer:
    consumer = db.consumer("alone", group_protocol="consumer", **config)
    consumer.subscribe("t")
    return consumer


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "eosdb-heartbeat-alone"]


def wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_member_that_works_for_long_keeps_its_membership(real: eosdb.Database) -> None:
    consumer = alone(real)
    wait_until(lambda: consumer.metrics()["consumer-group-heartbeat-total"] > 5)
    consumer.commit({A: OffsetAndMetadata(1)})
    consumer.close()
    assert threads() == []


def test_what_its_thread_hears_is_done_by_the_next_poll(real: eosdb.Database) -> None:
    """What it is to give up stays its own until then; its commits name the epoch of the last answer."""
    consumer = alone(real, enable_auto_commit=True)
    other = alone(real)
    heard = consumer.metrics()["consumer-group-heartbeat-total"]
    wait_until(lambda: consumer.metrics()["consumer-group-heartbeat-total"] > heard + 2)
    assert shares(consumer, other) == [4, 0]
    consumer.commit({A: OffsetAndMetadata(1)})
    consumer.poll()
    wait_until(lambda: other.poll() == [] and shares(consumer, other) == [2, 2])
    consumer.close()
    other.close()


def test_a_member_that_never_polls_again_leaves_by_itself(real: eosdb.Database) -> None:
    consumer = alone(real, max_poll_interval_ms=50)
    wait_until(lambda: real.broker.describe_group("alone").state == "Empty")
    with pytest.raises(eosdb.UnknownMemberIdError):
        consumer.commit({A: OffsetAndMetadata(1)})
    assert consumer.poll() == []
    assert shares(consumer) == [4]
    consumer.close()


def test_a_forgotten_or_closed_consumer_leaves_no_thread_behind(real: eosdb.Database) -> None:
    consumer = alone(real)
    (thread,) = threads()
    del consumer
    gc.collect()
    thread.join()
    consumer = alone(real)
    (thread,) = threads()
    real.close()
    thread.join()
    with pytest.raises(eosdb.DatabaseClosedError):
        consumer.poll()


# -- both protocols, and settings -----------------------------------------------------------------


def test_a_group_changes_over_member_by_member(db: eosdb.Database, member: Member) -> None:
    old = [db.consumer("g", client_id=f"old{i}") for i in range(2)]
    for consumer in old:
        consumer.subscribe("t")
    new = [member("new0")]
    for _ in range(20):
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
    "config",
    [
        {"partition_assignment_strategy": "roundrobin"},
        {"session_timeout_ms": 10_000},
        {"heartbeat_interval_ms": 1_000},
    ],
    ids=str,
)
def test_what_the_coordinator_decides_is_no_setting_of_a_member(
    db: eosdb.Database, config: dict[str, Any]
) -> None:
    with pytest.raises(eosdb.ConfigError, match="alter_group_config"):
        db.consumer("g", group_protocol="consumer", **config)


def test_another_protocol_is_refused(db: eosdb.Database) -> None:
    with pytest.raises(eosdb.ConfigError, match="group_protocol"):
        db.consumer("g", group_protocol="Consumer")  # type: ignore[arg-type]


def test_the_groups_settings_apply(db: eosdb.Database, member: Member, clock: ManualClock) -> None:
    db.admin.alter_group_config("g", {"consumer.session.timeout.ms": "50000"})
    silent, b = member("silent"), member("b")
    settle(silent, b)
    for advanced in range(5_000, 50_000, 5_000):
        clock.advance(5_000)
        settle(b)
        assert shares(b) == [2], advanced
    clock.advance(5_000)
    settle(b)
    assert shares(b) == [4]
