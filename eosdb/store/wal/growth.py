"""Finds the readers that keep the WAL from being reused, and warns about them.

A snapshot needs the WAL from its start on. Until it ends, no later page can be copied into the file, and
every write makes the WAL grow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from eosdb.model.notices import catalog
from eosdb.model.notices.notice import Untold
from eosdb.store.file import lock_holder
from eosdb.store.file.connection import WAL_LIMIT_BYTES
from eosdb.store.wal import index as wal_index

_MIB: Final = 1024 * 1024


class Checkpoint(NamedTuple):
    """The size of the WAL at a checkpoint, and how much of it is now in the file."""

    wal_bytes: int
    copied_bytes: int

    @property
    def is_whole(self) -> bool:
        """Whether the whole WAL is in the file. Then the next write reuses it, unless a reader uses it at
        that moment."""
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
        """Process the result of a checkpoint; `repeat` runs another."""
        if checkpoint.wal_bytes < WAL_LIMIT_BYTES:
            self._limit = WAL_LIMIT_BYTES
        if checkpoint.wal_bytes < self._limit or checkpoint.is_whole:
            return
        readers = _describe_readers(self._path, only_oldest=True)
        if not readers:  # The readers have ended since, or cannot be seen.
            checkpoint = repeat()
            if checkpoint.is_whole:
                return
            readers = _describe_readers(self._path, only_oldest=True) or lock_holder.UNSEEN
        self._limit = 2 * checkpoint.wal_bytes
        self._untold.add(
            catalog.WAL_GROWS,
            file=self._path,
            wal_bytes=checkpoint.wal_bytes,
            wal_mib=checkpoint.wal_bytes // _MIB,
            snapshot_mib=(checkpoint.wal_bytes - checkpoint.copied_bytes) // _MIB,
            readers=readers,
        )

    def look_at_others(self, index: wal_index.WalIndex | None) -> None:
        """Check the WAL where another program makes the checkpoints; call it regularly."""
        left = 0 if index is None else max(index.frames - index.copied, 0) * index.page_size
        if left < WAL_LIMIT_BYTES:
            self._limit = WAL_LIMIT_BYTES
        if left < self._limit:
            return
        self._limit = 2 * left
        self._untold.add(
            catalog.WAL_NOT_COPIED, file=self._path, wal_bytes=left, wal_mib=left // _MIB
        )


def readers(path: str) -> str:
    """Return the processes that read a snapshot of the database, which this process has open. The WAL
    shrinks after their snapshots end."""
    return _describe_readers(path, only_oldest=False)


def _describe_readers(path: str, *, only_oldest: bool) -> str:
    index = wal_index.read(path)
    if index is None:
        return ""
    locked = index.readers_up_to(index.copied if only_oldest else index.frames)
    return lock_holder.describe_holders(f"{path}-shm", locked)
