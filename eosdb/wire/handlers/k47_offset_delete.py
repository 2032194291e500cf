"""OffsetDelete: a group's offsets are forgotten, partition by partition (KIP-496)."""

from __future__ import annotations

from kafka.protocol.consumer.group import OffsetDeleteRequest

from eosdb.wire.answers import Fields, partitions_of, per_partition
from eosdb.wire.apis import serves
from eosdb.wire.errors import coordinator_code_of
from eosdb.wire.session import Session


@serves(OffsetDeleteRequest, 0, 0, coordinator_code_of)
def offset_delete(session: Session, request: OffsetDeleteRequest, _: int) -> Fields:
    tps = [tp for tp, _ in partitions_of(request.topics)]
    errors = session.broker.offset_delete(request.group_id, tps, each=True)
    return {"topics": per_partition(request.topics, lambda tp, _: errors[tp])}
