"""DescribeTransactions: the state of transactional ids, and the partitions of each (KIP-664)."""

from __future__ import annotations

from kafka.protocol.admin.transactions import DescribeTransactionsRequest

from eosdb.model import requests
from eosdb.wire.apis import Fields, Session, attempt, by_topic, serves
from eosdb.wire.errors import coordinator_code_of


@serves(DescribeTransactionsRequest, 0, 0, coordinator_code_of)
def describe_transactions(session: Session, request: DescribeTransactionsRequest, _: int) -> Fields:
    def described(name: str) -> Fields:
        found = session.broker.ask(requests.DescribeTransactions([name]))[name]
        return {
            "like": found,
            "transaction_state": found.state,
            "topics": [
                {"topic": topic, "partitions": indexes}
                for topic, indexes in by_topic(sorted(found.partitions)).items()
            ],
        }

    return {
        "transaction_states": [
            {"transactional_id": name, **attempt(described, name)}
            for name in request.transactional_ids
        ]
    }
