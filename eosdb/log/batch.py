"""Prepares a batch before the writer lock is taken: checks and sizes every record, and lays it out in
columns."""

from __future__ import annotations

import base64
import binascii
import json
from array import array
from collections.abc import Sequence
from operator import add
from types import NoneType
from typing import Any, Final, NamedTuple, TypeAlias, cast

from eosdb.errors import InvalidRecordError, InvalidTimestampError
from eosdb.log.checksum import content_sums
from eosdb.model.config import INT32_MAX, INT64_MAX
from eosdb.model.damage import parsed
from eosdb.model.records.record_columns import RecordColumns
from eosdb.model.validation import INT16_MAX, check_headers, check_int, check_timestamp, shown
from eosdb.model.values import Header, Record, RecordBatch
from eosdb.native import accelerator

STORED_SIZE: Final = (
    "(length(COALESCE(key, '')) + length(COALESCE(value, '')) + length(COALESCE(headers, '')))"
)
"""SQL: the bytes that one record counts for, as `PreparedBatch.stored_size` does for a batch."""
OLDER_TIME: Final = (
    "min(timestamp, "
    "ifnull((SELECT timestamp FROM eosdb_journal WHERE position = records.position), timestamp))"
)
"""SQL: the time from which a record's age counts. A timestamp of the future counts from the append, or it
would hold back retention and compaction for ever (KIP-937)."""
_PAYLOAD_TYPES: Final = frozenset({bytes, NoneType})
_INT: Final = {int}


class PreparedBatch(NamedTuple):
    """A checked batch. `timestamps` has one element if all are the same, `headers` none if no record has
    any; `payload` is key, value, key, value, … A named tuple costs a fifth of a frozen dataclass."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    count: int  # type: ignore[assignment]  # Replaces `tuple.count`.
    payload: list[bytes | None]
    timestamps: list[int]
    newest: int
    """The index of the newest timestamp."""
    headers: list[str | None]
    content_sums: array[int]
    """The sum of each record's key, value and headers, a part of its checksum."""
    size: int
    stored_size: int
    has_null_key: bool


def prepare(batch: object, now_ms: int) -> PreparedBatch:
    """Check and lay out a batch; records without a timestamp get `now_ms`. Works column by column,
    because a call per record would cost more than its row. Raises InvalidRecordError and
    InvalidTimestampError."""
    checked = _checked(batch)
    columns = _columns(checked.records)
    payload, stamps = columns.payload, columns.timestamps
    measured = _measured_in_c(payload, stamps)
    if measured is None:
        stamps = [now_ms if time is None else time for time in stamps]
        measured = _measured_in_c(payload, stamps) or _measured(payload, stamps)
    size, has_null_key, newest, is_one_time, sums = measured
    headers, header_bytes, header_text = _headers(columns) if columns.headers else ([], 0, 0)
    if headers:
        nothing = [None] * len(stamps)
        sums = list(map(add, array("q", sums), content_sums(nothing, nothing, headers)))
    assert len(headers) in (0, len(stamps)), len(headers)
    assert size >= 0, size
    return PreparedBatch(
        checked.producer_id,
        checked.producer_epoch,
        checked.base_sequence,
        checked.is_transactional,
        len(stamps),
        payload,
        cast("list[int]", stamps[:1] if is_one_time else stamps),
        newest,
        headers,
        array("q", sums),
        size + header_bytes if checked.sent_bytes < 0 else checked.sent_bytes,
        size + header_text,
        has_null_key,
    )


_Measured: TypeAlias = "tuple[int, bool, int, bool, bytes | list[int]]"
"""The bytes of keys and values, whether a key is None, the index of the newest timestamp, whether all
timestamps are the same, and the content sums without headers."""


def _measured_in_c(payload: list[bytes | None], stamps: list[Any]) -> _Measured | None:
    """Return None without the accelerator, and if a value is not of its type or a timestamp is None."""
    module = accelerator.rows()
    try:
        return None if module is None else module.examined(payload, stamps)
    except (TypeError, OverflowError):
        return None  # decisions/0060: the Python code raises the error.


