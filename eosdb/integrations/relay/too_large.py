"""Records that a target refuses as too large, and the dead letters sent instead."""

from __future__ import annotations

from typing import Final

from eosdb.client.processor.failure import Failure
from eosdb.errors import MessageTooLargeError
from eosdb.integrations.relay.file_source import GROUP_PREFIX
from eosdb.integrations.relay.settings import DEAD_LETTERS
from eosdb.integrations.relay.values import Outgoing, RelayRecord

_Place = tuple[str, int, int]


class Aside:
    """The records to send to dead letter topics, with the headers of `eosdb dlq`."""

    def __init__(self, relay: str) -> None:
        self._group: Final = GROUP_PREFIX + relay
        self._failures: dict[_Place, Failure] = {}
        self._is_bare: set[_Place] = set()

    def put(self, record: RelayRecord, message: str, now_ms: int) -> str:
        """Send the record to its dead letter topic from now on, and return the topic. If that has refused
        it as well, only its headers are sent."""
        place = (record.topic, record.partition, record.offset)
        if place in self._is_bare:
            raise MessageTooLargeError(f"{message}: also without key and value")
        if place in self._failures:
            self._is_bare.add(place)
        self._failures[place] = Failure(
            self._group,
            *place,
            attempts=1,
            error=MessageTooLargeError.__name__,
            message=message,
            stacktrace="",
            failed_ms=now_ms,
        )
        return record.topic + DEAD_LETTERS

    def forget(self) -> None:
        """Forget the records, because they have arrived."""
        self._failures.clear()
        self._is_bare.clear()

    def outgoing(self, record: RelayRecord) -> Outgoing:
        """The form in which a record is sent: as it is, or as a dead letter."""
        topic, partition, offset, timestamp, key, value, headers = record
        failure = self._failures.get((topic, partition, offset)) if self._failures else None
        if failure is None:
            return Outgoing(topic, partition, timestamp, key, value, headers, record)
        if (topic, partition, offset) in self._is_bare:
            key = value = None
            headers = ()
        marked = failure.mark(headers)
        return Outgoing(topic + DEAD_LETTERS, 0, timestamp, key, value, marked, record)
