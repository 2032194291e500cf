"""Keys under which records were published once: unique per topic, for as long as the topic exists."""

from __future__ import annotations

from typing import Final

from eosdb.errors import InvalidRequestError
from eosdb.events.kinds import IdempotencyKeyUsed
from eosdb.model.values import RecordMetadata
from eosdb.store.writing.unit import Unit
from eosdb.validation import check_text

_FIND: Final = (
    'SELECT partition, "offset", timestamp FROM eosdb_idempotency_keys '
    "WHERE topic = ? AND idempotency_key = ?"
)


def check_key(key: object) -> str:
    """Raises InvalidRequestError."""
    if check_text("idempotency_key", key) == "":
        raise InvalidRequestError("idempotency_key: got an empty one, expected text or None")
    assert isinstance(key, str)
    return key


def find(unit: Unit, topic: str, key: str) -> RecordMetadata | None:
    """Where the record is that was published under the key, None for a new key."""
    row = unit.execute(_FIND, (topic, key)).fetchone()
    if row is None:
        return None
    partition, offset, timestamp = row
    return RecordMetadata(topic, partition, offset, timestamp, duplicate=True)


def save(unit: Unit, event: IdempotencyKeyUsed) -> None:
    """Projection only: the key is taken."""
    unit.execute(
        "INSERT INTO eosdb_idempotency_keys VALUES (?, ?, ?, ?, ?)",
        (
            event.topic,
            event.idempotency_key,
            event.partition,
            event.offset,
            event.record_timestamp,
        ),
    )


def forget_topic(unit: Unit, topic: str) -> None:
    """Projection only: the topic has been deleted."""
    unit.execute("DELETE FROM eosdb_idempotency_keys WHERE topic = ?", (topic,))
