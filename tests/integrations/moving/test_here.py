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
