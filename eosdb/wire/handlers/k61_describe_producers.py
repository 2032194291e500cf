"""DescribeProducers: the producers of partitions, with the open transaction of each (KIP-664)."""

from __future__ import annotations

from kafka.protocol.admin.transactions import DescribeProducersRequest

from eosdb.model import requests
from eosdb.model.values import TopicPartition
from eosdb.wire.apis import Fields, Session, per_partition, serves


@serves(DescribeProducersRequest, 0, 0)
def describe_producers(session: Session, request: DescribeProducersRequest, _: int) -> Fields:
    def answer(tp: TopicPartition, _: object) -> Fields:
        found = session.broker.ask(requests.DescribeProducers(tp))
        return {"active_producers": [{"like": one} for one in found]}

    return {"topics": per_partition(request.topics, answer)}
