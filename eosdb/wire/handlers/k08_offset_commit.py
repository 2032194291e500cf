"""OffsetCommit: a group's offsets, with an answer for every partition.

Version 2: without a commit time; 5: without a retention time; 6: the leader's epoch; 7: static members
(KIP-345); 8: flexible; 9: the epochs of the consumer protocol, with its errors (KIP-848); 10: topics by
their ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from uuid import UUID

from kafka.protocol.consumer.group import OffsetCommitRequest

from eosdb.errors import (
    ApiError,
    EosdbError,
    GroupIdNotFoundError,
    IllegalGenerationError,
    OffsetOutOfRangeError,
    StaleMemberEpochError,
    UnsupportedVersionError,
)
from eosdb.log.topics import unknown_id
from eosdb.model import requests
from eosdb.model.requests import OffsetCommit
from eosdb.model.values import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from eosdb.wire.apis import Fields, Session, name_by_id, partitions_of, per_partition, serves
from eosdb.wire.errors import coordinator_code_of
from eosdb.wire.session import NO_TOPIC

_BEFORE_EPOCHS: Final = {
    GroupIdNotFoundError.code: IllegalGenerationError.code,
    StaleMemberEpochError.code: UnsupportedVersionError.code,
}


def answered(
    request: Any,
    of_all: EosdbError | None,
    errors: Mapping[TopicPartition, ApiError | None],
) -> Fields:
    """Answer each partition. An error of the whole request hides all others except an unknown topic id."""

    def answer(tp: TopicPartition, _: object) -> EosdbError | None:
        error = of_all or errors.get(tp)
        # This error means that another topic has got the name since the look-up of the id.
        is_another = of_all is None and isinstance(error, OffsetOutOfRangeError)
        return unknown_id(NO_TOPIC) if tp.topic is None or is_another else error

    return {"topics": per_partition(request.topics, answer)}


@serves(
    OffsetCommitRequest, 2, 10, coordinator_code_of, codes={range(9): _BEFORE_EPOCHS},
    failed=lambda request, error, _: answered(request, error, {}),
)  # fmt: skip
def offset_commit(session: Session, request: OffsetCommitRequest, version: int) -> Fields:
    group, offsets = committed(session, request, version >= 10)
    commit = OffsetCommit(group=group, offsets=offsets, each=True)
    return answered(request, None, session.broker.ask(commit))


def committed(
    session: Session, request: Any, by_id: bool
) -> tuple[ConsumerGroupMetadata, dict[TopicPartition, OffsetAndMetadata]]:
    """The committing member and its offsets. With `by_id`, names the request's topics and leaves out those
    with unknown ids."""
    ids: dict[TopicPartition, UUID] = {}
    topics: Iterable[Any] = request.topics
    if by_id:
        name_by_id(topics, session.broker.ask(requests.TopicNames()))
        topics = [topic for topic in topics if topic.name is not None]
        ids = {tp: topic.topic_id for topic in topics for tp, _ in partitions_of([topic])}
    epoch = request.generation_id_or_member_epoch
    member = request.member_id, request.group_instance_id
    return ConsumerGroupMetadata(request.group_id, epoch, *member, ids), {
        tp: OffsetAndMetadata(
            p.committed_offset, p.committed_metadata or "", p.committed_leader_epoch
        )
        for tp, p in partitions_of(topics)
    }
