"""Group offsets: OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete, with a result for each
partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar
from uuid import UUID

from kafka.protocol.consumer.group import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kafka.protocol.producer.transaction import TxnOffsetCommitRequest, TxnOffsetCommitResponse

from eosdb.errors import (
    ApiError,
    EosdbError,
    OffsetOutOfRangeError,
    StaleMemberEpochError,
    UnknownTopicIdError,
)
from eosdb.log.topics import unknown_id
from eosdb.model.values import OffsetAndMetadata, TopicPartition
from eosdb.wire.errors import (
    GROUP_ID_NOT_FOUND,
    ILLEGAL_GENERATION,
    NONE,
    UNSUPPORTED_VERSION,
    before_fencing,
    coordinator_code_of,
    not_in_transaction,
)
from eosdb.wire.handlers.transactions import VERSION_2_FROM, transaction_version
from eosdb.wire.session import NO_TOPIC, Session

_BY_ID_FROM: Final = 10
"""The first version of OffsetCommit and OffsetFetch that names topics by their ids (KIP-848)."""
_EPOCHS_FROM: Final = 9
"""The first version of OffsetCommit and OffsetFetch in which a member says its epoch (KIP-848)."""
_BEFORE_EPOCHS: Final = {
    GROUP_ID_NOT_FOUND: ILLEGAL_GENERATION,
    StaleMemberEpochError.code: UNSUPPORTED_VERSION,
}
_CODE_FROM: Final = 2
"""The first version of OffsetFetch with an error code for the whole group."""
_BATCH_FROM: Final = 8
"""The first version of OffsetFetch for several groups."""
_NO_OFFSET: Final = OffsetAndMetadata(-1, "", -1)
T = TypeVar("T")
_Refused = dict[TopicPartition, ApiError]
_Group = OffsetFetchResponse.OffsetFetchResponseGroup


def offset_commit(
    session: Session, request: OffsetCommitRequest, version: int
) -> OffsetCommitResponse:
    refused: _Refused = {}
    code = NONE
    by_id = version >= _BY_ID_FROM
    if by_id:
        _name(session.broker.topic_names(), request.topics)
    topics = [topic for topic in request.topics if topic.name is not None]
    try:
        session.broker.offset_commit(
            request.group_id,
            _offsets(topics, has_epochs=version >= 6),
            generation_id=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id if version >= 7 else None,
            topic_ids=_ids(topics) if by_id else None,
            refused=refused,
        )
    except EosdbError as error:
        code = coordinator_code_of(error)
        if version < _EPOCHS_FROM:
            code = _BEFORE_EPOCHS.get(code, code)
    topic = OffsetCommitResponse.OffsetCommitResponseTopic
    partition = topic.OffsetCommitResponsePartition
    return OffsetCommitResponse(
        topics=_answers(topic, partition, request.topics, refused, code, by_id=by_id)
    )


def txn_offset_commit(
    session: Session, request: TxnOffsetCommitRequest, version: int
) -> TxnOffsetCommitResponse:
    refused: _Refused = {}
    code = NONE
    try:
        session.broker.txn_offset_commit(
            request.transactional_id,
            request.group_id,
            request.producer_id,
            request.producer_epoch,
            _offsets(request.topics, has_epochs=version >= 2),
            generation_id=request.generation_id if version >= 3 else -1,
            member_id=request.member_id if version >= 3 else "",
            group_instance_id=request.group_instance_id if version >= 3 else None,
            transaction_version=transaction_version(version, VERSION_2_FROM),
            refused=refused,
        )
    except EosdbError as error:
        code = before_fencing(coordinator_code_of(error), version, known_from=3)
        code = not_in_transaction(code, version, abortable_at=VERSION_2_FROM - 1)
    topic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
    partition = topic.TxnOffsetCommitResponsePartition
    return TxnOffsetCommitResponse(topics=_answers(topic, partition, request.topics, refused, code))


def offset_fetch(
    session: Session, request: OffsetFetchRequest, version: int
) -> OffsetFetchResponse:
    """The committed offsets of one or several groups, for the requested partitions or for all that have
    one."""
    stable = request.require_stable if version >= 7 else False
    if version >= _BY_ID_FROM:
        return _fetched_by_id(session, request, stable)
    if version >= _BATCH_FROM:
        return OffsetFetchResponse(
            groups=[
                _fetched(session, g.group_id, g.topics, stable, *_member(g, version))
                for g in request.groups
            ]
        )
    fetched = _fetched(
        session, request.group_id, request.topics, stable, has_code=version >= _CODE_FROM
    )
    topic = OffsetFetchResponse.OffsetFetchResponseTopic
    return OffsetFetchResponse(
        error_code=fetched.error_code,
        topics=[
            topic(
                name=t.name,
                partitions=[
                    topic.OffsetFetchResponsePartition(
                        partition_index=p.partition_index,
                        committed_offset=p.committed_offset,
                        committed_leader_epoch=p.committed_leader_epoch,
                        metadata=p.metadata,
                        error_code=p.error_code or fetched.error_code,
                    )
                    for p in t.partitions
                ],
            )
            for t in fetched.topics
        ],
    )


def offset_delete(
    session: Session, request: OffsetDeleteRequest, version: int
) -> OffsetDeleteResponse:
    refused: _Refused = {}
    try:
        session.broker.offset_delete(
            request.group_id,
            [
                TopicPartition(topic.name, p.partition_index)
                for topic in request.topics
                for p in topic.partitions
            ],
            refused=refused,
        )
    except EosdbError as error:
        return OffsetDeleteResponse(error_code=coordinator_code_of(error), topics=[])
    topic = OffsetDeleteResponse.OffsetDeleteResponseTopic
    partition = topic.OffsetDeleteResponsePartition
    return OffsetDeleteResponse(
        error_code=NONE, topics=_answers(topic, partition, request.topics, refused, NONE)
    )


def _answers(
    topic: Callable[..., T],
    partition: Callable[..., object],
    requested: Iterable[Any],
    refused: _Refused,
    of_all: int,
    *,
    by_id: bool = False,
) -> list[T]:
    """A result for each partition of the request."""
    return [
        topic(
            **({"topic_id": one.topic_id} if by_id else {"name": one.name}),
            partitions=[
                partition(
                    partition_index=p.partition_index,
                    error_code=_code(refused, one.name, p.partition_index, of_all),
                )
                for p in one.partitions
            ],
        )
        for one in requested
    ]


def _offsets(topics: Iterable[Any], *, has_epochs: bool) -> dict[TopicPartition, OffsetAndMetadata]:
    return {
        TopicPartition(topic.name, p.partition_index): OffsetAndMetadata(
            p.committed_offset,
            p.committed_metadata or "",
            p.committed_leader_epoch if has_epochs else -1,
        )
        for topic in topics
        for p in topic.partitions
    }


def _name(names: Mapping[UUID, str], topics: Iterable[Any]) -> None:
    """Give the topics of a request the names of their ids; None where no topic has the id."""
    for topic in topics:
        topic.topic_id = topic.topic_id or NO_TOPIC
        topic.name = names.get(topic.topic_id)


def _ids(topics: Iterable[Any]) -> dict[TopicPartition, UUID]:
    return {
        TopicPartition(topic.name, p.partition_index): topic.topic_id
        for topic in topics
        for p in topic.partitions
    }


def _code(refused: _Refused, topic: str | None, index: int, of_all: int) -> int:
    """The error code of a partition; an error of the whole request takes precedence, but for a topic whose
    id is unknown."""
    if topic is None:
        return UnknownTopicIdError.code
    error = refused.get(TopicPartition(topic, index))
    if of_all or error is None:
        return of_all
    # The name has come to another topic since the id was looked up.
    return UnknownTopicIdError.code if isinstance(error, OffsetOutOfRangeError) else error.code


def _fetched_by_id(
    session: Session, request: OffsetFetchRequest, stable: bool
) -> OffsetFetchResponse:
    """The offsets of several groups, with the ids of topics instead of their names."""
    names = session.broker.topic_names()
    ids = {name: topic_id for topic_id, name in names.items()}
    groups, known = [], set()
    for asked in request.groups:
        topics = asked.topics
        if topics is not None:
            _name(names, topics)
            topics = [topic for topic in topics if topic.name is not None]
        group = _fetched(session, asked.group_id, topics, stable, *_member(asked, _BY_ID_FROM))
        # A topic that is newer than `ids` comes with the next request.
        group.topics = [topic for topic in group.topics if topic.name in ids]
        for topic in group.topics:
            topic.topic_id = ids[topic.name]
            known.add(topic.topic_id)
        if group.error_code == NONE:
            group.topics += [_unknown(t) for t in asked.topics or () if t.name is None]
        groups.append(group)
    # Offsets of a name are those of the id if the id is there still: none ever comes again.
    if not known <= session.broker.topic_names().keys():
        return _fetched_by_id(session, request, stable)
    return OffsetFetchResponse(groups=groups)


def _unknown(topic: Any) -> _Group.OffsetFetchResponseTopics:
    """The answer for a topic whose id is unknown."""
    refused: _Refused = dict.fromkeys(
        (TopicPartition("", index) for index in topic.partition_indexes), unknown_id(topic.topic_id)
    )
    return _Group.OffsetFetchResponseTopics(
        topic_id=topic.topic_id, partitions=[_offset(tp, {}, refused) for tp in refused]
    )


def _member(asked: Any, version: int) -> tuple[str | None, int]:
    """The member that fetches, and its epoch."""
    return (asked.member_id, asked.member_epoch) if version >= _EPOCHS_FROM else (None, -1)


def _fetched(
    session: Session,
    group_id: str,
    topics: Iterable[Any] | None,
    stable: bool,
    member_id: str | None = None,
    member_epoch: int = -1,
    *,
    has_code: bool = True,
) -> _Group:
    """Fetch a group's offsets; if `topics` is None, of all partitions that have one."""
    requested = (
        None
        if topics is None
        else [TopicPartition(t.name, index) for t in topics for index in t.partition_indexes]
    )
    refused: _Refused = {}
    offsets: dict[TopicPartition, OffsetAndMetadata] = {}
    code = NONE
    try:
        offsets = session.broker.offset_fetch(
            group_id,
            requested,
            require_stable=stable,
            member_id=member_id,
            member_epoch=member_epoch,
            refused=refused,
        )
    except EosdbError as error:
        code = coordinator_code_of(error)
    by_topic: dict[str, list[int]] = {}
    # A group that is refused as a whole has no partitions, but in version 1, which has no other place.
    for name, index in offsets if requested is None or (code and has_code) else requested:
        by_topic.setdefault(name, []).append(index)
    return _Group(
        group_id=group_id,
        error_code=code,
        topics=[
            _Group.OffsetFetchResponseTopics(
                name=name,
                partitions=[
                    _offset(TopicPartition(name, index), offsets, refused) for index in indexes
                ],
            )
            for name, indexes in by_topic.items()
        ],
    )


def _offset(
    tp: TopicPartition, offsets: dict[TopicPartition, OffsetAndMetadata], refused: _Refused
) -> _Group.OffsetFetchResponseTopics.OffsetFetchResponsePartitions:
    error = refused.get(tp)
    offset = _NO_OFFSET if error is not None else offsets.get(tp, _NO_OFFSET)
    return _Group.OffsetFetchResponseTopics.OffsetFetchResponsePartitions(
        partition_index=tp.partition,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        error_code=NONE if error is None else error.code,
    )
