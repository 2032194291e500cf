"""Producer ids and transactions: InitProducerId to EndTxn.

The broker's one result is repeated for each partition of the request.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from kafka.protocol.producer.transaction import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

from eosdb.errors import (
    EosdbError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from eosdb.model.values import (
    CLASSIC,
    EPOCH_PER_TRANSACTION,
    INTERNAL_TOPICS,
    TopicPartition,
)
from eosdb.wire.errors import (
    NONE,
    OPERATION_NOT_ATTEMPTED,
    before_fencing,
    coordinator_code_of,
)
from eosdb.wire.session import Session

VERSION_2_FROM: Final = 5
"""The first version of EndTxn and TxnOffsetCommit that is sent under transaction version 2."""


def transaction_version(version: int, version_2_from: int) -> int:
    """The transaction version that the version of a client's request implies (KIP-890)."""
    return EPOCH_PER_TRANSACTION if version >= version_2_from else CLASSIC


def init_producer_id(
    session: Session, request: InitProducerIdRequest, version: int
) -> InitProducerIdResponse:
    try:
        given = session.broker.init_producer_id(
            request.transactional_id,
            request.transaction_timeout_ms,
            request.producer_id if version >= 3 else -1,
            request.producer_epoch if version >= 3 else -1,
        )
    except EosdbError as error:
        code = before_fencing(coordinator_code_of(error), version, known_from=4)
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    return InitProducerIdResponse(
        error_code=NONE, producer_id=given.producer_id, producer_epoch=given.producer_epoch
    )


def add_partitions(
    session: Session, request: AddPartitionsToTxnRequest, version: int
) -> AddPartitionsToTxnResponse:
    """Add all partitions or none: those at fault get their error, the others OPERATION_NOT_ATTEMPTED."""
    topics = request.v3_and_below_topics
    tps = [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]
    codes = dict.fromkeys(tps, NONE)
    try:
        session.broker.add_partitions_to_txn(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            tps,
        )
    except EosdbError as error:
        codes = _blame(session, tps, error)
    response = AddPartitionsToTxnResponse
    return response(
        results_by_topic_v3_and_below=[
            response.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    response.AddPartitionsToTxnTopicResult.AddPartitionsToTxnPartitionResult(
                        partition_index=index,
                        partition_error_code=before_fencing(
                            codes[TopicPartition(topic.name, index)], version, known_from=2
                        ),
                    )
                    for index in topic.partitions
                ],
            )
            for topic in topics
        ]
    )


def add_offsets(
    session: Session, request: AddOffsetsToTxnRequest, version: int
) -> AddOffsetsToTxnResponse:
    code = NONE
    try:
        session.broker.add_offsets_to_txn(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.group_id,
        )
    except EosdbError as error:
        code = before_fencing(coordinator_code_of(error), version, known_from=2)
    return AddOffsetsToTxnResponse(error_code=code)


def end_txn(session: Session, request: EndTxnRequest, version: int) -> EndTxnResponse:
    try:
        following = session.broker.end_txn(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.committed,
            transaction_version=transaction_version(version, VERSION_2_FROM),
        )
    except EosdbError as error:
        code = before_fencing(coordinator_code_of(error), version, known_from=2)
        return EndTxnResponse(error_code=code)
    return EndTxnResponse(
        error_code=NONE,
        producer_id=following.producer_id,
        producer_epoch=following.producer_epoch,
    )


def _blame(
    session: Session, tps: Collection[TopicPartition], error: EosdbError
) -> dict[TopicPartition, int]:
    """The partitions that an error concerns; all of them if it does not concern partitions."""
    code = coordinator_code_of(error)
    if not isinstance(error, TopicAuthorizationFailedError | UnknownTopicOrPartitionError):
        return dict.fromkeys(tps, code)
    counts = session.broker.topic_partitions()
    may = {topic: session.may("write", "topic", topic) for topic in {tp.topic for tp in tps}}

    def of(tp: TopicPartition) -> int:
        if tp.topic in INTERNAL_TOPICS or not may[tp.topic]:
            return TopicAuthorizationFailedError.code
        is_there = 0 <= tp.partition < counts.get(tp.topic, 0)
        return OPERATION_NOT_ATTEMPTED if is_there else UnknownTopicOrPartitionError.code

    return {tp: of(tp) for tp in tps}
