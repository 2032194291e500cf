"""The headers of a failed or postponed record: its origin, its error, and the number of attempts.

Any consumer and plain SQL can read headers. Their names begin with `__eosdb.errors.` (Kafka Connect and
Kafka Streams have such headers with other prefixes: KIP-298, KIP-1034).
"""

from __future__ import annotations

import operator
import re
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from eosdb.model.clock import DeliverAt, due_ms
from eosdb.model.records.failure_headers import NEVER, PREFIX
from eosdb.model.values import ConsumerRecord, Header

_MESSAGE_MAX: Final = 1_000
_STACKTRACE_MAX: Final = 8_000
_NUMBERS: Final = ("partition", "offset", "attempts", "failed_ms", "due_ms", "timestamp", "retries")
_NUMBER: Final = re.compile(r"-?\d{1,18}", re.ASCII)


class BatchFailed(Exception):
    """Raised by a handler of batches: the record at this index of its list has failed, with this error.

    The attempt is undone. The handler gets the records before the failed one again, as a list of their own;
    then the failed record alone, for the usual number of attempts; then the records after it. If the index
    is outside of the list, the handler gets each record alone. Raises TypeError for wrong arguments.
    """

    def __init__(self, index: int, error: Exception) -> None:
        super().__init__(index, error)
        if not isinstance(error, Exception):
            raise TypeError(
                f"error: got {error!r:.80}, expected an exception such as ValueError(…)"
            )
        self.index, self.error = operator.index(index), error


class RetryAt(Exception):
    """Raised by a handler to postpone the record: the handler gets it again at this time, in ms since the
    epoch or as a datetime with a time zone. This does not count as a failure.

    Rows and results of the attempt are undone, and the record is complete in its partition: later records
    do not wait for it. A handler of batches postpones all records of its list, or the one that it names by
    `BatchFailed(index, RetryAt(when))`. Raises InvalidTimestampError for any other time.
    """

    def __init__(self, when: DeliverAt) -> None:
        super().__init__(when)
        self.when_ms = due_ms(when, 0, "RetryAt")
        self._given = when

    def _check(self, now_ms: int) -> None:
        """Raise InvalidTimestampError for a number that can only be seconds."""
        due_ms(self._given, now_ms, "RetryAt")


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure or postponement of one record in one group. Topic, partition and offset are those of the
    original record."""

    group_id: str
    topic: str
    partition: int
    offset: int
    attempts: int
    """The number of attempts, including all retries."""
    error: str
    """The name of the exception's class."""
    message: str
    stacktrace: str
    failed_ms: int
    due_ms: int = NEVER
    """The time of the next attempt, in ms since 1970; -1 for none."""
    timestamp: int = NEVER
    """The original record's timestamp; -1 if an older eosdb did not store it."""
    retries: int = 0
    """How many of the `retry_delays_ms` the record has waited for."""

    @classmethod
    def of(
        cls, record: ConsumerRecord, error: Exception, group_id: str, attempts: int, now_ms: int
    ) -> Failure:
        """Describe the failure of a record that was just processed."""
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
            timestamp=record.timestamp,
        )

    def back_at_origin(self, record: ConsumerRecord) -> ConsumerRecord:
        """Return the original record of a retried or postponed record, as far as its headers tell."""
        timestamp = record.timestamp if self.timestamp == NEVER else self.timestamp
        return record._replace(
            topic=self.topic, partition=self.partition, offset=self.offset, timestamp=timestamp
        )

    def mark(self, headers: Iterable[Header]) -> tuple[Header, ...]:
        """Return the record's own headers and those of this failure, which replace an earlier failure's."""
        of_failure = (
            (f"{PREFIX}{name}", str(getattr(self, name)).encode()) for name in self.__slots__
        )
        return (*unmarked(headers), *of_failure)


def unmarked(headers: Iterable[Header]) -> tuple[Header, ...]:
    return tuple(header for header in headers if not header[0].startswith(PREFIX))


def read_failure(headers: Iterable[Header]) -> Failure | None:
    """Read the failure from a record's headers; None if it is absent or incomplete."""
    fields: dict[str, str] = {}
    for name, data in headers:
        if name.startswith(PREFIX) and data is not None:
            fields[name.removeprefix(PREFIX)] = data.decode(errors="replace")
    numbers = {name: fields.pop(name) for name in _NUMBERS if name in fields}
    if not all(map(_NUMBER.fullmatch, numbers.values())):
        return None
    try:
        return Failure(**fields, **{name: int(each) for name, each in numbers.items()})  # type: ignore[arg-type]
    except TypeError:
        return None