def _measured(payload: list[bytes | None], stamps: list[Any]) -> _Measured:
    """Raises InvalidRecordError and InvalidTimestampError."""
    if not _PAYLOAD_TYPES.issuperset(map(type, payload)):
        _refuse_payload(payload)
    if set(map(type, stamps)) != _INT or min(stamps) < 0 or max(stamps) > INT64_MAX:
        _refuse_timestamps(stamps)
    keys, newest = payload[::2], max(stamps)
    sums = content_sums(keys, payload[1::2], ())
    size = sum(map(len, filter(None, payload)))
    return size, None in keys, stamps.index(newest), min(stamps) == newest, sums


def _checked(batch: object) -> RecordBatch:
    """Check the batch's own fields; `prepare` checks its records. Raises InvalidRecordError (in Kafka:
    LogValidator and KafkaApis)."""
    if not isinstance(batch, RecordBatch):
        raise InvalidRecordError(f"got {shown(batch)}, expected a RecordBatch")
    records, producer_id, epoch, sequence, is_transactional, *_ = batch
    if type(records) is not RecordColumns and not (
        isinstance(records, Sequence) and not isinstance(records, str | bytes)
    ):
        raise InvalidRecordError(f"records: got {shown(records)}, expected a sequence of Record")
    if not records:
        raise InvalidRecordError("the batch has no records, expected at least one")
    # One condition is faster than three calls, and usually all three values are valid.
    if not (
        type(producer_id) is type(epoch) is type(sequence) is int
        and -1 <= producer_id <= INT64_MAX
        and -1 <= epoch <= INT16_MAX
        and -1 <= sequence <= INT32_MAX
    ):
        check_int("producer_id", producer_id, -1, error=InvalidRecordError)
        check_int("producer_epoch", epoch, -1, INT16_MAX, InvalidRecordError)
        check_int("base_sequence", sequence, -1, INT32_MAX, InvalidRecordError)
    if producer_id >= 0 and (sequence < 0 or epoch < 0):
        raise InvalidRecordError(
            f"producer {producer_id} with epoch {epoch} and base sequence {sequence}: an idempotent batch "
            "needs numbers of at least 0"
        )
    if producer_id < 0 and is_transactional:
        raise InvalidRecordError("a transactional batch needs a producer id")
    return batch


def _columns(records: Sequence[Record]) -> RecordColumns:
    if type(records) is RecordColumns:
        return records
    try:
        return RecordColumns.of(records)
    except (TypeError, ValueError):
        for record in records:
            if not isinstance(record, Sequence) or len(record) != len(Record._fields):
                raise InvalidRecordError(f"got {record!r:.80}, expected a Record") from None
        raise


def _refuse_payload(payload: list[bytes | None]) -> None:
    for i, part in enumerate(payload):
        if type(part) not in _PAYLOAD_TYPES:
            name = "value" if i % 2 else "key"
            raise InvalidRecordError(f"{name}: got {shown(part)}, expected bytes or None")


def _refuse_timestamps(timestamps: list[int]) -> None:
    for at, timestamp in enumerate(timestamps):
        try:
            check_timestamp(timestamp)
        except InvalidTimestampError as error:
            error.records = [at]
            raise


def _headers(columns: RecordColumns) -> tuple[list[str | None], int, int]:
    """Return each record's headers as stored, their bytes in the batch's size, and the bytes of the
    text."""
    texts: list[str | None] = []
    header_bytes = 0
    for headers in columns.headers_of_all():
        pairs = check_headers(headers) if headers else ()
        texts.append(headers_text(pairs) if pairs else None)
        header_bytes += sum(len(n.encode()) + len(v or b"") for n, v in pairs)
    return texts, header_bytes, sum(map(len, filter(None, texts)))


def headers_text(headers: Sequence[Header]) -> str:
    """Encode headers as stored: a JSON array of [name, base64 value or null]."""
    return json.dumps(
        [[n, None if v is None else base64.b64encode(v).decode("ascii")] for n, v in headers],
        separators=(",", ":"),
    )


def headers_from_text(text: str) -> tuple[Header, ...]:
    """Decode stored headers. Raises ValueError, TypeError and AttributeError for any other text."""
    pairs: list[list[Any]] = parsed(text)
    if type(pairs) is not list or not {list}.issuperset(map(type, pairs)):
        raise ValueError("expected an array of pairs")
    return tuple(
        # `encode` raises an error if the name is not text; strict mode raises one for invalid base64.
        (n.encode().decode(), None if v is None else binascii.a2b_base64(v, strict_mode=True))
        for n, v in pairs
    )
