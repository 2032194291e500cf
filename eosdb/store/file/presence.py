"""Shows other processes that this one has a database open, whatever else the program does to the file.

SQLite's POSIX locks belong to the process, and any `close` of the file drops them: after a checksum, or
`shutil.copytree`. Another client then takes itself for the last one and removes the WAL. So eosdb's
connections have the same bytes locked once more, with a lock that only its own `close` drops
(decisions/0061).
"""

from __future__ import annotations

import os
import sqlite3
import weakref
from typing import Final

from eosdb.store.file.open_files import Identity, identity_of
from eosdb.system.descriptors import open_files
from eosdb.system.road import SharedLock, road

FORMAT_AT: Final = slice(18, 20)
WAL_FORMAT: Final = b"\x02\x02"
"""The read and write version of SQLite's file format; 2 stands for WAL mode."""
_LOCKED: Final = (("", 0x4000_0002, 510), ("-shm", 128, 1))
"""The bytes that every connection in WAL mode has locked, shared: in the file, and in the shared memory,
which a first connection would empty."""
_WRITE_LOCK: Final = 120
"""The byte of the shared memory that SQLite has locked from BEGIN IMMEDIATE to COMMIT."""
_COMMITS: Final = (4, 8)
"""Length and place of the shared memory's counter of commits (SQLite's WalIndexHdr.iChange)."""


class _Held:
    """The lock of one file, and the connections that need it."""

    def __init__(self, identity: Identity, lock: SharedLock) -> None:
        self.identity: Final = identity
        self.lock: Final = lock
        self._users: Final[set[weakref.ref[PresentConnection]]] = set()
        self.is_left = False
        """Whether the file is being closed."""

    def enter(self, user: PresentConnection) -> None:
        self._users.difference_update([other for other in list(self._users) if other() is None])
        self._users.add(weakref.ref(user))
        self._settle()

    def leave(self, user: PresentConnection) -> None:
        self._users.discard(weakref.ref(user))
        self._settle()

    def is_used(self) -> bool:
        """A connection that was never closed counts until the collector has freed it. No finalizer tells:
        a signal's exception in one would be lost."""
        return any(user() is not None for user in list(self._users))

    def _settle(self) -> None:
        """Lock the file if it has users, even if another thread has just added or removed one."""
        try:
            if not self.is_used():
                self.lock.unlock()
            if self.is_used():
                self.lock.lock()
        except (OSError, ValueError):  # A ValueError in a forked child, which has closed the file.
            pass


_all: Final[list[_Held]] = []


class PresentConnection(sqlite3.Connection):
    """A connection whose files stay locked until it is closed. The last one unlocks them first: SQLite then
    excludes all others, and removes the WAL."""

    present: tuple[_Held, ...] = ()
    _memory: SharedLock | None = None
    _commits = b""

    def close(self) -> None:
        self._leave()
        super().close()
        if not any(held.is_used() for held in self.present):
            close_unused()

    def be_present(self, path: str) -> None:
        """Lock the files of a database in WAL mode. SQLite has locked them before, for a read, so that no
        other process excludes this one."""
        for suffix, first, count in _LOCKED:
            while (held := _find(path + suffix, first, count)) is not None:
                if not (suffix or os.pread(held.lock.fileno(), 2, FORMAT_AT.start) == WAL_FORMAT):
                    return
                self.present = (*self.present, held)
                self._memory = held.lock if suffix else None
                held.enter(self)
                if not held.is_left:
                    break

    def has_begun(self) -> None:
        """Note how many commits there were at BEGIN IMMEDIATE."""
        if self._memory is not None:
            self._commits = os.pread(self._memory.fileno(), *_COMMITS)

    def keep_write_lock(self) -> None:
        """Before COMMIT, take SQLite's write lock again, which may have been dropped. Raises sqlite3.Error
        if another program has it, or has committed: of two commits, one would destroy the other."""
        if self._memory is not None and not (
            self._memory.retake(_WRITE_LOCK)
            and os.pread(self._memory.fileno(), *_COMMITS) == self._commits
        ):
            error = sqlite3.OperationalError("the write lock was lost")
            error.sqlite_errorcode = sqlite3.SQLITE_BUSY_SNAPSHOT
            raise error

    def _leave(self) -> None:
        for held in self.present:
            held.leave(self)


def _find(path: str, first: int, count: int) -> _Held | None:
    identity = identity_of(path)
    for held in list(_all):
        if held.identity == identity and not (held.is_left or held.lock.closed):
            return held
    try:
        lock = road.shared_lock(path, first, count)
    except OSError:
        return None
    if lock is None:
        return None
    status = os.fstat(lock.fileno())
    _all.append(held := _Held((status.st_dev, status.st_ino), lock))
    return held


def close_unused() -> None:
    """Close the files that SQLite has no longer open: an earlier close would drop the POSIX locks of a
    connection that the program has opened itself. Call it again after an interrupt."""
    unused = [held for held in list(_all) if not held.is_used()]
    if not unused:
        return
    mine = {held.lock.fileno() for held in unused if not held.lock.closed}
    in_use = {(file.st_dev, file.st_ino) for number, file in open_files() if number not in mine}
    for held in unused:
        # The mark first, the look for users second; a new user does the reverse.
        held.is_left = held.identity not in in_use
        if held.is_left and not held.is_used():
            held.lock.close()
            if held in _all:
                _all.remove(held)
