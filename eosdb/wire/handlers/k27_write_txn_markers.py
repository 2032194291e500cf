"""WriteTxnMarkers: aborts hanging transactions, partition by partition (KIP-664).

Version 1: flexible; 2: the transaction version (KIP-1228). A marker of transaction version 2 has a higher
epoch than the transaction's batches; one without a version may have the same.
"""

from __future__ import annotations

from typing import Any

from eosdb.model import requests
from eosdb.model.values import CLASSIC, EPOCH_PER_TRANSACTION, TopicPartition
from eosdb.wire.apis import Fields, Session, asked, per_partition, serves
from eosdb.wire.schemas import WriteTxnMarkersRequest


@serves(WriteTxnMarkersRequest, 1, 2)
def write_txn_markers(session: Session, request: Any, version: int) -> Fields:
    def written(marker: Any) -> Fields:
        is_newer = version >= 2 and marker.transaction_version >= EPOCH_PER_TRANSACTION

        def write(tp: TopicPartition, _: object) -> None:
            session.broker.ask(
                asked(
                    requests.WriteTxnMarkers,
                    marker,
                    committed=marker.transaction_result,
                    partitions=[tp],
                    transaction_version=EPOCH_PER_TRANSACTION if is_newer else CLASSIC,
                )
            )

        return {"producer_id": marker.producer_id, "topics": per_partition(marker.topics, write)}

    return {"markers": [written(marker) for marker in request.markers]}
