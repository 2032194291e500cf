"""DeleteRecords: deletes the records before an offset, with a result for each partition (KIP-107).

Version 2: flexible.
"""

from __future__ import annotations

from typing import Any

from kafka.protocol.admin.topics import DeleteRecordsRequest

from eosdb.model import requests
from eosdb.model.values import TopicPartition
from eosdb.wire.apis import Fields, Session, per_partition, serves


@serves(DeleteRecordsRequest, 0, 2)
def delete_records(session: Session, request: DeleteRecordsRequest, _: int) -> Fields:
    def delete(tp: TopicPartition, asked: Any) -> Fields:
        return {"low_watermark": session.broker.ask(requests.DeleteRecords(tp, asked.offset))}

    return {"topics": per_partition(request.topics, delete, {"low_watermark": -1})}
