"""Record batches (magic 2) as bytes: from a producer's batch to columns, and from columns to batches.

aiokafka's C codec reads and writes the records, cramjam compresses (decisions/0027). Batches are stored
decoded, so a compressed one is served uncompressed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Final

from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

from eosdb.errors import (
    CorruptRecordError,
    InvalidRecordError,
)
from eosdb.model.fetched import FetchedLog
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
_MAGIC: Final = 2
_CODEC: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_LEAST_RECORD: Final = 7
"""The bytes of a record without key, value and headers."""
_NO_TIMESTAMP: Final = -1
_CONTROL_KEYS: Final = {"ABORT": b"\0\0\0\0", "COMMIT": b"\0\0\0\1"}
_CONTROL_VALUE: Final = b"\0\0\0\0\0\0"
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


def encode(log: FetchedLog) -> bytes:
    """All that was read, as one batch for each run of records of one producer and kind."""
    if not log.offsets:
        return b""
    kinds = (
        log.producer_ids,
        log.producer_epochs,
        log.is_transactional,
        log.controls,
        log.timestamp_types,
    )
    if all(column.count(column[0]) == len(column) for column in kinds):
        return _batch(log, 0, len(log.offsets))
    parts, begin = [], 0
    for _, run in groupby(zip(*kinds, strict=True)):
        end = begin + sum(1 for _ in run)
        parts.append(_batch(log, begin, end))
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


def _batch(log: FetchedLog, begin: int, end: int) -> bytes:
    """The records of one producer and kind."""
    base, control = log.offsets[begin], log.controls[begin]
    transactional = bool(log.is_transactional[begin])
    builder = DefaultRecordBatchBuilder(
        _MAGIC, 0, transactional, log.producer_ids[begin], log.producer_epochs[begin],
        log.sequences[begin], _NO_LIMIT,
    )  # fmt: skip
    append = builder.append
    headers: Iterable[Any] = (
        map(list, log.headers[begin:end]) if log.headers else [[]] * (end - begin)
    )
    keys, values = log.keys[begin:end], log.values[begin:end]
    if control is not None:
        keys, values = [_CONTROL_KEYS[control]] * (end - begin), [_CONTROL_VALUE] * (end - begin)
    for offset, timestamp, key, value, header in zip(
        log.offsets[begin:end], log.timestamps[begin:end], keys, values, headers, strict=True
    ):
        append(offset - base, timestamp, key, value, header)
    made: bytearray = builder.build()
    struct.pack_into(">q", made, 0, base)
    more = (_CONTROL if control is not None else 0) | (
        _LOG_APPEND_TIME if log.timestamp_types[begin] else 0
    )
    if more:
        (attributes,) = struct.unpack_from(">h", made, _ATTRIBUTES)
        struct.pack_into(">h", made, _ATTRIBUTES, attributes | more)
        struct.pack_into(">I", made, _ATTRIBUTES - 4, calc_crc32c(memoryview(made)[_ATTRIBUTES:]))
    return bytes(made)
