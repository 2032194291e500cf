"""SQLite's write-ahead log: its state in shared memory, the readers that make it grow, and its renewal.

A snapshot reads the WAL up to its start. Until the snapshot ends, no later page can be copied into the
file, and every write makes the WAL grow.

After a failed fsync Linux considers the pages clean, so the next sync covers only later writes. A power cut
would then lose the earlier part of the WAL, and all frames after it. So eosdb first writes and syncs the
WAL again, and reads it back from the disk (decisions/0017). The bytes do not change, so readers are not
affected.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from eosdb.errors import CorruptDatabaseError, StorageError
from eosdb.model.notices import catalog
from eosdb.model.notices.notice import Untold
from eosdb.store.file import failures
from eosdb.store.file.connection import WAL_LIMIT_BYTES
from eosdb.system.descriptors import descriptor_of
from eosdb.system.road import road

_LAYOUT: Final = struct.Struct("=3I2xH4I2I 2I 48x I5I")
"""Version, unused, change counter, page size (after flags); newest frame, pages, two checksums; two
salts; two checksums; a copy of all this; newest copied frame; the last frame for the readers of each of
five marks."""
_FIRST_READER_BYTE: Final = 123
"""Readers of the first of the five marks lock this byte; the others' bytes follow."""


class WalIndex(NamedTuple):
    """The WAL's index in shared memory: the frames in the WAL, and the frames that readers use."""

    frames: int
    sums: tuple[int, int]
    salts: bytes
    copied: int
    """The frames that are also in the file."""
    read_marks: tuple[int, ...]
    page_size: int

    def readers_up_to(self, frame: int) -> list[int]:
        """Return the lock bytes, in the shared memory, of readers whose snapshot ends at this frame or an
        earlier one."""
        marks = enumerate(self.read_marks, _FIRST_READER_BYTE)
        return [byte for byte, mark in marks if mark <= frame]


def read_index(path: str) -> WalIndex | None:
    """Return the WAL index; None if this process does not have the database open."""
    content = b""
    with contextlib.suppress(OSError):
        descriptor = descriptor_of(f"{path}-shm")
        content = b"" if descriptor is None else os.pread(descriptor, _LAYOUT.size, 0)
    if len(content) < _LAYOUT.size:
        return None
    values = _LAYOUT.unpack(content)
    salts = struct.pack("=2I", *values[8:10])
    # The page size has two bytes, where 1 means 65,536.
    page_size = (values[3] & 0xFE00) + ((values[3] & 1) << 16)
    return WalIndex(values[4], (values[6], values[7]), salts, values[12], values[13:], page_size)


_MIB: Final = 1024 * 1024


class Checkpoint(NamedTuple):
    """The size of the WAL at a checkpoint, and how much of it is now in the file."""

    wal_bytes: int
    copied_bytes: int

    @property
    def is_whole(self) -> bool:
        """Whether the whole WAL is in the file. Then the next write starts the WAL again, unless a reader
        uses it."""
        return self.copied_bytes == self.wal_bytes

    def added_since(self, before: Checkpoint) -> int:
        begun_anew = before.is_whole or self.wal_bytes < before.wal_bytes
        return self.wal_bytes if begun_anew else self.wal_bytes - before.wal_bytes


class WalGrowth:
    """Warns of a stalled reader when the WAL exceeds its limit, and at each doubling."""

    def __init__(self, path: str, untold: Untold) -> None:
        self._path = path
        self._untold = untold
        self._limit = WAL_LIMIT_BYTES

    def look(self, checkpoint: Checkpoint, repeat: Callable[[], Checkpoint]) -> None:
        """Add a warning if the WAL is too large after this checkpoint; `repeat` runs another one."""
        if checkpoint.wal_bytes < WAL_LIMIT_BYTES:
            self._limit = WAL_LIMIT_BYTES
        if checkpoint.wal_bytes < self._limit or checkpoint.is_whole:
            return
        who = readers(self._path, only_oldest=True)
        if not who:  # The readers have ended, or the system hides them.
            checkpoint = repeat()
            if checkpoint.is_whole:
                return
            who = readers(self._path, only_oldest=True) or failures.UNSEEN
        self._limit = 2 * checkpoint.wal_bytes
        self._untold.add(
            catalog.WAL_GROWS,
            file=self._path,
            wal_bytes=checkpoint.wal_bytes,
            wal_mib=checkpoint.wal_bytes // _MIB,
            snapshot_mib=(checkpoint.wal_bytes - checkpoint.copied_bytes) // _MIB,
            readers=who,
        )

    def look_at_others(self, index: WalIndex | None) -> None:
        """Warn of a growing WAL where another program makes the checkpoints. Call it regularly."""
        left = 0 if index is None else max(index.frames - index.copied, 0) * index.page_size
        if left < WAL_LIMIT_BYTES:
            self._limit = WAL_LIMIT_BYTES
        if left < self._limit:
            return
        self._limit = 2 * left
        self._untold.add(
            catalog.WAL_NOT_COPIED, file=self._path, wal_bytes=left, wal_mib=left // _MIB
        )


def readers(path: str, *, only_oldest: bool = False) -> str:
    """Describe the processes whose snapshots keep the WAL from shrinking. This process must have the
    database open."""
    index = read_index(path)
    if index is None:
        return ""
    locked = index.readers_up_to(index.copied if only_oldest else index.frames)
    return failures.describe_holders(f"{path}-shm", locked)


_HEADER: Final = struct.Struct(">8I")
"""The WAL's header: magic, format, page size, checkpoint, two salts, two checksums."""
_FRAME: Final = struct.Struct(">6I")
"""A frame's header: page, size after commit, two salts, two checksums."""
_BIG_ENDIAN_SUMS: Final = 0x377F0683
_WORD_MASK: Final = 0xFFFFFFFF
_CHUNK: Final = 1024 * 1024


def renew(path: str) -> None:
    """Make the whole WAL of the database at `path` durable. The caller holds the writer mutex and SQLite's
    lock. Raises StorageError if the disk still fails, and CorruptDatabaseError if pages were lost."""
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
            f"{path}: the disk failed to sync earlier commits ({error.strerror}), so no more is written. "
            "They can be read, but may not survive a power cut. Check the disk (see the system's log, such "
            "as `dmesg`) and try again, or make a copy on another disk (`eosdb backup`)"
        ) from error


def _write_anew(descriptor: int) -> None:
    """Rewrite every page, so that the system considers it dirty; sync; compare with what the disk has."""
    size, at, written = os.fstat(descriptor).st_size, 0, hashlib.sha256()
    while at < size:
        data = os.pread(descriptor, _CHUNK, at)
        written.update(data)
        if os.pwrite(descriptor, data, at) != len(data):
            raise OSError(0, "only a part was written")
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
        raise OSError(0, "the disk returned other data than had been written")


def _check_whole(descriptor: int, path: str) -> None:
    """Check that all committed frames are still valid: the system may have dropped "clean" pages, and then
    read older ones from the disk."""
    index = read_index(path)
    if index is None:
        raise StorageError(f"{path}-shm is not in memory, so the WAL cannot be checked")
    if index.frames == 0:
        return
    last = next(islice(_valid_frames(descriptor, index.salts), index.frames - 1, None), None)
    if last != index.sums:
        raise CorruptDatabaseError(
            f"{path}: the disk failed to sync the last commits, and they are lost. Restore a backup, or "
            "close the file in every program and open it without these commits"
        )


def _valid_frames(descriptor: int, salts: bytes) -> Iterator[tuple[int, int]]:
    """Yield each frame's checksum, which covers all frames before it; stop at the first wrong one."""
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
