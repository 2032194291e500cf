"""Produce: batches in, offsets out.

Versions 0 to 2: only announced, since librdkafka sends a broker without them no compressed batch
(KAFKA-18659); 3: transactions; 5: the log start; 7: zstd (KIP-110, `batches.py`); 8: the faulty records
(KIP-467); 9: flexible; 12: transaction version 2 (KIP-890); 13: topics by their ids (KIP-516).
"""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from kafka.protocol.producer.produce import ProduceRequest

from eosdb.errors import ApiError, EosdbError, InvalidRecordError
from eosdb.log.topics import unknown_id
from eosdb.model import requests
from eosdb.model.validation import check_topic_partition
from eosdb.model.values import ProduceResult, RecordBatch, TopicPartition
from eosdb.wire import batches
from eosdb.wire.apis import Fields, Session, name_by_id, partitions_of, per_partition, serves
from eosdb.wire.errors import NONE, NOT_IN_TRANSACTION, code_of, message_of
from eosdb.wire.handlers.k26_end_txn import transaction_version
from eosdb.wire.limits import Allowance
from eosdb.wire.messages import MalformedMessageError


class _Decoded(NamedTuple):
    """The decoded batches of a request, the partitions refused before the broker is called, and the topics'
    ids."""

    batches: dict[TopicPartition, RecordBatch]
    refused: dict[TopicPartition, ProduceResult]
    topic_ids: dict[str, UUID]


@serves(ProduceRequest, 0, 13)
def produce(session: Session, request: ProduceRequest, version: int) -> Fields | None:
    """Answer each partition. With acks=0 there is no answer, and an error ends the connection."""
    if version < 3:
        raise MalformedMessageError(f"Produce version {version} is not served, 3 to 13 are")
    decoded, results, ids = _decode(session, request, version)
    try:
        results |= session.broker.ask(
            requests.Produce(
                decoded,
                transactional_id=request.transactional_id,
                acks=request.acks,
                topic_ids=ids,
                timeout_ms=request.timeout_ms,
                transaction_version=transaction_version(version, 12),
            )
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

    def answer(tp: TopicPartition, _: object) -> Fields:
        result = results.get(tp, ProduceResult())
        message = None if result.error is None else message_of(result.error)
        at_fault = () if result.error is None else result.error.records
        return {
            "error_code": codes[tp],
            "base_offset": result.base_offset,
            "log_append_time_ms": result.log_append_time,
            "log_start_offset": result.log_start_offset,
            "record_errors": [
                {"batch_index": at, "batch_index_error_message": message} for at in at_fault
            ],
            "error_message": message,
        }

    return {"responses": per_partition(request.topic_data, answer)}


def _decode(session: Session, request: ProduceRequest, version: int) -> _Decoded:
    """Decode each partition's batch. From version 13 on, replace the topic ids of the request by names."""
    decoded = _Decoded({}, {}, {})
    allowance = Allowance(session.lease)
    unknown = set[str]()
    if version >= 13:
        name_by_id(request.topic_data, session.broker.ask(requests.TopicNames()))
        for topic in request.topic_data:
            if topic.name is None:
                topic.name = f"?{topic.topic_id}"
                unknown.add(topic.name)
            decoded.topic_ids[topic.name] = topic.topic_id
    data: Any
    for tp, data in partitions_of(request.topic_data):
        try:
            if tp.topic in unknown:
                raise unknown_id(decoded.topic_ids[tp.topic])
            if tp in decoded.batches or tp in decoded.refused:
                raise InvalidRecordError(f"{tp} is named twice in one request; name it once")
            decoded.batches[check_topic_partition(tp)] = batches.decode(
                data.records, version, allowance
            )
        except ApiError as error:
            decoded.batches.pop(tp, None)
            decoded.refused[tp] = ProduceResult(error=_alone(error))
    return decoded


def _alone(error: ApiError) -> ApiError:
    """The error without its traceback and causes, whose frames would keep the batch in memory until
    garbage collection."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def _code(error: EosdbError | None, version: int, in_transaction: bool) -> int:
    code = NONE if error is None else code_of(error)
    return NOT_IN_TRANSACTION.get(code, code) if in_transaction and version == 11 else code
