"""CreatePartitions: adds partitions to topics, with a result for each (KIP-195).

Version 2: flexible; 3: THROTTLING_QUOTA_EXCEEDED, which does not occur.
"""

from __future__ import annotations

from typing import Any

from kafka.protocol.admin.topics import CreatePartitionsRequest

from eosdb.errors import EosdbError, PolicyViolationError
from eosdb.model import requests
from eosdb.wire.apis import Fields, Session, attempt, serves
from eosdb.wire.handlers.k19_create_topics import (
    PARTITIONS_AT_ONCE,
    check_assignments,
    repeated,
    twice,
)


def _none_created(request: Any, error: EosdbError, _: int) -> Fields:
    return {"results": [{"name": topic.name, "error": error} for topic in request.topics]}


@serves(CreatePartitionsRequest, 0, 3, failed=_none_created)
def create_partitions(session: Session, request: CreatePartitionsRequest, _: int) -> Fields:
    again = repeated(topic.name for topic in request.topics)
    counts, room = session.broker.ask(requests.TopicPartitions(every=True)), PARTITIONS_AT_ONCE

    def create(topic: Any) -> None:
        nonlocal room
        new = max(topic.count - counts.get(topic.name, topic.count), 0)
        if new > room:
            raise PolicyViolationError(
                f"got {new} new partitions, expected {room} at most: a request may add "
                f"{PARTITIONS_AT_ONCE} in all; send several requests"
            )
        if topic.assignments is not None:
            existing = session.broker.ask(requests.Topic(topic.name, may_create=False))
            added = topic.count - existing.partitions
            check_assignments([a.broker_ids for a in topic.assignments], added)
        session.admin.create_partitions(
            topic.name, topic.count, validate_only=request.validate_only
        )
        room -= new

    return {
        "results": [
            *({"name": name, "error": twice(name)} for name in again),
            *(
                {"name": topic.name, **attempt(create, topic)}
                for topic in request.topics
                if topic.name not in again
            ),
        ]
    }
