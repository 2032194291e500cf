"""Topic administration: CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords.

Each topic or partition of a request is changed on its own, with its own result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, TypeVar
from uuid import UUID

from kafka.protocol.admin.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

from eosdb.errors import (
    EosdbError,
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidRequestError,
    PolicyViolationError,
    TopicAuthorizationFailedError,
)
from eosdb.model.notices import catalog
from eosdb.model.topic_config import without_effect
from eosdb.model.values import TopicPartition
from eosdb.wire.errors import (
    NONE,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    code_of,
    fields_of,
)
from eosdb.wire.session import NODE_ID, Session

_N = TypeVar("_N")
_UNSET = -1
_PARTITIONS_AT_ONCE: Final = 10_000
"""In a request of CreateTopics or CreatePartitions, as in Kafka 4.1."""
_NO_ID = UUID(int=0)
_Topic = CreateTopicsRequest.CreatableTopic
_Created = CreateTopicsResponse.CreatableTopicResult
_Deleted = DeleteTopicsResponse.DeletableTopicResult
_Widened = CreatePartitionsResponse.CreatePartitionsTopicResult


def create_topics(
    session: Session, request: CreateTopicsRequest, version: int
) -> CreateTopicsResponse:
    # decisions/0031: each partition is a row, and one request may name 100,000 topics.
    by_default = session.core.config.num_partitions
    count = sum(
        len(t.assignments) or (t.num_partitions if t.num_partitions > 0 else by_default)
        for t in request.topics
    )
    if count > _PARTITIONS_AT_ONCE:
        much = PolicyViolationError(
            f"{count} partitions in one request, expected {_PARTITIONS_AT_ONCE} at most; send several"
        )
        return CreateTopicsResponse(topics=[_not_created(t.name, much) for t in request.topics])
    twice = repeated(topic.name for topic in request.topics)
    return CreateTopicsResponse(
        topics=[
            *(_created(session, t, request.validate_only) for t in request.topics if t.name not in twice),
            *(_not_created(name, _twice(name)) for name in twice),
        ]
    )  # fmt: skip


def delete_topics(
    session: Session, request: DeleteTopicsRequest, version: int
) -> DeleteTopicsResponse:
    if version >= 6:
        requested = [(topic.name, topic.topic_id or _NO_ID) for topic in request.topics]
    else:
        requested = [(name, _NO_ID) for name in request.topic_names]
    twice = repeated(name for name, _ in requested if name is not None)
    return DeleteTopicsResponse(
        responses=[
            *(_deleted(session, name, id_) for name, id_ in requested if name not in twice),
            *(_deletion(name, _NO_ID, _twice(name)) for name in twice),
        ]
    )


def create_partitions(
    session: Session, request: CreatePartitionsRequest, version: int
) -> CreatePartitionsResponse:
    twice = repeated(topic.name for topic in request.topics)
    results = [_widening(name, _twice(name)) for name in twice]
    counts, room = session.broker.every_partition_count(), _PARTITIONS_AT_ONCE
    for topic in request.topics:
        if topic.name in twice:
            continue
        new = max(topic.count - counts.get(topic.name, topic.count), 0)
        try:
            if new > room:
                raise PolicyViolationError(
                    f"{new} more partitions, where {room} are left of the {_PARTITIONS_AT_ONCE} that one "
                    "request may add; send several"
                )
            if topic.assignments is not None:
                existing = session.broker.topic(topic.name, may_create=False)
                added = topic.count - existing.partitions
                check_assignments([a.broker_ids for a in topic.assignments], added)
            session.admin.create_partitions(
                topic.name, topic.count, validate_only=request.validate_only
            )
            room -= new
            results.append(_widening(topic.name))
        except EosdbError as error:
            results.append(_widening(topic.name, error))
    return CreatePartitionsResponse(results=results)


def delete_records(
    session: Session, request: DeleteRecordsRequest, version: int
) -> DeleteRecordsResponse:
    response = DeleteRecordsResponse.DeleteRecordsTopicResult

    def answer(
        tp: TopicPartition, offset: int
    ) -> DeleteRecordsResponse.DeleteRecordsTopicResult.DeleteRecordsPartitionResult:
        low, code = -1, NONE
        try:
            low = session.broker.delete_records(tp, offset)
        except EosdbError as error:
            code = code_of(error)
        return response.DeleteRecordsPartitionResult(
            partition_index=tp.partition, low_watermark=low, error_code=code
        )

    return DeleteRecordsResponse(
        topics=[
            response(
                name=topic.name,
                partitions=[
                    answer(TopicPartition(topic.name, p.partition_index), p.offset)
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def log_without_effect(topic: str, settings: Iterable[str]) -> None:
    kept = without_effect(settings)
    if kept:
        catalog.SETTINGS_KEPT.say(topic=topic, settings=list(kept), setting_names=", ".join(kept))


def repeated(names: Iterable[_N]) -> list[_N]:
    """The names that occur more than once."""
    return [name for name, count in Counter(names).items() if count > 1]


def _created(session: Session, topic: _Topic, validate_only: bool) -> _Created:
    try:
        partitions = _partitions(topic)
        config = _config(topic)
        created = session.admin.create_topic(
            topic.name, partitions, config, validate_only=validate_only
        )
        if not validate_only:
            log_without_effect(topic.name, config)
    except EosdbError as error:
        return _not_created(topic.name, error)
    may_see = "describe_configs" in session.broker.authorized_operations("topic", topic.name)
    return _Created(
        name=topic.name,
        topic_id=created.topic_id,
        error_code=NONE,
        error_message=None,
        topic_config_error_code=NONE if may_see else TopicAuthorizationFailedError.code,
        num_partitions=created.partitions if may_see else _UNSET,
        replication_factor=1 if may_see else _UNSET,
        configs=[
            _Created.CreatableTopicConfigs(
                name=entry.name, value=entry.value, read_only=False,
                config_source=entry.source.value, is_sensitive=False,
            )
            for entry in session.admin.describe_new_topic_config(config)
            if may_see
        ],
    )  # fmt: skip


def _config(topic: _Topic) -> dict[str, str]:
    config = {}
    for setting in topic.configs:
        if setting.value is None:
            raise InvalidConfigError(f"{setting.name}: got null, expected a value")
        config[setting.name] = setting.value
    return config


def _partitions(topic: _Topic) -> int | None:
    """The requested number of partitions; None for the broker's default."""
    count = topic.num_partitions
    if topic.assignments:
        if (count, topic.replication_factor) != (_UNSET, _UNSET):
            raise InvalidRequestError(
                f"got {count} partitions with replication factor {topic.replication_factor} and a manual "
                "assignment; expected -1 for both beside an assignment"
            )
        by_partition = {a.partition_index: a.broker_ids for a in topic.assignments}
        given = sorted(assignment.partition_index for assignment in topic.assignments)
        if given != list(range(len(given))):
            raise InvalidReplicaAssignmentError(
                f"an assignment of the partitions {given}: expected each number from 0 on, once"
            )
        check_assignments(by_partition.values(), len(by_partition))
        return len(by_partition)
    if topic.replication_factor not in (_UNSET, 1):
        raise InvalidReplicationFactorError(
            f"replication factor {topic.replication_factor}: there is one broker; expected 1 or -1"
        )
    if count == 0 or count < _UNSET:
        raise InvalidPartitionsError(f"partitions: got {count}, expected at least 1, or -1")
    return None if count == _UNSET else count


