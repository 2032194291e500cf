"""Produce: batches in, offsets out."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from kafka.protocol.producer.produce import ProduceRequest, ProduceResponse

from eosdb.errors import ApiError, EosdbError, InvalidRecordError
from eosdb.log.topics import unknown_id
from eosdb.model.values import ProduceResult, RecordBatch, TopicPartition
from eosdb.wire import batches
from eosdb.wire.errors import code_of, message_of, not_in_transaction
from eosdb.wire.handlers.transactions import transaction_version
from eosdb.wire.limits import Allowance
from eosdb.wire.messages import MalformedMessageError
from eosdb.wire.session import NO_TOPIC, Session

_LEAST = 3
"""Older versions are only announced, for librdkafka, as by Kafka (apis.py)."""
_VERSION_2_FROM = 12
_BY_ID_FROM = 13
_Partition = ProduceResponse.TopicProduceResponse.PartitionProduceResponse


class _Decoded(NamedTuple):
    """The batches of a request, the partitions refused before the broker is called, and the topics' ids."""

    batches: dict[TopicPartition, RecordBatch]
    refused: dict[TopicPartition, ProduceResult]
    topic_ids: dict[str, UUID]


def produce(session: Session, request: ProduceRequest, version: int) -> ProduceResponse | None:
    """A response for each partition; none at all for acks=0, where an error ends the connection."""
    if version < _LEAST:
        raise MalformedMessageError(f"Produce version {version} is announced, and not served")
    decoded, results, ids = _decode(session, request, version)
    try:
        results |= session.broker.produce(
            decoded,
            transactional_id=request.transactional_id,
            acks=request.acks,
            topic_ids=ids,
            timeout_ms=request.timeout_ms,
            transaction_version=transaction_version(version, _VERSION_2_FROM),
        )
        in_transaction = {tp for tp, batch in decoded.items() if batch.is_transactional}
        codes = {
            tp: _code(result.error, version, tp in in_transaction) for tp, result in results.items()
        }
        for result in results.values():
            if result.error is not None:
                _alone(result.error)
    except EosdbError as error:
        codes = dict.fromkeys([*decoded, *results], _code(error, version, True))
    if request.acks == 0:
        if any(codes.values()):
            raise MalformedMessageError(f"a request with acks=0 failed: {codes}")
        return None
    nothing, response = ProduceResult(), ProduceResponse.TopicProduceResponse
    return ProduceResponse(
        responses=[
            response(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    _partition(data.index, codes[tp], results.get(tp, nothing))
                    for data in topic.partition_data
                    for tp in (TopicPartition(topic.name, data.index),)
                ],
            )
            for topic in request.topic_data
        ]
    )


def _decode(session: Session, request: ProduceRequest, version: int) -> _Decoded:
    """Decode each partition's batch; from version 13 on, put the names of the topics into the request."""
    decoded = _Decoded({}, {}, {})
    allowance = Allowance(session.lease)
    names = session.broker.topic_names() if version >= _BY_ID_FROM else {}
    for topic in request.topic_data:
        if version >= _BY_ID_FROM:
            topic.topic_id = topic.topic_id or NO_TOPIC
            topic.name = names.get(topic.topic_id, f"?{topic.topic_id}")
            decoded.topic_ids[topic.name] = topic.topic_id
        for data in topic.partition_data:
            tp = TopicPartition(topic.name, data.index)
            if topic.topic_id not in names and version >= _BY_ID_FROM:
                decoded.refused[tp] = ProduceResult(error=unknown_id(topic.topic_id))
                continue
            try:
                if tp in decoded.batches or tp in decoded.refused:
                    raise InvalidRecordError(f"{tp} is named twice in one request; name it once")
                decoded.batches[tp] = batches.decode(data.records, version, allowance)
            except ApiError as error:
                decoded.batches.pop(tp, None)
                decoded.refused[tp] = ProduceResult(error=_alone(error))
    return decoded


def _partition(index: int, code: int, result: ProduceResult) -> _Partition:
    message = None if result.error is None else message_of(result.error)
    return _Partition(
        index=index,
        error_code=code,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time,
        log_start_offset=result.log_start_offset,
        record_errors=[
            _Partition.BatchIndexAndErrorMessage(batch_index=at, batch_index_error_message=message)
            for at in (() if result.error is None else result.error.records)
        ],
        error_message=message,
    )


def _alone(error: ApiError) -> ApiError:
    """The error without its traceback and causes, whose frames would keep the batch in memory until the
    garbage collector runs."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def _code(error: EosdbError | None, version: int, in_transaction: bool) -> int:
    if error is None:
        return 0
    code = code_of(error)
    if not in_transaction:
        return code
    return not_in_transaction(code, version, abortable_at=_VERSION_2_FROM - 1)
