"""InitProducerId: a producer's id, and its epoch.

Version 2: flexible; 3: the producer's present id and epoch (KIP-360); 4: PRODUCER_FENCED (KIP-588); 5:
transaction version 2 (KIP-890). Version 6, two-phase commit, is not served (decisions/0071).
"""

from __future__ import annotations

from kafka.protocol.producer.transaction import InitProducerIdRequest

from eosdb.model import requests
from eosdb.wire.apis import Fields, Session, asked, serves
from eosdb.wire.errors import BEFORE_FENCING, coordinator_code_of


@serves(
    InitProducerIdRequest, 0, 5, coordinator_code_of, codes={range(4): BEFORE_FENCING},
    failed=lambda _, error, __: {"error": error, "producer_epoch": -1},
)  # fmt: skip
def init_producer_id(session: Session, request: InitProducerIdRequest, _: int) -> Fields:
    return {"like": session.broker.ask(asked(requests.InitProducerId, request))}
