"""Reads SQLite's shared memory, which describes the WAL, by SQLite's own descriptor."""

from __future__ import annotations

import contextlib
import os
import struct
from typing import Final, NamedTuple

from eosdb.system.descriptors import descriptor_of

_LAYOUT: Final = struct.Struct("=3I2xH4I2I 2I 48x I5I")
"""Version, unused, change counter, page size (after flags); newest frame, pages, two checksums; two
salts; two checksums; a copy of all this; newest copied frame; the last frame for the readers of each of
five marks."""
_FIRST_READER_BYTE: Final = 123
"""Readers of the first of the five marks lock this byte; the others' bytes follow."""


class WalIndex(NamedTuple):
    """The frames in the WAL, and those that are being read."""

    frames: int
    sums: tuple[int, int]
    salts: bytes
    copied: int
    """The frames that are also in the file."""
    read_marks: tuple[int, ...]
    page_size: int

    def readers_up_to(self, frame: int) -> list[int]:
        """Return the bytes of the shared memory that readers of a snapshot up to this frame or an earlier
        one have locked."""
        marks = enumerate(self.read_marks, _FIRST_READER_BYTE)
        return [byte for byte, mark in marks if mark <= frame]


def read(path: str) -> WalIndex | None:
    """Return the WAL index; None if this process does not have the database open."""
    content = b""
    with contextlib.suppress(OSError):
        descriptor = descriptor_of(f"{path}-shm")
        content = b"" if descriptor is None else os.pread(descriptor, _LAYOUT.size, 0)
    if len(content) < _LAYOUT.size:
        return None
    values = _LAYOUT.unpack(content)
    salts = struct.pack("=2I", *values[8:10])
    # A page size of 65,536 is stored as 1 in two bytes.
    page_size = (values[3] & 0xFE00) + ((values[3] & 1) << 16)
    return WalIndex(values[4], (values[6], values[7]), salts, values[12], values[13:], page_size)
