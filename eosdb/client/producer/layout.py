"""Lays out the records of a `send_many` as columns.

A column is checked as a whole where possible (all bytes, all text). Only a serializer needs a call for
each record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from eosdb.client.producer.settings import ProducerSettings
from eosdb.errors import InvalidRequestError, MessageTooLargeError
from eosdb.model.clock import due_ms
from eosdb.model.records.scheduling import as_waiting
from eosdb.model.records.serializing import Serializer, as_far_as_it_goes, serialized
from eosdb.model.validation import as_headers, shown
from eosdb.model.values import Header, ProducerRecord

Sendable: TypeAlias = "ProducerRecord | tuple[Any, Any] | Any"
"""A ProducerRecord, or a pair of key and value; any other object is a value."""

_BYTES: Final = frozenset({bytes, type(None)})
_PAIR: Final = 2


@dataclass(frozen=True, slots=True)
class Columns:
    """Records column by column. A column of only None, or without headers, is empty."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None]
    headers: Sequence[Sequence[Header]]
    timestamps: Sequence[int | None]
    partitions: Sequence[int | None]
    sizes: Sequence[int]
    due: Sequence[int | None]
    """When a scheduled record is due; None for the others."""

    def pick(self, places: Sequence[int]) -> Columns:
        columns: tuple[Sequence[Any], ...] = (
            self.values, self.keys, self.headers, self.timestamps, self.partitions, self.sizes,
            self.due,
        )  # fmt: skip
        return Columns(*([column[i] for i in places] if column else () for column in columns))

    def scheduled(self, chosen: list[int]) -> tuple[Columns, list[int]]:
        """The columns and the chosen partitions, with scheduled records as they wait until they are
        due."""
        headers = list(self.headers or ((),) * len(self.sizes))
        times = list(self.timestamps or (None,) * len(self.sizes))
        places = chosen.copy()
        for at, (own, due) in enumerate(zip(chosen, self.due)):  # noqa: B905
            if due is not None:
                headers[at], times[at], places[at] = as_waiting(headers[at], times[at], own, due)
        return replace(self, headers=headers, timestamps=times), places


def lay_out(
    given: Sequence[Any], topic: str, settings: ProducerSettings
) -> tuple[Columns, Exception | None]:
    """Lay out the records before the first one that cannot be sent. Also returns that record's error:
    TypeError or an error of a serializer, InvalidRecordError, InvalidRequestError, MessageTooLargeError."""
    try:
        return _columns(given, topic, settings), None
    except Exception:
        whole, error = as_far_as_it_goes(_columns([one], topic, settings) for one in given)
        return _columns(given[: len(whole)], topic, settings), error


def _columns(given: Sequence[Any], topic: str, settings: ProducerSettings) -> Columns:
    kinds = set(map(type, given))
    records: list[ProducerRecord] = []
    keys: Sequence[Any] = ()
    values: Sequence[Any] = given
    if kinds == {tuple} and {len(pair) for pair in given} == {_PAIR}:
        keys, values = zip(*given, strict=True)
    elif not kinds.isdisjoint((tuple, ProducerRecord)):
        records = [_record(one, topic) for one in given]
        keys = [record.key for record in records]
        values = [record.value for record in records]
    keys = _serialized("key", keys, settings.key_serializer)
    values = _serialized("value", values, settings.value_serializer)
    headers = [as_headers(record.headers) if record.headers else () for record in records]
    columns = Columns(
        values,
        _given(keys),
        headers if any(headers) else (),
        _given([record.timestamp for record in records]),
        _given([record.partition for record in records]),
        _sizes(values, keys, headers),
        _given([None if r.deliver_at is None else due_ms(r.deliver_at) for r in records]),
    )
    largest = max(columns.sizes, default=0)
    if largest > settings.max_request_size:
        raise too_large(largest, settings.max_request_size)
    return columns


def _record(given: Sendable, topic: str) -> ProducerRecord:
    if isinstance(given, ProducerRecord):
        if given.topic not in (None, topic):
            raise InvalidRequestError(
                f"the record is for topic {given.topic!r}, expected {topic!r} or none: send_many sends to "
                "one topic"
            )
        return given
    if type(given) is not tuple:
        return ProducerRecord(value=given)
    if len(given) != _PAIR:
        raise TypeError(f"got {shown(given)}, expected a pair of key and value")
    key, value = given
    return ProducerRecord(key=key, value=value)


def _serialized(
    what: str, column: Sequence[Any], serializer: Serializer | None
) -> Sequence[bytes | None]:
    if serializer is None:
        kinds = set(map(type, column))
        if kinds <= _BYTES:
            return column
        if kinds == {str}:
            try:
                return list(map(str.encode, column))
            except UnicodeEncodeError:
                pass  # `serialized` raises with the record at fault.
    return [serialized(what, one, serializer) for one in column]


def _given(column: Sequence[Any]) -> Sequence[Any]:
    return column if any(one is not None for one in column) else ()


def _sizes(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None],
    headers: Sequence[Sequence[Header]],
) -> list[int]:
    """Return the size of each record in bytes, computed as in `send`."""
    sizes = [len(value) if value else 0 for value in values]
    if keys:
        sizes = [size + len(key or b"") for size, key in zip(sizes, keys, strict=True)]
    if any(headers):
        more = (sum(len(name) + len(data or b"") for name, data in of_one) for of_one in headers)
        sizes = [size + extra for size, extra in zip(sizes, more, strict=True)]
    return sizes


def too_large(size: int, limit: int) -> MessageTooLargeError:
    return MessageTooLargeError(f"the record has {size} bytes, max_request_size is {limit}")
