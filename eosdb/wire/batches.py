"""Record batches (magic 2) as bytes: from a producer's batch to columns, and from columns to batches.

aiokafka's C codec reads and writes the records, cramjam compresses (decisions/0027). Batches are stored
decoded, so a compressed one is served uncompressed.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby, repeat
from operator import sub
from typing import Any, Final

import cramjam

from eosdb.errors import CorruptRecordError, InvalidRecordError, UnsupportedCompressionTypeError
from eosdb.model.fetched import Block, LeaderEpochs, StoredRows
from eosdb.model.records.record_columns import RecordColumns
from eosdb.model.values import NO_SEQUENCE, Header, RecordBatch
from eosdb.wire.borrowed import (
    CorruptRecordException,
    DefaultRecordBatch,
    DefaultRecordBatchBuilder,
    calc_crc32c,
    is_buffer_too_small,
)
from eosdb.wire.limits import Allowance

_ZSTD: Final = 4
_ZSTD_FROM: Final = 7
"""The first version of Produce that allows zstd (KIP-110)."""
_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = 16
_MOST_BLOCKS: Final = 100_000
"""The most blocks of a snappy stream. Java's blocks have 32 KiB."""


def decompress(
    codec: int, data: bytes, version: int, allowance: Allowance, before: bytes = b""
) -> bytearray:
    """Decompress `data` behind `before`, the batch header; the common buffer saves a copy. Raises
    InvalidRecordError, MessageTooLargeError, UnsupportedCompressionTypeError."""
    if codec not in _CODECS or (codec == _ZSTD and version < _ZSTD_FROM):
        raise UnsupportedCompressionTypeError(
            f"got compression type {codec} in Produce version {version}"
        )
    try:
        return _CODECS[codec](data, allowance, bytearray(before))
    except (cramjam.DecompressionError, zlib.error, struct.error) as error:
        raise InvalidRecordError(f"the batch cannot be decompressed: {error}") from error


def _within(
    into: Callable[[bytes, memoryview], int], data: bytes, allowance: Allowance, out: bytearray
) -> bytearray:
    """Decompress with `into` into a buffer that grows, within the allowance, until the output fits."""
    size, begin = 4 * len(data) + 65_536, len(out)
    while True:
        size = min(size, allowance.bytes_left)
        allowance.buffer(size)
        out += bytes(begin + size - len(out))
        try:
            with memoryview(out) as whole, whole[begin:] as buffer:
                written = into(data, buffer)
        except cramjam.DecompressionError as error:
            del out[begin:]
            allowance.found(0, size)
            if not is_buffer_too_small(error):
                raise
            if size == allowance.bytes_left:
                allowance.decompressed(size + 1)
        else:
            del out[begin + written :]
            allowance.found(written, size)
            return out
        size *= 8


def _gzip(data: bytes, allowance: Allowance, out: bytearray) -> bytearray:
    inflate = zlib.decompressobj(wbits=31)
    piece = max(len(data), 65_536)
    while data and not inflate.eof:
        inflated = inflate.decompress(data, min(piece, allowance.bytes_left + 1))
        allowance.decompressed(len(inflated))
        out += inflated
        data = inflate.unconsumed_tail
    if not inflate.eof:
        raise InvalidRecordError("the batch cannot be decompressed: its gzip stream ends early")
    return out


def _snappy(data: bytes, allowance: Allowance, out: bytearray) -> bytearray:
    """Decompress a raw block, or Java's stream: a magic number, two versions, and blocks preceded by
    their lengths."""
    if not data.startswith(_XERIAL):
        return _snappy_block(data, allowance, out)
    at, blocks = _XERIAL_HEADER, 0
    while at < len(data):
        blocks += 1
        if blocks > _MOST_BLOCKS:
            raise InvalidRecordError(f"the batch has more than {_MOST_BLOCKS} blocks of snappy")
        (length,) = struct.unpack_from(">I", data, at)
        at += 4
        _snappy_block(data[at : at + length], allowance, out)
        at += length
    return out


def _snappy_block(data: bytes, allowance: Allowance, out: bytearray) -> bytearray:
    allowance.decompressed(size := cramjam.snappy.decompress_raw_len(data))
    begin = len(out)
    out += bytes(size)
    with memoryview(out) as whole, whole[begin:] as buffer:
        written = cramjam.snappy.decompress_raw_into(data, buffer)
    del out[begin + written :]
    return out


_CODECS: Final[dict[int, Callable[[bytes, Allowance, bytearray], bytearray]]] = {
    1: _gzip,
    2: _snappy,
    3: partial(_within, cramjam.lz4.decompress_into),
    _ZSTD: partial(_within, cramjam.zstd.decompress_into),
}


