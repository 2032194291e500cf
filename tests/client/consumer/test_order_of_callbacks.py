"""A member of the classic protocol gives up before it takes, and keeps its id for as long as it may."""

from __future__ import annotations

from typing import Any

import eosdb
from eosdb import ManualClock, TopicPartition
from eosdb.client.consumer.classic_membership import ClassicMembership

A, B, C = (TopicPartition("t", number) for number in range(3))


def test_partitions_are_revoked_before_others_are_assigned(db: eosdb.Database) -> None:
    db.admin.create_topic("t", partitions=3)
    told: list[tuple[str, list[TopicPartition]]] = []
    consumer = db.consumer("g", partition_assignment_strategy="cooperative-sticky")
    consumer.subscribe(
        "t",
        on_assign=lambda tps: told.append(("assign", sorted(tps))),
        on_revoke=lambda tps: told.append(("revoke", sorted(tps))),
    )
    consumer.poll(timeout_ms=0)
    membership = consumer._membership
    assert isinstance(membership, ClassicMembership)
    membership._apply_assignment({A, B})
    told.clear()
    membership._apply_assignment({B, C})
    assert told == [("revoke", [A]), ("assign", [C])]
    assert membership._must_rejoin, "others get what it has given up"


def test_a_static_member_that_polled_too_late_comes_back_under_its_id(
    db: eosdb.Database, clock: ManualClock
) -> None:
    db.admin.create_topic("t")
    settings: dict[str, Any] = {"max_poll_interval_ms": 3_000, "session_timeout_ms": 10_000}
    for instance in ("one", None):
        consumer = db.consumer(f"g {instance}", group_instance_id=instance, **settings)
        consumer.subscribe("t")
        consumer.poll(timeout_ms=0)
        before = consumer.group_metadata().member_id
        clock.advance(3_001)
        consumer.poll(timeout_ms=0)
        assert (consumer.group_metadata().member_id == before) is (instance is not None)
