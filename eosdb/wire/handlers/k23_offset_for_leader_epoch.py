"""OffsetForLeaderEpoch: where a leader's epoch ended. An epoch ends when the file is restored or copied.

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


@serves(OffsetForLeaderEpochRequest, 2, 4, reading_code_of)
def for_leader_epoch(session: Session, request: OffsetForLeaderEpochRequest, _: int) -> Fields:
    def answer(tp: TopicPartition, asked: Any) -> Fields:
        epochs = session.broker.ask(requests.LeaderEpochs(tp))
        code = checked_epoch(asked.current_leader_epoch, epochs.current)
        if code != NONE:
            return {"error_code": code}
        return dict(
            zip(("leader_epoch", "end_offset"), epochs.end_of(asked.leader_epoch), strict=True)
        )

    return {"topics": per_partition(request.topics, answer)}
