"""What a processor's transaction keeps of a partition whose topic is made anew in between."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, cast
from uuid import UUID

from eosdb import ConsumerGroupMetadata, ManualClock, OffsetAndMetadata, TopicPartition
from eosdb.client.consumer.consumer import Consumer
from eosdb.client.processor.unit_transaction import UnitTransaction
from eosdb.model.metrics import Metrics

ONE, OTHER = TopicPartition("t", 0), TopicPartition("u", 0)


class Reader:
    """A consumer that has read the topics with these ids."""

    def __init__(self) -> None:
        self.topic_ids = {ONE: UUID(int=1), OTHER: UUID(int=2)}

    def group_metadata(self) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata("g", 1, "m", topic_ids=dict(self.topic_ids))

    def committed(self, _: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        return {}


def test_an_offset_of_a_topic_that_is_gone_is_not_committed_to_the_one_of_its_name(
    clock: ManualClock,
) -> None:
    """Also if the next records are another partition's, and nothing of the new topic is complete yet."""
    reader, begin = Reader(), cast(Any, nullcontext)
    tx = UnitTransaction(cast(Consumer, reader), clock, Metrics(clock), begin)
    with tx.batch():
        for tp in (ONE, OTHER):
            tx.take_in(tp, [29])
            tx.complete(tp, [29])
    assert tx._offsets() == {
        ONE: OffsetAndMetadata(30, "eosdb:30"),
        OTHER: OffsetAndMetadata(30, "eosdb:30"),
    }
    reader.topic_ids[ONE] = UUID(int=3)
    with tx.batch():
        assert tx._offsets() == {OTHER: OffsetAndMetadata(30, "eosdb:30")}
        assert tx._starts == {OTHER: 29}
        assert tx._committer().topic_ids == reader.topic_ids
