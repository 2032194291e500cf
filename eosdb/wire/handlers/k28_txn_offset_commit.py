"""TxnOffsetCommit: commits a group's offsets within a transaction.

Version 2: the leader's epoch; 3: flexible, the committing member (KIP-447), and PRODUCER_FENCED; 4:
TRANSACTION_ABORTABLE; 5: transaction version 2, in which the request also adds the group (KIP-890); 6:
topics by their ids, GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH (KIP-1319).
"""

from __future__ import annotations

from typing import Any

from eosdb.model.requests import TxnOffsetCommit
from eosdb.wire.apis import Fields, Session, asked, serves
from eosdb.wire.errors import (
    BEFORE_FENCING,
    BEFORE_TOPIC_IDS,
    NOT_IN_TRANSACTION,
    coordinator_code_of,
)
from eosdb.wire.handlers.k08_offset_commit import answered, committed
from eosdb.wire.handlers.k26_end_txn import transaction_version
from eosdb.wire.schemas import TxnOffsetCommitRequest


@serves(
    TxnOffsetCommitRequest, 0, 6, coordinator_code_of,
    codes={range(3): BEFORE_FENCING, range(4, 5): NOT_IN_TRANSACTION, range(6): BEFORE_TOPIC_IDS},
    failed=lambda request, error, _: answered(request, error, {}),
)  # fmt: skip
def txn_offset_commit(session: Session, request: Any, version: int) -> Fields:
    group, offsets = committed(session, request, version >= 6)
    if request.topics and not offsets:  # No id is known: nothing joins the transaction.
        return answered(request, None, {})
    commit = asked(
        TxnOffsetCommit,
        request,
        group=group,
        offsets=offsets,
        transaction_version=transaction_version(version, 5),
        each=True,
    )
    return answered(request, None, session.broker.ask(commit))
