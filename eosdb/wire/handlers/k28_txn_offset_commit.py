"""TxnOffsetCommit: commits a group's offsets within a transaction.

Version 2: the leader's epoch; 3: flexible, the committing member (KIP-447), and PRODUCER_FENCED; 4:
TRANSACTION_ABORTABLE; 5: transaction version 2, in which the request also adds the group (KIP-890).
"""

from __future__ import annotations

from kafka.protocol.producer.transaction import TxnOffsetCommitRequest

from eosdb.model.requests import TxnOffsetCommit
from eosdb.model.values import ConsumerGroupMetadata
from eosdb.wire.apis import Fields, Session, asked, per_partition, serves
from eosdb.wire.errors import BEFORE_FENCING, NOT_IN_TRANSACTION, coordinator_code_of
from eosdb.wire.handlers.k08_offset_commit import offsets_of
from eosdb.wire.handlers.k26_end_txn import transaction_version


@serves(
    TxnOffsetCommitRequest, 0, 5, coordinator_code_of,
    codes={range(3): BEFORE_FENCING, range(4, 5): NOT_IN_TRANSACTION},
    failed=lambda request, error, _: {"topics": per_partition(request.topics, lambda *_: error)},
)  # fmt: skip
def txn_offset_commit(session: Session, request: TxnOffsetCommitRequest, version: int) -> Fields:
    errors = session.broker.ask(
        asked(
            TxnOffsetCommit,
            request,
            group=asked(ConsumerGroupMetadata, request),
            offsets=offsets_of(request.topics),
            transaction_version=transaction_version(version, 5),
            each=True,
        )
    )
    return {"topics": per_partition(request.topics, lambda tp, _: errors[tp])}
