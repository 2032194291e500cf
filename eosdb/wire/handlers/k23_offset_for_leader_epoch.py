"""OffsetForLeaderEpoch: where a leader's epoch ends. The only epoch ends at the log end offset.

Version 2: the epoch that the client knows (KIP-320); 3: the id of the requesting replica; 4: flexible.
"""

from __future__ import annotations

from typing import Any

from kafka.protocol.consumer.offsets import OffsetForLeaderEpochRequest

from eosdb.model import requests
from eosdb.model.values import TopicPartition
from eosdb.wire.apis import Fields, Session, per_partition, serves
from eosdb.wire.errors import NONE, reading_code_of
from eosdb.wire.handlers.k02_list_offsets import checked_epoch
from eosdb.wire.session import LEADER_EPOCH


@serves(OffsetForLeaderEpochRequest, 2, 4, reading_code_of)
def for_leader_epoch(session: Session, request: OffsetForLeaderEpochRequest, _: int) -> Fields:
    def answer(tp: TopicPartition, asked: Any) -> Fields:
        end = session.broker.ask(requests.Offsets(tp)).log_end_offset
        code = checked_epoch(asked.current_leader_epoch)
        if code != NONE or asked.leader_epoch != LEADER_EPOCH:
            return {"error_code": code}
        return {"leader_epoch": LEADER_EPOCH, "end_offset": end}

    return {"topics": per_partition(request.topics, answer)}
