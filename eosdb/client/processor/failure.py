"""What a failed record carries with it: where it came from, what went wrong, and how often.

Headers, so that any consumer and plain SQL can read them; their names begin with `__eosdb.errors.`
(Kafka Connect and Kafka Streams, KIP-298 and KIP-1034, do the same under prefixes of their own).
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from eosdb.model.records.dead_letters import NEVER, PREFIX
from eosdb.model.values import ConsumerRecord, Header

_MESSAGE_MAX: Final = 1_000
_STACKTRACE_MAX: Final = 8_000
_NUMBERS: Final = ("partition", "offset", "attempts", "failed_ms", "due_ms")


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure of one record in one group. Topic, partition and offset are those of the original
    record."""

    group_id: str
    topic: str
    partition: int
    offset: int
    attempts: int
    """Number of attempts, including all retries."""
    error: str
    """The name of the exception's class."""
    message: str
    stacktrace: str
    failed_ms: int
    due_ms: int = NEVER
    """When it will be tried again; -1 for never."""

    @classmethod
    def of(
        cls, record: ConsumerRecord, error: Exception, group_id: str, attempts: int, now_ms: int
    ) -> Failure:
        """The failure of a record that has just been processed."""
        return cls(
            group_id,
            record.topic,
            record.partition,
            record.offset,
            attempts,
            type(error).__name__,
            str(error)[:_MESSAGE_MAX],
            "".join(traceback.format_exception(error))[-_STACKTRACE_MAX:],
            now_ms,
        )

    def back_at_origin(self, record: ConsumerRecord) -> ConsumerRecord:
        """A retried record, as it was in its original topic."""
        return record._replace(topic=self.topic, partition=self.partition, offset=self.offset)

    def mark(self, headers: Iterable[Header]) -> tuple[Header, ...]:
        """The record's own headers and this failure, which replaces an earlier one."""
        of_failure = (
            (f"{PREFIX}{name}", str(getattr(self, name)).encode()) for name in self.__slots__
        )
        return (*unmarked(headers), *of_failure)


def unmarked(headers: Iterable[Header]) -> tuple[Header, ...]:
    """The record's own headers."""
    return tuple(header for header in headers if not header[0].startswith(PREFIX))


def read_failure(headers: Iterable[Header]) -> Failure | None:
    """The failure in a record's headers; None if it is absent or incomplete."""
    fields: dict[str, str] = {}
    for name, data in headers:
        if name.startswith(PREFIX) and data is not None:
            fields[name.removeprefix(PREFIX)] = data.decode(errors="replace")
    try:
        numbers = {name: int(fields.pop(name)) for name in _NUMBERS}
        return Failure(**fields, **numbers)  # type: ignore[arg-type]
    except (KeyError, TypeError, ValueError):
        return None
