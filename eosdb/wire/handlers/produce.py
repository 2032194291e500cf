"""Produce: batches in, offsets out."""

from __future__ import annotations

from kafka.protocol.producer.produce import ProduceRequest, ProduceResponse

from eosdb.errors import ApiError, EosdbError, InvalidRecordError
from eosdb.model.values import ProduceResult, RecordBatch, TopicPartition
from eosdb.wire import batches
from eosdb.wire.errors import code_of, not_in_transaction
from eosdb.wire.handlers.transactions import transaction_version
from eosdb.wire.limits import Allowance
from eosdb.wire.messages import MalformedMessageError
from eosdb.wire.session import Session

_VERSION_2_FROM = 12


def produce(session: Session, request: ProduceRequest, version: int) -> ProduceResponse | None:
    """One answer for each partition; none at all for acks=0, where an error ends the connection."""
    results: dict[TopicPartition, ProduceResult] = {}
    decoded: dict[TopicPartition, RecordBatch] = {}
    allowance = Allowance(session.lease, session.limits.transfer_s)
    for topic in request.topic_data:
        for data in topic.partition_data:
            tp = TopicPartition(topic.name, data.index)
            try:
                if tp in decoded or tp in results:
                    raise InvalidRecordError(f"{tp} comes twice in one request")
                decoded[tp] = batches.decode(data.records, version, allowance)
            except ApiError as error:
                decoded.pop(tp, None)
                results[tp] = ProduceResult(error=_alone(error))
    try:
        results |= session.broker.produce(
            decoded,
            transactional_id=request.transactional_id,
            acks=request.acks,
            timeout_ms=request.timeout_ms,
            transaction_version=transaction_version(version, _VERSION_2_FROM),
        )
        codes = {tp: _code(result.error, version) for tp, result in results.items()}
    except EosdbError as error:
        codes = dict.fromkeys([*decoded, *results], _code(error, version))
    if request.acks == 0:
        if any(codes.values()):
            raise MalformedMessageError(f"a request with acks=0 failed: {codes}")
        return None
    nothing, response = ProduceResult(), ProduceResponse.TopicProduceResponse
    return ProduceResponse(
        responses=[
            response(
                name=topic.name,
                partition_responses=[
                    _partition(data.index, codes[tp], results.get(tp, nothing))
                    for data in topic.partition_data
                    for tp in (TopicPartition(topic.name, data.index),)
                ],
            )
            for topic in request.topic_data
        ]
    )


def _partition(
    index: int, code: int, result: ProduceResult
) -> ProduceResponse.TopicProduceResponse.PartitionProduceResponse:
    return ProduceResponse.TopicProduceResponse.PartitionProduceResponse(
        index=index,
        error_code=code,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time,
        log_start_offset=result.log_start_offset,
        error_message=None if result.error is None else str(result.error),
    )


def _alone(error: ApiError) -> ApiError:
    """The error without the calls that it came through: they would keep the batch, and themselves, until
    Python looks for cycles."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def _code(error: EosdbError | None, version: int) -> int:
    if error is None:
        return 0
    return not_in_transaction(code_of(error), version, abortable_at=_VERSION_2_FROM - 1)
