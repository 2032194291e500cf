"""Inspection: DescribeProducers, DescribeTransactions, ListTransactions, DescribeLogDirs; and
WriteTxnMarkers, which aborts hanging transactions (KIP-664).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from kafka.protocol.admin.cluster import DescribeLogDirsRequest, DescribeLogDirsResponse
from kafka.protocol.admin.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kafka.protocol.producer.transaction import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

from eosdb.errors import EosdbError
from eosdb.model.values import CLASSIC, TopicPartition, TransactionState
from eosdb.wire.errors import NONE, code_of, coordinator_code_of, message_of
from eosdb.wire.session import Session

_Producers = DescribeProducersResponse.TopicResponse.PartitionResponse
_Described = DescribeTransactionsResponse.TransactionState
_Directory = DescribeLogDirsResponse.DescribeLogDirsResult
_Marker = WriteTxnMarkersRequest.WritableTxnMarker
_Marked = WriteTxnMarkersResponse.WritableTxnMarkerResult
_STATES = {state.label for state in TransactionState}


def describe_producers(
    session: Session, request: DescribeProducersRequest, version: int
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponse.TopicResponse(
                name=topic.name,
                partitions=[
                    _producers(session, TopicPartition(topic.name, index))
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def describe_transactions(
    session: Session, request: DescribeTransactionsRequest, version: int
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[_transaction(session, name) for name in request.transactional_ids]
    )


def list_transactions(
    session: Session, request: ListTransactionsRequest, version: int
) -> ListTransactionsResponse:
    """As in Kafka, no transaction is in an unknown state, which is returned as such."""
    known = [state for state in request.state_filters if state in _STATES]
    unknown = [state for state in request.state_filters if state not in _STATES]
    try:
        transactions = session.broker.list_transactions(
            known,
            request.producer_id_filters,
            max(request.duration_filter, -1) if version >= 1 else -1,
            (request.transactional_id_pattern if version >= 2 else None) or "",
        )
    except EosdbError as error:
        return ListTransactionsResponse(
            error_code=coordinator_code_of(error), unknown_state_filters=[], transaction_states=[]
        )
    return ListTransactionsResponse(
        error_code=NONE,
        unknown_state_filters=unknown,
        transaction_states=[
            ListTransactionsResponse.TransactionState(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state,
            )
            for transaction in transactions
            if known or not unknown
        ],
    )


def write_txn_markers(
    session: Session, request: WriteTxnMarkersRequest, version: int
) -> WriteTxnMarkersResponse:
    """Version 1 of the request has the epoch of the transaction itself, under either transaction
    version."""
    return WriteTxnMarkersResponse(markers=[_marked(session, marker) for marker in request.markers])


def describe_log_dirs(
    session: Session, request: DescribeLogDirsRequest, version: int
) -> DescribeLogDirsResponse:
    """The one log directory: that of the file."""
    try:
        log_directory = session.admin.log_directory()
    except EosdbError as error:
        return DescribeLogDirsResponse(error_code=code_of(error), results=[])
    sizes = log_directory.sizes
    if request.topics is not None:
        requested = [
            TopicPartition(t.topic, index) for t in request.topics for index in t.partitions
        ]
        sizes = {tp: sizes[tp] for tp in requested if tp in sizes}
    topic = _Directory.DescribeLogDirsTopic
    directory = _Directory(
        error_code=NONE,
        log_dir=log_directory.path,
        topics=[
            topic(
                name=name,
                partitions=[
                    topic.DescribeLogDirsPartition(
                        partition_index=tp.partition,
                        partition_size=sizes[tp],
                        offset_lag=0,
                        is_future_key=False,
                    )
                    for tp in tps
                ],
            )
            for name, tps in _by_topic(sizes)
        ],
        total_bytes=log_directory.total_bytes,
        usable_bytes=log_directory.usable_bytes,
    )
    return DescribeLogDirsResponse(error_code=NONE, results=[directory])


def _producers(session: Session, tp: TopicPartition) -> _Producers:
    try:
        producers = session.broker.describe_producers(tp)
    except EosdbError as error:
        return _Producers(
            partition_index=tp.partition, error_code=code_of(error), error_message=message_of(error),
            active_producers=[],
        )  # fmt: skip
    return _Producers(
        partition_index=tp.partition,
        error_code=NONE,
        error_message=None,
        active_producers=[
            _Producers.ProducerState(
                producer_id=state.producer_id,
                producer_epoch=state.producer_epoch,
                last_sequence=state.last_sequence,
                last_timestamp=state.last_timestamp,
                coordinator_epoch=state.coordinator_epoch,
                current_txn_start_offset=state.current_txn_start_offset,
            )
            for state in producers
        ],
    )


def _transaction(session: Session, transactional_id: str) -> _Described:
    try:
        description = session.broker.describe_transactions([transactional_id])[transactional_id]
    except EosdbError as error:
        return _Described(
            error_code=coordinator_code_of(error), transactional_id=transactional_id,
            transaction_state="", transaction_timeout_ms=0, transaction_start_time_ms=0,
            producer_id=0, producer_epoch=0, topics=[],
        )  # fmt: skip
    return _Described(
        error_code=NONE,
        transactional_id=transactional_id,
        transaction_state=description.state,
        transaction_timeout_ms=description.transaction_timeout_ms,
        transaction_start_time_ms=description.transaction_start_time_ms,
        producer_id=description.producer_id,
        producer_epoch=description.producer_epoch,
        topics=[
            _Described.TopicData(topic=name, partitions=[tp.partition for tp in tps])
            for name, tps in _by_topic(description.partitions)
        ],
    )


def _marked(session: Session, marker: _Marker) -> _Marked:
    topic = _Marked.WritableTxnMarkerTopicResult

    def write(tp: TopicPartition) -> int:
        try:
            session.broker.write_txn_markers(
                marker.producer_id,
                marker.producer_epoch,
                marker.transaction_result,
                [tp],
                marker.coordinator_epoch,
                transaction_version=CLASSIC,
            )
        except EosdbError as error:
            return code_of(error)
        return NONE

    return _Marked(
        producer_id=marker.producer_id,
        topics=[
            topic(
                name=asked.name,
                partitions=[
                    topic.WritableTxnMarkerPartitionResult(
                        partition_index=index, error_code=write(TopicPartition(asked.name, index))
                    )
                    for index in asked.partition_indexes
                ],
            )
            for asked in marker.topics
        ],
    )


def _by_topic(tps: Iterable[TopicPartition]) -> list[tuple[str, list[TopicPartition]]]:
    return [(name, list(group)) for name, group in groupby(sorted(tps), key=lambda tp: tp.topic)]
