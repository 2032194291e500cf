"""What of a file is found that is to move."""

from __future__ import annotations

import eosdb
from eosdb import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from eosdb.integrations.moving.here import Here
from eosdb.model.requests import OffsetCommit


def test_a_group_that_committed_no_offset_but_a_number_below_0_has_none_to_move(
    db: eosdb.Database,
) -> None:
    """Clients of Kafka keep such numbers there, as marks of their own."""
    db.admin.create_topic("orders", partitions=2)
    marked, read = TopicPartition("orders", 0), TopicPartition("orders", 1)
    for group, offsets in (("marks", {marked: -1}), ("both", {marked: -2, read: 0})):
        commits = {tp: OffsetAndMetadata(offset) for tp, offset in offsets.items()}
        db.broker.ask(OffsetCommit(group=ConsumerGroupMetadata(group), offsets=commits, each=True))
    here = Here(db)
    (found,) = here.groups(here.topics(None))
    assert (found.name, found.offsets) == ("both", {read: 0})


def test_a_processor_that_was_killed_amid_several_records_has_unfinished_ones(
    db: eosdb.Database,
) -> None:
    """It had read up to 9, and completed all but 4 and 6; the other partition was read in order."""
    db.admin.create_topic("orders", partitions=2)
    amid, in_order = TopicPartition("orders", 0), TopicPartition("orders", 1)
    commits = {amid: OffsetAndMetadata(4, "eosdb:4 10 2"), in_order: OffsetAndMetadata(3)}
    db.broker.ask(OffsetCommit(group=ConsumerGroupMetadata("g"), offsets=commits, each=True))
    here = Here(db)
    (found,) = here.groups(here.topics(None))
    assert found.unfinished == {amid: [4, 6]}
