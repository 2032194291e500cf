"""DeleteTopics: deletes topics, with a result for each.

Version 4: flexible; 5: a text beside the error code; 6: topics by their ids (KIP-516).
"""

from __future__ import annotations

from uuid import UUID

from kafka.protocol.admin.topics import DeleteTopicsRequest

from eosdb.errors import InvalidRequestError
from eosdb.wire.apis import Fields, Session, attempt, serves
from eosdb.wire.handlers.k19_create_topics import repeated, twice
from eosdb.wire.session import NO_TOPIC


@serves(DeleteTopicsRequest, 1, 6)
def delete_topics(session: Session, request: DeleteTopicsRequest, version: int) -> Fields:
    requested: list[tuple[str | None, UUID]] = [(name, NO_TOPIC) for name in request.topic_names]
    if version >= 6:
        requested = [(topic.name, topic.topic_id or NO_TOPIC) for topic in request.topics]
    again = repeated(name for name, _ in requested if name is not None)

    def delete(name: str | None, topic_id: UUID) -> None:
        if (name is None) == (topic_id == NO_TOPIC):
            raise InvalidRequestError(f"got {name!r} and {topic_id}, expected a name or an id")
        session.admin.delete_topic(topic_id if name is None else name)

    return {
        "responses": [
            *(
                {"name": name, "topic_id": topic_id, **attempt(delete, name, topic_id)}
                for name, topic_id in requested
                if name not in again
            ),
            *({"name": name, "error": twice(name)} for name in again),
        ]
    }
