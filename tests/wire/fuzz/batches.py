"""Record batches: good ones, and ones that were changed inside and have a true checksum all the same."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from random import Random
from typing import Final

import cramjam
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

_HEADER: Final = 61
_CODECS: Final[dict[int, Callable[[bytes], bytes]]] = {
    0: bytes,
    1: gzip.compress,
    2: lambda data: bytes(cramjam.snappy.compress_raw(data)),
    3: lambda data: bytes(cramjam.lz4.compress(data)),
    4: lambda data: bytes(cramjam.zstd.compress(data)),
}
_FIELDS: Final = (
    (0, "q"), (8, "i"), (12, "i"), (16, "b"), (21, "h"), (23, "i"), (27, "q"), (35, "q"), (43, "q"),
    (51, "h"), (53, "i"), (57, "i"),
)  # fmt: skip
"""Where the fields of a header are; the checksum is left out."""


def batch(random: Random) -> bytes:
    """A batch that a producer may have sent, or one that none has."""
    good = _good(random)
    return good if random.random() < 0.5 else changed(random, good)


def changed(random: Random, data: bytes) -> bytes:
    """The same batch with something else in its header or inside it."""
    if len(data) <= _HEADER:
        return data + random.randbytes(3)
    out = bytearray(data)
    codec = out[22] & 7
    what = random.random()
    if what < 0.5 and codec == 0:
        records = mutated(random, bytes(out[_HEADER:]))
        codec = random.choice(list(_CODECS))
        out[22] = out[22] & 0xF8 | codec
        out[_HEADER:] = _CODECS[codec](records)
    elif what < 0.6:
        out[_HEADER:] = mutated(random, bytes(out[_HEADER:]))
    elif what < 0.65:
        bomb = _CODECS[codec](bytes(random.choice((200_000, 20_000_000))))
        out[_HEADER:] = bomb
    if what > 0.4:
        at, form = random.choice(_FIELDS)
        bits = 8 * struct.calcsize(form)
        value = random.choice(
            (-1, 0, 1, 2, 100, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), 16, 32, 48)
        )
        value = max(-(2 ** (bits - 1)), min(value, 2 ** (bits - 1) - 1))
        struct.pack_into(f">{form}", out, at, value)
    if random.random() < 0.95:
        struct.pack_into(">i", out, 8, len(out) - 12)
    if random.random() < 0.95:
        struct.pack_into(">I", out, 17, calc_crc32c(memoryview(out)[21:]))
    return bytes(out)


def mutated(random: Random, data: bytes) -> bytes:
    """A few bytes of it changed, left out, or put in."""
    out = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
        at = random.randint(0, len(out))
        match random.randrange(7):
            case 0 if at < len(out):
                out[at] ^= 1 << random.randrange(8)
            case 1 if at < len(out):
                out[at] = random.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                out[at : at + 4] = random.choice(
                    (b"\x7f\xff\xff\xff", b"\xff" * 4, bytes(4), b"\x80\0\0\0")
                )
            case 3:
                del out[at : at + random.choice((1, 2, 4, 100))]
            case 4:
                out[at:at] = random.randbytes(random.choice((1, 2, 4, 100)))
            case 5:
                out[at:at] = b"\xff" * random.choice((5, 10, 1_000))
            case _:
                begin = random.randint(0, len(out))
                out[at:at] = out[begin : begin + random.choice((1, 8, 64))]
    return bytes(out)


def _good(random: Random) -> bytes:
    codec = random.choice(list(_CODECS))
    producer = random.choice(((-1, -1, -1), (-1, -1, -1), (0, 0, 0), (1, 0, 1), (1000, 3, 7)))
    transactional = random.random() < 0.3
    builder = DefaultRecordBatchBuilder(2, 0, int(transactional), *producer, 2**31 - 1)
    for offset in range(random.choice((1, 1, 2, 5, 50))):
        key, value = (random.choice((None, b"", b"k", random.randbytes(30))) for _ in range(2))
        headers = [("h", random.choice((None, b"", b"v")))] * random.choice((0, 0, 1, 3))
        builder.append(offset, random.choice((-1, 0, 1_700_000_000_000)), key, value, headers)
    out = bytearray(builder.build())
    out[22] |= codec
    out[_HEADER:] = _CODECS[codec](bytes(out[_HEADER:]))
    struct.pack_into(">i", out, 8, len(out) - 12)
    struct.pack_into(">I", out, 17, calc_crc32c(memoryview(out)[21:]))
    return bytes(out)
