"""Decompression of record batches with cramjam, within the limits of a request."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from functools import partial
from typing import Final

import cramjam

from eosdb.errors import InvalidRecordError, UnsupportedCompressionTypeError
from eosdb.wire.borrowed import is_buffer_too_small
from eosdb.wire.limits import Allowance

_ZSTD: Final = 4
_ZSTD_FROM: Final = 7
"""The first version of Produce that allows zstd (KIP-110)."""
_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = 16
_MOST_BLOCKS: Final = 100_000
"""A limit on snappy blocks; Java's are 32 KiB."""


def decompress(
    codec: int, data: bytes, version: int, allowance: Allowance, before: bytes = b""
) -> bytearray:
    """Append the decompressed data to `before`, the batch header, so that no copy is needed to put it
    there.

    Raises InvalidRecordError, MessageTooLargeError, UnsupportedCompressionTypeError.
    """
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
    """Decompress with `into` into a buffer that is enlarged until the output fits, up to the allowance."""
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
            allowance.no_use(size)
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
    """Decompress a raw block, or Java's stream: a magic number, two versions, and blocks preceded by their
    lengths."""
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