_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
"""The fields of a batch's header: base offset, length, leader epoch, magic, CRC, attributes, last offset
delta, base timestamp, max timestamp, producer id, producer epoch, base sequence, count of records."""
_BEFORE_LENGTH: Final = 12
_ATTRIBUTES: Final = 21
"""The offset from which the CRC covers the batch."""
_CRC: Final = _ATTRIBUTES - 4
_MAGIC: Final = 2
_CODEC: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_LEAST_RECORD: Final = 7
"""The size of a record without key, value and headers."""
_NO_TIMESTAMP: Final = -1
_PLACE: Final = struct.Struct(">qi11xi")
"""The base offset, length and last offset delta of a batch."""
_MARKER_KEYS: Final = {"ABORT": struct.pack(">hh", 0, 0), "COMMIT": struct.pack(">hh", 0, 1)}
"""Keys of markers: the version of the key, and the type of the marker."""
_MARKER_VALUE: Final = struct.pack(">hi", 0, 0)
"""The value of a marker: its version, and the coordinator epoch, which no client reads."""


def decode(data: object, version: int, allowance: Allowance) -> RecordBatch:
    """Decode the only batch that a Produce request of `version` may have for a partition, within
    `allowance`. Raises CorruptRecordError for damaged or truncated bytes, InvalidRecordError for a batch
    that producers may not send, UnsupportedCompressionTypeError (Kafka: LogValidator, ProduceRequest), and
    MessageTooLargeError for too many records or bytes."""
    if not isinstance(data, bytes | bytearray | memoryview) or len(data) < _HEADER.size:
        raise InvalidRecordError("got no whole record batch, expected exactly one")
    fields = _HEADER.unpack_from(data)
    base, length, _, magic, crc, attributes, last_delta, _, _, *producer, count = fields
    if magic != _MAGIC:
        kind = CorruptRecordError if magic > _MAGIC else InvalidRecordError
        raise kind(f"got a batch of magic {magic}, expected {_MAGIC}")
    if length != len(data) - _BEFORE_LENGTH:
        raise InvalidRecordError(
            f"got {len(data)} bytes for a batch of {length + _BEFORE_LENGTH}, expected exactly one batch"
        )
    if calc_crc32c(memoryview(data)[_ATTRIBUTES:]) != crc:
        raise CorruptRecordError("the batch does not match its CRC; it was damaged in transit")
    if base != 0:
        raise InvalidRecordError(f"got base offset {base}, expected 0; the log assigns offsets")
    if attributes & _CONTROL:
        raise InvalidRecordError("got a control batch, which only coordinators write")
    if last_delta != count - 1:
        raise InvalidRecordError(
            f"got {count} records and last offset delta {last_delta}, expected delta {count - 1}"
        )
    codec = attributes & _CODEC
    if codec:
        data = _uncompressed(data, attributes, codec, version, allowance)
    if not 0 < count * _LEAST_RECORD <= len(data) - _HEADER.size:
        raise InvalidRecordError(
            f"got {len(data) - _HEADER.size} bytes of records, too few for {count} records"
        )
    allowance.records(count)
    producer_id, producer_epoch, base_sequence = producer
    return RecordBatch(
        _columns(data, count), producer_id, producer_epoch, base_sequence,
        bool(attributes & _TRANSACTIONAL), sent_bytes=length + _BEFORE_LENGTH,
    )  # fmt: skip


# decisions/0055: a Fetch returns all stored records, markers and aborted records included.
def encode(block: Block, room: int, *, at_least_one: bool) -> tuple[bytes | bytearray, int]:
    """Encode fetched records as batches of at most `room` bytes, or as one record if `at_least_one`; also
    returns the next fetch offset. Consecutive records of a producer form one batch, even if they were sent
    in several."""
    rows, offset = block.rows, block.start
    if block.batches is not None:  # The accelerator has encoded them already (decisions/0067).
        if len(block.batches) > room and not at_least_one:
            return b"", offset
        return block.batches, _set_checksums(block.batches)
    batches: list[bytearray] = []
    for begin, end in _runs(rows):
        batch = _batch(rows, begin, end, max(room, 0))
        if len(batch) > room and (batches or not at_least_one):
            return b"".join(batches), offset
        batches.append(batch)
        room -= len(batch)
        base, _, last_delta = _PLACE.unpack_from(batch)
        offset = base + last_delta + 1
        if offset <= rows.offset[end - 1]:
            return b"".join(batches), offset
    if offset < block.stop:
        # Compaction removed the last records, so the batches do not show the next offset. A marker without
        # a producer shows it: every client continues after it, and no application sees it.
        gap = _marker(block.stop - 1, _NO_TIMESTAMP, -1, -1, "COMMIT")
        if len(gap) <= room or (at_least_one and not batches):
            batches.append(gap)
            offset = block.stop
    return b"".join(batches), offset


