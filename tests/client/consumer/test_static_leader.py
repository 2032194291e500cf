"""A static leader that starts again is given what it had (KIP-814), and then what is new."""

from __future__ import annotations

from pathlib import Path

import eosdb
from eosdb import ManualClock, TopicPartition


def test_a_static_leader_that_starts_again_reads_partitions_made_meanwhile(
    db_path: Path, clock: ManualClock
) -> None:
    first = eosdb.connect(db_path, clock=clock)
    first.admin.create_topic("t")
    consumer = first.consumer("g", group_instance_id="one")
    consumer.subscribe(["t"])
    consumer.poll(100)
    assert consumer.assignment() == {TopicPartition("t", 0)}
    first.abandon()
    with eosdb.connect(db_path, clock=clock) as db:
        db.admin.create_partitions("t", 2)
        again = db.consumer("g", group_instance_id="one")
        again.subscribe(["t"])
        for _ in range(10):
            again.poll(100)
        assert again.assignment() == {TopicPartition("t", 0), TopicPartition("t", 1)}
