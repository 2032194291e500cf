"""AddOffsetsToTxn: adds a group to a transaction.

Version 2: PRODUCER_FENCED (KIP-588); 3: flexible; 4: TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from kafka.protocol.producer.transaction import AddOffsetsToTxnRequest

from eosdb.model import requests
from eosdb.wire.apis import Fields, Session, asked, serves
from eosdb.wire.errors import BEFORE_FENCING, coordinator_code_of


@serves(AddOffsetsToTxnRequest, 0, 4, coordinator_code_of, codes={range(2): BEFORE_FENCING})
def add_offsets(session: Session, request: AddOffsetsToTxnRequest, _: int) -> Fields:
    session.broker.ask(asked(requests.AddOffsetsToTxn, request))
    return {}