def with_epochs(data: bytes | bytearray, epochs: LeaderEpochs) -> bytearray:
    """Set the leader epoch of each batch: that of its last record, because clients go on behind it. The CRC
    does not cover it."""
    out, end = bytearray(data), 0
    while end < len(out):
        base, length, last_delta = _PLACE.unpack_from(out, end)
        struct.pack_into(">i", out, end + _BEFORE_LENGTH, epochs.at(base + last_delta))
        end += _BEFORE_LENGTH + length
    return out


def _set_checksums(batches: bytearray) -> int:
    """Set the checksum of each batch; returns the offset after the last one."""
    end = offset = 0
    with memoryview(batches) as view:
        while end < len(batches):
            begin = end
            base, length, last_delta = _PLACE.unpack_from(batches, begin)
            offset, end = base + last_delta + 1, begin + _BEFORE_LENGTH + length
            struct.pack_into(
                ">I", batches, begin + _CRC, calc_crc32c(view[begin + _ATTRIBUTES : end])
            )
    return offset


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
    """Rebuild the batch as if it had been sent uncompressed. Its CRC, already checked, is not updated."""
    head, records = bytes(data[: _HEADER.size]), bytes(data[_HEADER.size :])
    whole = decompress(codec, records, version, allowance, head)
    struct.pack_into(">h", whole, _ATTRIBUTES, attributes & ~_CODEC)
    struct.pack_into(">i", whole, 8, len(whole) - _BEFORE_LENGTH)
    return whole


def _runs(rows: StoredRows) -> Iterator[tuple[int, int]]:
    """Yield ranges of records that fit into one batch, whose header has one producer and base sequence."""
    offsets, sequences, end = rows.offset, rows.sequence, 0

    def finer(at: int) -> tuple[int, int, int]:
        """The other values that must be equal within a batch: LogAppendTime batches have one timestamp, and
        a marker is a batch of its own."""
        return (
            sequences[at] - offsets[at] if sequences[at] >= 0 else 0,
            rows.timestamp[at] if rows.timestamp_type[at] else 0,
            0 if rows.control[at] is None else offsets[at],
        )

    for _, alike in groupby(
        zip(
            rows.producer_id, rows.producer_epoch, rows.is_transactional, rows.control,
            rows.timestamp_type, strict=True,
        )
    ):  # fmt: skip
        begin, end = end, end + len(list(alike))
        steps = set(map(sub, sequences[begin:end], offsets[begin:end]))
        if (
            (len(steps) == 1 or set(sequences[begin:end]) == {NO_SEQUENCE})
            and finer(begin) == finer(end - 1)
            and not rows.timestamp_type[begin]
        ):
            yield begin, end  # `set` and `map` handle most batches without a Python loop.
        else:
            for _, run in groupby(range(begin, end), finer):
                *_, last = run
                yield begin, last + 1
                begin = last + 1


def _batch(rows: StoredRows, begin: int, end: int, room: int) -> bytearray:
    base, control = rows.offset[begin], rows.control[begin]
    producer = rows.producer_id[begin], rows.producer_epoch[begin]
    if control is not None:
        return _marker(base, rows.timestamp[begin], *producer, control)
    builder = DefaultRecordBatchBuilder(
        _MAGIC, 0, rows.is_transactional[begin], *producer, rows.sequence[begin], room
    )
    append = builder.append
    headers: Iterable[Any] = map(list, rows.headers[begin:end]) if rows.headers else repeat([])
    for offset, timestamp, key, value, header in zip(
        rows.offset[begin:end],
        rows.timestamp[begin:end],
        rows.key[begin:end],
        rows.value[begin:end],
        headers,
        strict=False,
    ):
        if append(offset - base, timestamp, key, value, header) is None:
            break
    return _placed(builder, base, _LOG_APPEND_TIME * rows.timestamp_type[begin])


def _marker(offset: int, timestamp: int, producer_id: int, epoch: int, control: str) -> bytearray:
    builder = DefaultRecordBatchBuilder(_MAGIC, 0, 1, producer_id, epoch, NO_SEQUENCE, 0)
    builder.append(0, timestamp, _MARKER_KEYS[control], _MARKER_VALUE, [])
    return _placed(builder, offset, _CONTROL)


def _placed(builder: DefaultRecordBatchBuilder, base: int, attributes: int) -> bytearray:
    """Build the batch at its base offset, with the attributes that only the log sets."""
    batch: bytearray = builder.build()
    struct.pack_into(">q", batch, 0, base)
    struct.pack_into(">i", batch, _BEFORE_LENGTH, 0)  # The epoch of the first life.
    if attributes:
        batch[_ATTRIBUTES + 1] |= attributes
        struct.pack_into(">I", batch, _CRC, calc_crc32c(memoryview(batch)[_ATTRIBUTES:]))
    return batch
