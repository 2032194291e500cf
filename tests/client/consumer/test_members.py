"""Consumers that share a group: who gets what when members come, go and stall."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import eosdb
from eosdb import ManualClock, OffsetAndMetadata, TopicPartition
from tests.client.consumer.members import TPS, Events, Member, all_of, settle, shares

pytestmark = pytest.mark.slow

KIND = "range"
FIRST = {TPS[0]: OffsetAndMetadata(1)}


@pytest.fixture(autouse=True)
def _verified(db: eosdb.Database) -> Iterator[None]:
    yield
    assert db.verify().ok


@pytest.mark.parametrize("kind", ["range", "roundrobin", "cooperative-sticky"], indirect=True)
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
    assert db.broker.describe_group("g").state == "Stable"


MOVED = [("a", "revoke", TPS[2:]), ("b", "assign", TPS[2:])]


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("range", [("a", "revoke", TPS), ("a", "assign", TPS[:2]), MOVED[1]]),
        ("cooperative-sticky", [*MOVED]),
    ],
    indirect=["kind"],
)
def test_an_eager_member_gives_up_everything_and_another_only_what_moves(
    member: Member, events: Events, told: Events
) -> None:
    """An assignor's rebalances may be empty."""
    a, b = member("a"), member("b")
    settle(a, b)
    assert [one for one in events if one[2]] == [("a", "assign", TPS), *told]
    b.close()
    assert events[-1] == ("b", "revoke", TPS[2:])


@pytest.mark.parametrize("kind", ["cooperative-sticky"], indirect=True)
def test_what_a_member_keeps_is_read_on_while_others_join(
    db: eosdb.Database, member: Member
) -> None:
    a = member("a")
    db.producer().send("t", b"1", partition=0)
    assert len(a.poll()) == 1
    b = member("b")
    db.producer().send("t", b"2", partition=0)
    read = [r.value for _ in range(20) for c in (a, b) for r in c.poll(timeout_ms=20)]
    assert read == [b"2"]


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


@pytest.mark.parametrize("instance", [None, "one"])
def test_a_member_that_does_not_poll_for_too_long_leaves_and_a_static_one_keeps_its_id(
    member: Member, clock: ManualClock, events: Events, instance: str | None
) -> None:
    a = member("a", max_poll_interval_ms=3_000, group_instance_id=instance)
    before = a.group_metadata().member_id
    clock.advance(3_001)
    a.poll()
    assert events[1:] == [("a", "lost", TPS), ("a", "assign", TPS)]
    assert (a.group_metadata().member_id == before) is (instance is not None)


def test_unsubscribing_leaves_the_group(db: eosdb.Database, member: Member) -> None:
    a = member("a")
    leaves = (a.unsubscribe, lambda: a.assign([TPS[1]]), a.close)
    for leave in leaves:
        a.unsubscribe()
        a.subscribe("t")
        assert shares(a) == [4]
        leave()
        assert db.broker.describe_group("g").state == "Empty"


@pytest.mark.parametrize("kind", ["range", "cooperative-sticky"], indirect=True)
def test_new_partitions_and_topics_that_fit_a_pattern_are_noticed(
    db: eosdb.Database, member: Member
) -> None:
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
    a.poll()
    assert shares(a) == [5]


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


# -- offsets and callbacks ------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["itself", "its callback"])
def test_positions_are_committed_before_they_are_given_away(
    db: eosdb.Database, member: Member, by: str
) -> None:
    db.producer().send("t", b"1", partition=3)
    a = member("a", enable_auto_commit=by == "itself")
    if by == "its callback":
        a.subscribe(
            "t",
            on_revoke=lambda tps: a.commit({tp: OffsetAndMetadata(a.position(tp)) for tp in tps}),
        )
    assert len(a.poll()) == 1
    b = member("b")
    settle(a, b)
    assert TPS[3] in b.assignment()
    assert b.position(TPS[3]) == 1


def test_a_failing_callback_is_told_to_whoever_polls_and_loses_nothing(member: Member) -> None:
    def refuse(tps: list[TopicPartition]) -> None:
        raise RuntimeError(f"cannot give back {len(tps)}")

    a = member("a")
    a.subscribe("t", on_revoke=refuse)
    b = member("b")
    with pytest.raises(RuntimeError, match="cannot give back"):
        settle(a)
    settle(a, b)
    assert shares(a, b) == [2, 2]
    with pytest.raises(RuntimeError, match="cannot give back 2"):
        a.close()


def test_a_transaction_of_a_zombie_is_refused_with_the_groups_error(
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
        producer.send_offsets_to_transaction(FIRST, zombie.group_metadata())
    producer.abort_transaction()
    assert heir.committed(TPS) == {}
