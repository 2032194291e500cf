"""Renews the WAL after a failed sync: its content is written and synced again, and read back from the
disk.

After a failed fsync Linux considers the pages clean, so the next sync covers only later writes. A power
cut would then lose the earlier part of the WAL, and all frames after it. So nothing is written until the
renewal has succeeded (decisions/0017). The bytes do not change, so readers are not affected.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator
from itertools import islice
from typing import Final

from eosdb.errors import CorruptDatabaseError, StorageError
from eosdb.store.wal import index as wal_index
from eosdb.system.road import road

_HEADER: Final = struct.Struct(">8I")
"""The WAL's header: magic, format, page size, checkpoint, two salts, two checksums."""
_FRAME: Final = struct.Struct(">6I")
"""A frame's header: page, size after commit, two salts, two checksums."""
_BIG_ENDIAN_SUMS: Final = 0x377F0683
_WORD_MASK: Final = 0xFFFFFFFF
_CHUNK: Final = 1024 * 1024


def renew(path: str) -> None:
    """Make the whole WAL of the database at `path` durable. The caller holds the writer mutex and
    SQLite's lock. Raises StorageError if the disk still fails, and CorruptDatabaseError if the system has
    dropped pages before it wrote them."""
    wal = f"{path}-wal"
    try:
        descriptor = os.open(wal, os.O_RDWR | os.O_CLOEXEC)
        try:
            _check_whole(descriptor, path)
            _write_anew(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StorageError(
            f"{path}: the disk has failed to sync what was stored ({error.strerror}), so nothing more is "
            "written. All of it can be read, but might not survive a power cut. Check the disk (the "
            "system's log says more, such as `dmesg`) and try again, or make a copy on another one "
            "(`eosdb backup`)"
        ) from error


def _write_anew(descriptor: int) -> None:
    """Rewrite every page, which makes it dirty again, sync, and read it back from the disk."""
    size, at, written = os.fstat(descriptor).st_size, 0, hashlib.sha256()
    while at < size:
        data = os.pread(descriptor, _CHUNK, at)
        written.update(data)
        if os.pwrite(descriptor, data, at) != len(data):
            raise OSError(0, "a write came out short")
        at += len(data)
    road.sync(descriptor)
    road.drop_cached(descriptor)
    read, at = hashlib.sha256(), 0
    while at < size:
        data = os.pread(descriptor, _CHUNK, at)
        if not data:
            break
        read.update(data)
        at += len(data)
    if read.digest() != written.digest():
        raise OSError(0, "what was read back is not what was written")


def _check_whole(descriptor: int, path: str) -> None:
    """Check that the valid frames are unchanged: the system may have dropped "clean" pages and read old
    ones from the disk."""
    index = wal_index.read(path)
    if index is None:
        raise StorageError(f"{path}-shm is not in memory, so what the WAL holds cannot be checked")
    if index.frames == 0:
        return
    last = next(islice(_valid_frames(descriptor, index.salts), index.frames - 1, None), None)
    if last != index.sums:
        raise CorruptDatabaseError(
            f"{path}: the disk has failed to sync what was stored, and the system no longer has it; "
            "restore a backup, or open the file after every program has closed it: what was stored last "
            "is missing from it"
        )


def _valid_frames(descriptor: int, salts: bytes) -> Iterator[tuple[int, int]]:
    """Yield the checksum after each frame while it is right: each covers everything before it."""
    header = os.pread(descriptor, _HEADER.size, 0)
    if len(header) < _HEADER.size or header[16:24] != salts:
        return
    magic, _, page_size, *_ = _HEADER.unpack(header)
    order = ">" if magic == _BIG_ENDIAN_SUMS else "<"
    sums = _sums(header[:24], order, (0, 0))
    if sums != _HEADER.unpack(header)[6:]:
        return
    at, length = _HEADER.size, _FRAME.size + page_size
    while len(frame := os.pread(descriptor, length, at)) == length:
        sums = _sums(frame[:8] + frame[_FRAME.size :], order, sums)
        if frame[8:16] != salts or sums != _FRAME.unpack_from(frame)[4:]:
            return
        yield sums
        at += length


def _sums(data: bytes, order: str, before: tuple[int, int]) -> tuple[int, int]:
    first, second = before
    for one, two in struct.iter_unpack(f"{order}2I", data):
        first = (first + one + second) & _WORD_MASK
        second = (second + two + first) & _WORD_MASK
    return first, second
