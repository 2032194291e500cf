"""Group offsets: OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete, with a result for each
partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from kafka.protocol.consumer.group import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kafka.protocol.producer.transaction import TxnOffsetCommitRequest, TxnOffsetCommitResponse

from eosdb.errors import ApiError, EosdbError
from eosdb.model.values import OffsetAndMetadata, TopicPartition
from eosdb.wire.errors import (
    GROUP_ID_NOT_FOUND,
    ILLEGAL_GENERATION,
    NONE,
    before_fencing,
    coordinator_code_of,
    not_in_transaction,
)
from eosdb.wire.handlers.transactions import VERSION_2_FROM, transaction_version
from eosdb.wire.session import Session

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
    try:
        session.broker.offset_commit(
            request.group_id,
            _offsets(request.topics, has_epochs=version >= 6),
            generation_id=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id if version >= 7 else None,
            refused=refused,
        )
    except EosdbError as error:
        code = coordinator_code_of(error)
        if code == GROUP_ID_NOT_FOUND and version < 9:
            code = ILLEGAL_GENERATION
    topic = OffsetCommitResponse.OffsetCommitResponseTopic
    partition = topic.OffsetCommitResponsePartition
    return OffsetCommitResponse(topics=_answers(topic, partition, request.topics, refused, code))


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
    if version >= _BATCH_FROM:
        return OffsetFetchResponse(
            groups=[_fetched(session, g.group_id, g.topics, stable) for g in request.groups]
        )
    fetched = _fetched(session, request.group_id, request.topics, stable)
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
                        # Version 1 has no error of the group.
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
) -> list[T]:
    """A result for each partition of the request."""
    return [
        topic(
            name=one.name,
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


def _code(refused: _Refused, topic: str, index: int, of_all: int) -> int:
    """The error code of a partition; an error of the whole request takes precedence."""
    error = refused.get(TopicPartition(topic, index))
    return of_all if of_all or error is None else error.code


def _fetched(session: Session, group_id: str, topics: Iterable[Any] | None, stable: bool) -> _Group:
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
            group_id, requested, require_stable=stable, refused=refused
        )
    except EosdbError as error:
        code = coordinator_code_of(error)
    by_topic: dict[str, list[int]] = {}
    for name, index in offsets if requested is None else requested:
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
