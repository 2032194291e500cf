"""Decompression of record batches, never to more than a bound (cramjam)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Final

import cramjam

from eosdb.errors import InvalidRecordError, MessageTooLargeError, UnsupportedCompressionTypeError

LARGEST: Final = 104_857_600
"""The most bytes that a batch may have: as many as a request."""
_ZSTD: Final = 4
_ZSTD_FROM: Final = 7
"""The version of Produce from which on there is zstd (KIP-110)."""
_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = 16


def decompress(codec: int, data: bytes, version: int) -> bytes:
    """Raises InvalidRecordError, MessageTooLargeError, UnsupportedCompressionTypeError."""
    if codec not in _CODECS or (codec == _ZSTD and version < _ZSTD_FROM):
        raise UnsupportedCompressionTypeError(
            f"got compression type {codec} in Produce version {version}"
        )
    try:
        return _CODECS[codec](data)
    except (cramjam.DecompressionError, zlib.error, struct.error) as error:
        raise InvalidRecordError(f"the batch cannot be decompressed: {error}") from error


def _within(into: Callable[[bytes, bytearray], int], data: bytes) -> bytes:
    """What `into` writes to a buffer that grows to the bound at most."""
    room = min(4 * len(data) + 65_536, LARGEST)
    while True:
        buffer = bytearray(room)
        try:
            return bytes(memoryview(buffer)[: into(data, buffer)])
        except cramjam.DecompressionError as error:
            # The one message of all its codecs for a buffer that is too small.
            if "failed to write whole buffer" not in str(error):
                raise
            if room == LARGEST:
                raise _too_large() from None
        room = min(room * 8, LARGEST)


def _gzip(data: bytes) -> bytes:
    inflate = zlib.decompressobj(wbits=31)
    out = inflate.decompress(data, LARGEST)
    if inflate.unconsumed_tail:
        raise _too_large()
    if not inflate.eof:
        raise InvalidRecordError("the batch cannot be decompressed: its gzip stream ends early")
    return out


def _snappy(data: bytes) -> bytes:
    """One block, or the blocks of Java's stream: a magic, two versions, and each block after its length."""
    if not data.startswith(_XERIAL):
        return _snappy_block(data)
    parts, at, size = [], _XERIAL_HEADER, 0
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        at += 4
        parts.append(_snappy_block(data[at : at + length]))
        at += length
        size += len(parts[-1])
        if size > LARGEST:
            raise _too_large()
    return b"".join(parts)


def _snappy_block(data: bytes) -> bytes:
    size = cramjam.snappy.decompress_raw_len(data)
    if size > LARGEST:
        raise _too_large()
    buffer = bytearray(size)
    return bytes(memoryview(buffer)[: cramjam.snappy.decompress_raw_into(data, buffer)])


def _too_large() -> MessageTooLargeError:
    return MessageTooLargeError(f"the batch has more than {LARGEST} bytes when it is decompressed")


_CODECS: Final[dict[int, Callable[[bytes], bytes]]] = {
    1: _gzip,
    2: _snappy,
    3: lambda data: _within(cramjam.lz4.decompress_into, data),
    _ZSTD: lambda data: _within(cramjam.zstd.decompress_into, data),
}
