"""What members of the classic protocol promise each other, and members of other programs."""

from __future__ import annotations

import pytest

import eosdb
from eosdb import ConsumerGroupMetadata, ManualClock
from eosdb.model.protocol.consumer_protocol import decode_subscription
from tests.client.consumer.members import TPS, Events, Member, maker, settle, shares

KIND = "range"


def test_a_static_member_returns_without_a_rebalance_and_fences_its_former_self(
    member: Member, events: Events
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
    member: Member, clock: ManualClock
) -> None:
    a, b = member("a", group_instance_id="one"), member("b")
    settle(a, b)
    a.close()
    settle(b)
    assert shares(b) == [2]
    for _ in range(10):
        clock.advance(5_000)
        settle(b)
    assert shares(b) == [4]


@pytest.mark.parametrize(
    ("kind", "says"),
    [("range", 0), ("roundrobin", 0), ("cooperative-sticky", 4)],
    indirect=["kind"],
)
def test_only_a_cooperative_member_says_what_it_owns(
    db: eosdb.Database, member: Member, says: int
) -> None:
    """An eager one has given everything up, and a leader of another program would believe it."""
    consumer = member("a")
    consumer.poll()
    assert consumer.assignment() == {*TPS}
    consumer.enforce_rebalance()
    consumer.poll()
    (described,) = db.broker.describe_group("g").members
    assert len(decode_subscription(described.metadata).owned) == says
    consumer.close()


def test_a_group_moves_to_another_assignor_through_members_that_know_both(
    member: Member, db: eosdb.Database
) -> None:
    a = member("a", partition_assignment_strategy=["roundrobin", "range"])
    b = member("b", partition_assignment_strategy="range")
    settle(a, b)
    assert db.broker.describe_group("g").protocol_name == "range"
    b.close()
    settle(a)
    assert db.broker.describe_group("g").protocol_name == "roundrobin"


def test_programs_that_are_no_consumers_are_told_apart(db: eosdb.Database, member: Member) -> None:
    a = member("a")
    db.broker.join_group("g", protocols=[("range", b"something else")])
    with pytest.raises(eosdb.InconsistentGroupProtocolError, match="separate group"):
        settle(a)


def test_group_metadata_names_the_membership(db: eosdb.Database, member: Member) -> None:
    alone = db.consumer("g", group_instance_id="i")
    assert alone.group_metadata() == ConsumerGroupMetadata("g", group_instance_id="i")
    a = member("a")
    assert a.group_metadata() == ConsumerGroupMetadata("g", 1, "a-3")
    with pytest.raises(eosdb.IllegalStateError, match="enforce_rebalance"):
        alone.enforce_rebalance()


@pytest.mark.usefixtures("member")
def test_a_waiting_poll_is_woken(db: eosdb.Database) -> None:
    consumer = db.consumer()
    consumer.subscribe("t")
    consumer.wakeup()
    with pytest.raises(eosdb.WakeupError):
        consumer.poll(timeout_ms=60_000)
    assert consumer.poll() == []


def test_partitions_are_revoked_before_others_are_assigned(
    db: eosdb.Database, events: Events
) -> None:
    db.admin.create_topic("t", partitions=4)
    consumer = maker(db, "cooperative-sticky", events)("a")
    membership = consumer._membership
    assert membership is not None
    membership._apply_assignment({*TPS[:2]})
    events.clear()
    membership._apply_assignment({*TPS[1:3]})
    assert events == [("a", "revoke", TPS[:1]), ("a", "assign", TPS[2:3])]
    assert membership._must_rejoin, "others get what it has given up"
