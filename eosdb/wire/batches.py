"""Record batches (magic 2) as bytes: from a producer's batch to columns, and from columns to batches.

aiokafka's C codec reads and writes the records, cramjam compresses (decisions/0027). Batches are stored
decoded, so a compressed one is served uncompressed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, repeat
from typing import Any, Final

from eosdb.errors import (
    CorruptRecordError,
    InvalidRecordError,
)
from eosdb.model.fetched import FetchedColumns
from eosdb.model.records.record_columns import RecordColumns
from eosdb.model.values import NO_SEQUENCE, Header, RecordBatch
from eosdb.wire import compression
from eosdb.wire.borrowed import (
    CorruptRecordException,
    DefaultRecordBatch,
    DefaultRecordBatchBuilder,
    calc_crc32c,
)
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
_BASE_AND_DELTA: Final = struct.Struct(">q15xi")
"""The base offset and the last offset delta of a batch."""
_MARKER_KEYS: Final = {"ABORT": struct.pack(">hh", 0, 0), "COMMIT": struct.pack(">hh", 0, 1)}
"""The version of the key, and what the marker says."""
_MARKER_VALUE: Final = struct.pack(">hi", 0, 0)
"""Its version, and the epoch of the coordinator, at which no client looks."""


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
    base, length, _, magic, crc, attributes, last_delta, _, _, *producer, count = fields
    if magic != _MAGIC:
        raise InvalidRecordError(f"got a batch of magic {magic}, expected {_MAGIC}")
    if length != len(data) - _BEFORE_LENGTH:
        raise InvalidRecordError(
            f"got {len(data)} bytes and a batch of {length + _BEFORE_LENGTH}, expected exactly one batch"
        )
    if calc_crc32c(memoryview(data)[_ATTRIBUTES:]) != crc:
        raise CorruptRecordError("the batch does not fit its checksum; it was damaged on its way")
    if base != 0:
        raise InvalidRecordError(f"got the base offset {base}, expected 0: the log gives offsets")
    if attributes & _CONTROL:
        raise InvalidRecordError("got a control batch, which only coordinators write")
    if last_delta != count - 1:
        raise InvalidRecordError(
            f"got {count} records and a last offset delta of {last_delta}, expected one for each record"
        )
    codec = attributes & _CODEC
    if codec:
        data = _uncompressed(data, attributes, codec, version, allowance)
    if not 0 < count * _LEAST_RECORD <= len(data) - _HEADER.size:
        raise InvalidRecordError(
            f"got {len(data) - _HEADER.size} bytes of records, the batch says {count} records"
        )
    allowance.records(count)
    producer_id, producer_epoch, base_sequence = producer
    return RecordBatch(
        _columns(data, count), producer_id, producer_epoch, base_sequence,
        bool(attributes & _TRANSACTIONAL), sent_bytes=length + _BEFORE_LENGTH,
    )  # fmt: skip


# decisions/0055: a Fetch has what is stored, and ends where the reading did.
def encode(
    found: FetchedColumns, offset: int, room: int, *, at_least_one: bool
) -> tuple[bytes, int]:
    """What was read from `offset` on, in batches of at most `room` bytes or one record if there must be
    one; and where the reader goes on.

    Records of one producer that followed each other are one batch, whether or not they were sent as one.
    """
    made: list[bytearray] = []
    for begin, end in _runs(found):
        batch = _batch(found, begin, end, max(room, 0))
        if len(batch) > room and (made or not at_least_one):
            return b"".join(made), offset
        made.append(batch)
        room -= len(batch)
        base, last_delta = _BASE_AND_DELTA.unpack_from(batch)
        offset = base + last_delta + 1
        if offset <= found.offsets[end - 1]:
            return b"".join(made), offset
    if offset < found.next_offset:
        # Compaction has removed the end of it, so that nothing else says how far the reading went: a marker
        # of nobody does, which every client goes on behind, and of which no application hears.
        gap = _marker(found.next_offset - 1, _NO_TIMESTAMP, -1, -1, "COMMIT")
        if len(gap) <= room or (at_least_one and not made):
            made.append(gap)
            offset = found.next_offset
    return b"".join(made), offset


def _columns(data: bytes | bytearray | memoryview, count: int) -> RecordColumns:
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
    data: bytes | bytearray | memoryview,
    attributes: int,
    codec: int,
    version: int,
    allowance: Allowance,
) -> bytearray:
    """The batch as if it had been sent uncompressed; nobody looks at its checksum again."""
    head, records = bytes(data[: _HEADER.size]), bytes(data[_HEADER.size :])
    whole = compression.decompress(codec, records, version, allowance, head)
    struct.pack_into(">h", whole, _ATTRIBUTES, attributes & ~_CODEC)
    struct.pack_into(">i", whole, 8, len(whole) - _BEFORE_LENGTH)
    return whole


def _runs(found: FetchedColumns) -> Iterator[tuple[int, int]]:
    """Where records begin and end that a batch can hold together: its header has their producer once, and
    the first sequence."""
    offsets, sequences, end = found.offsets, found.sequences, 0

    def finer(at: int) -> tuple[int, int, int]:
        """What must be the same besides the producer: the time of a batch that the log gave is that of all
        its records, and a marker is alone."""
        return (
            sequences[at] - offsets[at] if sequences[at] >= 0 else 0,
            found.timestamps[at] if found.timestamp_types[at] else 0,
            0 if found.controls[at] is None else offsets[at],
        )

    for _, alike in groupby(
        zip(
            found.producer_ids, found.producer_epochs, found.are_transactional, found.controls,
            found.timestamp_types, strict=True,
        )
    ):  # fmt: skip
        begin, end = end, end + len(list(alike))
        if finer(begin) == finer(end - 1) and not found.timestamp_types[begin]:
            yield begin, end  # Sequences and offsets only rise, so between them it is the same.
        else:
            for _, run in groupby(range(begin, end), finer):
                *_, last = run
                yield begin, last + 1
                begin = last + 1


def _batch(found: FetchedColumns, begin: int, end: int, room: int) -> bytearray:
    """As many of the records as there is room for, but one at least."""
    base, control = found.offsets[begin], found.controls[begin]
    producer = found.producer_ids[begin], found.producer_epochs[begin]
    if control is not None:
        return _marker(base, found.timestamps[begin], *producer, control)
    builder = DefaultRecordBatchBuilder(
        _MAGIC, 0, found.are_transactional[begin], *producer, found.sequences[begin], room
    )
    append = builder.append
    headers: Iterable[Any] = map(list, found.headers[begin:end]) if found.headers else repeat([])
    for offset, timestamp, key, value, header in zip(
        found.offsets[begin:end],
        found.timestamps[begin:end],
        found.keys[begin:end],
        found.values[begin:end],
        headers,
        strict=False,
    ):
        if append(offset - base, timestamp, key, value, header) is None:
            break
    return _placed(builder, base, _LOG_APPEND_TIME * found.timestamp_types[begin])


def _marker(offset: int, timestamp: int, producer_id: int, epoch: int, control: str) -> bytearray:
    builder = DefaultRecordBatchBuilder(_MAGIC, 0, 1, producer_id, epoch, NO_SEQUENCE, 0)
    builder.append(0, timestamp, _MARKER_KEYS[control], _MARKER_VALUE, [])
    return _placed(builder, offset, _CONTROL)


def _placed(builder: DefaultRecordBatchBuilder, base: int, attributes: int) -> bytearray:
    """The batch at its offset, with attributes that only the log gives."""
    made: bytearray = builder.build()
    struct.pack_into(">q", made, 0, base)
    if attributes:
        made[_ATTRIBUTES + 1] |= attributes
        struct.pack_into(">I", made, _CRC, calc_crc32c(memoryview(made)[_ATTRIBUTES:]))
    return made
