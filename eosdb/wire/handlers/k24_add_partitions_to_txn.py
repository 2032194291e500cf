"""AddPartitionsToTxn: adds partitions to a transaction, all of them or none.

Version 2: PRODUCER_FENCED (KIP-588); 3: flexible. Later versions are for requests between brokers
(KIP-890).
"""

from __future__ import annotations

from kafka.protocol.producer.transaction import AddPartitionsToTxnRequest

from eosdb.errors import (
    EosdbError,
    OperationNotAttemptedError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from eosdb.model import requests
from eosdb.model.validation import check_topic_partitions
from eosdb.model.values import INTERNAL_TOPICS, TopicPartition
from eosdb.wire.apis import Fields, Session, partitions_of, per_partition, serves
from eosdb.wire.errors import BEFORE_FENCING, coordinator_code_of


@serves(AddPartitionsToTxnRequest, 0, 3, coordinator_code_of, codes={range(2): BEFORE_FENCING})
def add_partitions(session: Session, request: AddPartitionsToTxnRequest, _: int) -> Fields:
    """Faulty partitions get their error, all others OPERATION_NOT_ATTEMPTED."""
    topics = request.v3_and_below_topics
    tps = [tp for tp, _ in partitions_of(topics)]
    failure: EosdbError | None = None
    try:
        check_topic_partitions(tps)
        session.broker.ask(
            requests.AddPartitionsToTxn(
                request.v3_and_below_transactional_id,
                request.v3_and_below_producer_id,
                request.v3_and_below_producer_epoch,
                tps,
            )
        )
    except EosdbError as error:
        failure = error
    if isinstance(failure, TopicAuthorizationFailedError | UnknownTopicOrPartitionError):
        names = {tp.topic for tp in tps}
        counts = session.broker.ask(requests.TopicPartitions(names))
        may = {topic: session.may("write", "topic", topic) for topic in names}

    def answer(tp: TopicPartition, _: object) -> Fields | EosdbError | None:
        if not isinstance(failure, TopicAuthorizationFailedError | UnknownTopicOrPartitionError):
            return failure
        if tp.topic in INTERNAL_TOPICS or not may[tp.topic]:
            return TopicAuthorizationFailedError(str(failure))
        is_there = 0 <= tp.partition < counts.get(tp.topic, 0)
        kind = OperationNotAttemptedError if is_there else UnknownTopicOrPartitionError
        return kind(str(failure))

    return {"results_by_topic_v3_and_below": per_partition(topics, answer)}
