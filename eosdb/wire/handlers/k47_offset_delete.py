"""OffsetDelete: deletes a group's committed offsets, with a result for each partition (KIP-496)."""

from __future__ import annotations

from kafka.protocol.consumer.group import OffsetDeleteRequest

from eosdb.model import requests
from eosdb.wire.apis import Fields, Session, partitions_of, per_partition, serves
from eosdb.wire.errors import coordinator_code_of


@serves(OffsetDeleteRequest, 0, 0, coordinator_code_of)
def offset_delete(session: Session, request: OffsetDeleteRequest, _: int) -> Fields:
    tps = [tp for tp, _ in partitions_of(request.topics)]
    errors = session.broker.ask(requests.OffsetDelete(request.group_id, tps, each=True)) or {}
    return {"topics": per_partition(request.topics, lambda tp, _: errors[tp])}