def check_assignments(assignments: Iterable[list[int]], count: int) -> None:
    """Raises InvalidReplicaAssignmentError unless each of `count` partitions is on the one broker."""
    given = list(assignments)
    if any(brokers != [NODE_ID] for brokers in given) or len(given) != count:
        raise InvalidReplicaAssignmentError(
            f"the assignment {given}: expected [{NODE_ID}], the one broker, for each of {count} partitions"
        )


def _not_created(name: str, error: EosdbError) -> _Created:
    return _Created(
        name=name, topic_id=_NO_ID, **fields_of(error),
        topic_config_error_code=NONE, num_partitions=-1, replication_factor=-1, configs=[],
    )  # fmt: skip


def _deleted(session: Session, name: str | None, topic_id: UUID) -> _Deleted:
    try:
        if (name is None) == (topic_id == _NO_ID):
            raise InvalidRequestError(f"got {name!r} and {topic_id}, expected a name or an id")
        session.admin.delete_topic(topic_id if name is None else name)
    except EosdbError as error:
        return _deletion(name, topic_id, error)
    return _deletion(name, topic_id)


def _deletion(name: str | None, topic_id: UUID, error: EosdbError | None = None) -> _Deleted:
    return _Deleted(name=name, topic_id=topic_id, **fields_of(error))


def _widening(name: str, error: EosdbError | None = None) -> _Widened:
    return _Widened(name=name, **fields_of(error))


def _twice(name: str) -> InvalidRequestError:
    return InvalidRequestError(f"topic {name!r} is named twice in one request; name it once")
