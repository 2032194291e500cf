"""EndTxn: commits or aborts a transaction.

Version 2: PRODUCER_FENCED (KIP-588); 3: flexible; 5: transaction version 2, which returns the next epoch
(KIP-890).
"""

from __future__ import annotations

from kafka.protocol.producer.transaction import EndTxnRequest

from eosdb.model import requests
from eosdb.model.values import CLASSIC, EPOCH_PER_TRANSACTION
from eosdb.wire.apis import Fields, Session, asked, serves
from eosdb.wire.errors import BEFORE_FENCING, coordinator_code_of


@serves(EndTxnRequest, 0, 5, coordinator_code_of, codes={range(2): BEFORE_FENCING})
def end_txn(session: Session, request: EndTxnRequest, version: int) -> Fields:
    implied = transaction_version(version, 5)
    return {
        "like": session.broker.ask(asked(requests.EndTxn, request, transaction_version=implied))
    }


def transaction_version(version: int, version_2_from: int) -> int:
    """The transaction version that the version of a client's request implies (KIP-890)."""
    return EPOCH_PER_TRANSACTION if version >= version_2_from else CLASSIC
