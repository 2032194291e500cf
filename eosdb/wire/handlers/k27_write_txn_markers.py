"""WriteTxnMarkers: aborts hanging transactions, partition by partition (KIP-664).

Version 1: flexible. With either transaction version, the epoch is the one in the transaction's batches.
"""

from __future__ import annotations

from kafka.protocol.producer.transaction import WriteTxnMarkersRequest

from eosdb.model import requests
from eosdb.model.values import CLASSIC, TopicPartition
from eosdb.wire.apis import Fields, Session, asked, per_partition, serves


@serves(WriteTxnMarkersRequest, 1, 1)
def write_txn_markers(session: Session, request: WriteTxnMarkersRequest, _: int) -> Fields:
    def written(marker: WriteTxnMarkersRequest.WritableTxnMarker) -> Fields:
        def write(tp: TopicPartition, _: object) -> None:
            session.broker.ask(
                asked(
                    requests.WriteTxnMarkers,
                    marker,
                    committed=marker.transaction_result,
                    partitions=[tp],
                    transaction_version=CLASSIC,
                )
            )

        return {"producer_id": marker.producer_id, "topics": per_partition(marker.topics, write)}

    return {"markers": [written(marker) for marker in request.markers]}
