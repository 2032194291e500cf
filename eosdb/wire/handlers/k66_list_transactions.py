"""ListTransactions: the transactional ids that the client may see (KIP-664).

Version 1: a filter by age (KIP-994); 2: a filter by pattern (KIP-1152).
"""

from __future__ import annotations

from typing import Final

from kafka.protocol.admin.transactions import ListTransactionsRequest

from eosdb.model import requests
from eosdb.model.values import TransactionState
from eosdb.wire.apis import Fields, Session, serves
from eosdb.wire.errors import coordinator_code_of

_STATES: Final = {state.label for state in TransactionState}


@serves(ListTransactionsRequest, 0, 2, coordinator_code_of)
def list_transactions(session: Session, request: ListTransactionsRequest, _: int) -> Fields:
    """As in Kafka, unknown states in the filter are returned; they match nothing."""
    known = [state for state in request.state_filters if state in _STATES]
    unknown = [state for state in request.state_filters if state not in _STATES]
    transactions = session.broker.ask(
        requests.ListTransactions(
            known,
            request.producer_id_filters,
            max(request.duration_filter, -1),
            request.transactional_id_pattern or "",
        )
    )
    return {
        "unknown_state_filters": unknown,
        "transaction_states": [
            {"like": transaction, "transaction_state": transaction.state}
            for transaction in transactions
            if known or not unknown
        ],
    }
