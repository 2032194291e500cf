"""Record batches (magic 2) as bytes: from a producer's batch to columns, and from columns to batches.

aiokafka's C codec reads and writes the records, cramjam compresses (decisions/0027). Batches are stored
decoded, so a compressed one is served uncompressed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import groupby, repeat
from typing import Any, Final

from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

from eosdb.errors import (
    CorruptRecordError,
    InvalidRecordError,
)
from eosdb.model.fetched import FetchedData
from eosdb.model.record_columns import RecordColumns
from eosdb.model.values import Header, RecordBatch
from eosdb.wire import compression
from eosdb.wire.limits import Allowance

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
"""base offset, length, leader epoch, magic, CRC, attributes, last offset delta, base timestamp, max
timestamp, producer id, producer epoch, base sequence, count of records."""
_BEFORE_LENGTH: Final = 12
_ATTRIBUTES: Final = 21
"""Where the CRC begins to cover."""
_CRC: Final = _ATTRIBUTES - 4
_MAGIC: Final = 2
_CODEC: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_LEAST_RECORD: Final = 7
"""The bytes of a record without key, value and headers."""
_NO_TIMESTAMP: Final = -1
_NO_LIMIT: Final = 2**31 - 1


def decode(data: object, version: int, allowance: Allowance) -> RecordBatch:
    """The one batch of a producer for a partition; `version` is that of its Produce request, `allowance`
    what the request may still make of its bytes.

    Raises CorruptRecordError for bytes that are damaged or are not whole, InvalidRecordError for what a
    producer may not send, and UnsupportedCompressionTypeError (Kafka: LogValidator, ProduceRequest);
    MessageTooLargeError for more records or bytes than one request may have.
    """
    if not isinstance(data, bytes | bytearray | memoryview) or len(data) < _HEADER.size:
        raise InvalidRecordError("got no whole record batch, expected exactly one")
    fields = _HEADER.unpack_from(data)
    _, length, _, magic, crc, attributes, last_delta, _, _, *producer, count = fields
    if magic != _MAGIC:
        raise InvalidRecordError(f"got a batch of magic {magic}, expected {_MAGIC}")
    if length != len(data) - _BEFORE_LENGTH:
        raise InvalidRecordError(
            f"got {len(data)} bytes and a batch of {length + _BEFORE_LENGTH}, expected exactly one batch"
        )
    if calc_crc32c(memoryview(data)[_ATTRIBUTES:]) != crc:
        raise CorruptRecordError("the batch does not fit its checksum; it was damaged on its way")
    if attributes & _CONTROL:
        raise InvalidRecordError("got a control batch, which only coordinators write")
    if last_delta != count - 1:
        raise InvalidRecordError(
            f"got {count} records and a last offset delta of {last_delta}, expected one for each record"
        )
    codec = attributes & _CODEC
    if codec:
        data = _uncompressed(bytes(data), attributes, codec, version, allowance)
    if not 0 < count * _LEAST_RECORD <= len(data) - _HEADER.size:
        raise InvalidRecordError(
            f"got {len(data) - _HEADER.size} bytes of records, the batch says {count} records"
        )
    allowance.records(count)
    producer_id, producer_epoch, base_sequence = producer
    return RecordBatch(
        _columns(bytes(data), count), producer_id, producer_epoch, base_sequence,
        bool(attributes & _TRANSACTIONAL), sent_bytes=length + _BEFORE_LENGTH,
    )  # fmt: skip


# decisions/0033: what consumers leave out is left out here.
def encode(data: FetchedData, offset: int) -> bytes | bytearray:
    """What was read from `offset` on, as batches that end where the reading did: the reader goes on there.

    Clients know batches that end behind their last record, or have none, from compacted topics.
    """
    if data.next_offset <= offset:
        return b""
    if not data.offsets:
        return _batch(data, 0, 0, offset, data.next_offset)
    if data.timestamp_types.count(data.timestamp_types[0]) == len(data.offsets):
        return _batch(data, 0, len(data.offsets), data.offsets[0], data.next_offset)
    parts, begin = [], 0
    for _, run in groupby(data.timestamp_types):
        end = begin + sum(1 for _ in run)
        is_last = end == len(data.offsets)
        next_offset = data.next_offset if is_last else data.offsets[end]
        parts.append(_batch(data, begin, end, data.offsets[begin], next_offset))
        begin = end
    return b"".join(parts)


def _columns(data: bytes, count: int) -> RecordColumns:
    try:
        records = list(DefaultRecordBatch(data))
        payload: list[bytes | None] = [None] * (2 * len(records))
        payload[::2] = [record.key for record in records]
        payload[1::2] = [record.value for record in records]
        headers: list[Sequence[Header]] = [record.headers for record in records]
        times: list[int | None] = [record.timestamp for record in records]
    except (CorruptRecordException, ValueError, struct.error, IndexError) as error:
        raise InvalidRecordError(f"the records of the batch cannot be read: {error}") from error
    if len(records) != count:
        raise InvalidRecordError(f"got {len(records)} records, the batch says {count}")
    if _NO_TIMESTAMP in times:
        times = [None if time == _NO_TIMESTAMP else time for time in times]
    return RecordColumns(payload, times, headers if any(headers) else [])


def _uncompressed(
    data: bytes, attributes: int, codec: int, version: int, allowance: Allowance
) -> bytes:
    """The batch as if it had been sent uncompressed; nobody looks at its checksum again."""
    records = compression.decompress(codec, data[_HEADER.size :], version, allowance)
    header = bytearray(data[: _HEADER.size])
    struct.pack_into(">h", header, _ATTRIBUTES, attributes & ~_CODEC)
    struct.pack_into(">i", header, 8, len(header) + len(records) - _BEFORE_LENGTH)
    return bytes(header) + records


def _batch(data: FetchedData, begin: int, end: int, base: int, next_offset: int) -> bytearray:
    """The records in [begin, end) as one batch for the offsets [base, next_offset)."""
    append = (builder := DefaultRecordBatchBuilder(_MAGIC, 0, 0, -1, -1, -1, _NO_LIMIT)).append
    headers: Iterable[Any] = map(list, data.headers[begin:end]) if data.headers else repeat([])
    for offset, timestamp, key, value, header in zip(
        data.offsets[begin:end],
        data.timestamps[begin:end],
        data.keys[begin:end],
        data.values[begin:end],
        headers,
        strict=False,
    ):
        append(offset - base, timestamp, key, value, header)
    made: bytearray = builder.build()
    by_log = bool(begin < end and data.timestamp_types[begin])
    struct.pack_into(">q", made, 0, base)
    struct.pack_into(">hi", made, _ATTRIBUTES, _LOG_APPEND_TIME * by_log, next_offset - 1 - base)
    struct.pack_into(">I", made, _CRC, calc_crc32c(memoryview(made)[_ATTRIBUTES:]))
    return made
