"""A batch made ready for rows: every record checked, sized and laid out before the writer lock is
taken."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

from eosdb.errors import InvalidRecordError
from eosdb.model import Header
from eosdb.validation import check_batch, check_headers, check_payload, check_timestamp

STORED_SIZE: Final = (
    "(length(COALESCE(key, '')) + length(COALESCE(value, '')) + length(COALESCE(headers, '')))"
)
"""SQL: the bytes that one row of records counts for, as `PreparedBatch.stored_size` does for a batch."""


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """A checked batch. `timestamps` has one element when all are the same, `headers` none when no
    record has any; `payload` is key, value, key, value, …"""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    count: int
    payload: list[bytes | None]
    timestamps: list[int]
    headers: list[str | None]
    size: int
    stored_size: int
    has_null_key: bool

    def crc(self) -> int:
        """The CRC-32 of the content, as `stored_crc` finds it in the rows."""
        if not self.headers:
            return crc32(b"".join(filter(None, self.payload)))
        pairs = zip(self.payload[::2], self.payload[1::2], self.headers, strict=True)
        return stored_crc(pairs)


def stored_crc(rows: Iterable[tuple[bytes | None, bytes | None, str | None]]) -> int:
    """The CRC-32 of keys, values and headers, one behind the other (Kafka: DefaultRecordBatch has one
    for each batch)."""
    return crc32(
        b"".join((key or b"") + (value or b"") + (text or "").encode() for key, value, text in rows)
    )


def prepare(batch: object, now_ms: int) -> PreparedBatch:
    """Check and lay out a batch; records without a timestamp get `now_ms`.

    Raises InvalidRecordError and InvalidTimestampError.
    """
    checked = check_batch(batch)
    payload: list[bytes | None] = []
    timestamps: list[int] = []
    headers: list[str | None] = []
    size = header_bytes = header_text = nulls = 0
    uniform = True
    first = None
    for record in checked.records:
        try:
            key, value, record_headers, timestamp = record
        except (TypeError, ValueError):
            raise InvalidRecordError(f"got {record!r:.80}, expected a Record") from None
        if key is None:
            nulls += 1
        elif type(key) is bytes:
            size += len(key)
        else:
            check_payload("key", key)
        if type(value) is bytes:
            size += len(value)
        else:
            check_payload("value", value)
        payload.append(key)
        payload.append(value)
        if timestamp is None:
            timestamp = now_ms
        else:
            check_timestamp(timestamp)
        if first is None:
            first = timestamp
        elif timestamp != first:
            uniform = False
        timestamps.append(timestamp)
        if record_headers:
            pairs = check_headers(record_headers)
            text = headers_text(pairs)
            header_bytes += sum(len(n.encode()) + len(v or b"") for n, v in pairs)
            header_text += len(text)
            if not headers:
                headers = [None] * (len(timestamps) - 1)
            headers.append(text)
        elif headers:
            headers.append(None)
    return PreparedBatch(
        checked.producer_id,
        checked.producer_epoch,
        checked.base_sequence,
        checked.is_transactional,
        len(timestamps),
        payload,
        timestamps[:1] if uniform else timestamps,
        headers,
        size + header_bytes,
        size + header_text,
        nulls > 0,
    )


def headers_text(headers: Sequence[Header]) -> str:
    """Headers as they are stored: a JSON array of [name, base64 value or null]."""
    return json.dumps(
        [[n, None if v is None else base64.b64encode(v).decode("ascii")] for n, v in headers],
        separators=(",", ":"),
    )


def headers_from_text(text: str) -> tuple[Header, ...]:
    """The reverse of `headers_text`."""
    pairs: list[list[Any]] = json.loads(text)
    return tuple((n, None if v is None else base64.b64decode(v)) for n, v in pairs)
