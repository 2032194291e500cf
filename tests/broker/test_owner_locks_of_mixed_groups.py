"""A member whose process holds a lock keeps it known while its group changes over, and back."""

from __future__ import annotations

import eosdb
from eosdb.coordinator.groups import rows
from tests.broker.test_mixed_groups import beat


def locks(db: eosdb.Database) -> dict[str, int]:
    with db._store.read() as connection:
        group = rows.load(connection, "g")
    assert group is not None
    return {member.member_id: member.owner_lock for member in group.members}


def test_a_members_lock_is_that_of_its_join(db: eosdb.Database) -> None:
    db.admin.create_topic("t", partitions=4)
    consumer = db.consumer("g")
    consumer.subscribe("t")
    consumer.poll(timeout_ms=0)
    own = consumer.group_metadata().member_id
    number = locks(db)[own]
    assert number > 0
    beat(db, "new")
    assert locks(db) == {own: number, "new": 0}
    beat(db, "new", -1)
    assert locks(db) == {own: number}
    assert db._core.coordinator.presences.is_there(number)
