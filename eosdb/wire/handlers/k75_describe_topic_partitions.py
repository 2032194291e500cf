"""DescribeTopicPartitions: topics page by page (KIP-966)."""

from __future__ import annotations

from typing import Final

from kafka.protocol.admin.topics import DescribeTopicPartitionsRequest

from eosdb.errors import EosdbError, InvalidRequestError
from eosdb.model import requests
from eosdb.model.values import TopicMetadata
from eosdb.wire.apis import Fields, Session, serves
from eosdb.wire.handlers.k03_metadata import led_here

_MOST_PARTITIONS: Final = 2_000
"""The most partitions in an answer (Kafka: max.request.partition.size.limit)."""


@serves(DescribeTopicPartitionsRequest, 0, 0)
def describe_topic_partitions(
    session: Session, request: DescribeTopicPartitionsRequest, _: int
) -> Fields:
    """Describe topics in the order of their names, from the cursor on, up to the limit of partitions."""
    names = sorted({topic.name for topic in request.topics})
    begin, first = "", 0
    if request.cursor is not None:
        begin, first = request.cursor.topic_name, request.cursor.partition_index
        if first < 0 or (names and begin not in names):
            error = InvalidRequestError(f"got the cursor {begin!r}, {first}, expected a partition")
            return {
                "topics": [{"name": name, "error": error} for name in names],
                "next_cursor": None,
            }
    left = max(1, min(request.response_partition_limit, _MOST_PARTITIONS))
    topics, following = list[Fields](), None
    for name in names or sorted(session.broker.ask(requests.TopicPartitions())):
        if name < begin:
            continue
        if left == 0:
            following = (name, 0)
            break
        try:
            topic = session.broker.ask(requests.Topic(name, may_create=False))
        except EosdbError as error:
            if names:  # The requested topic was deleted meanwhile.
                topics.append({"name": name, "error": error})
            continue
        indexes = range(first if name == begin else 0, topic.partitions)[:left]
        topics.append(_listed(session, topic, indexes))
        left -= len(indexes)
        if indexes.stop < topic.partitions:
            following = (name, indexes.stop)
            break
    cursor = following and {"topic_name": following[0], "partition_index": following[1]}
    return {"topics": topics, "next_cursor": cursor}


def _listed(session: Session, topic: TopicMetadata, indexes: range) -> Fields:
    in_sync: Fields = {"eligible_leader_replicas": [], "last_known_elr": []}
    epoch = session.leader_epoch()
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "partitions": [led_here(index, epoch) | in_sync for index in indexes],
        "topic_authorized_operations": sum(
            1 << operation for operation in session.operations(True, "topic", topic.name)
        ),
    }
