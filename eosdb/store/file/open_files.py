"""Which files an open database uses, so that removing or replacing one is noticed.

SQLite goes on with the files it has open, whatever becomes of their names. A program that opens the name
later works on other files, with other locks, and what either has acknowledged is lost to the other.
"""

from __future__ import annotations

import os
import stat
from typing import Final

from eosdb.errors import StorageError

Identity = tuple[int, int]
"""Device and inode."""
_UNFINISHED: Final = ".eosdb-unfinished"
"""The second name a file has for the instant in which it is made (see new_file.py)."""


class OpenFiles:
    """The database file, its WAL, its shared memory and the lock file, by device and inode.

    `name` is what the file was opened by: with links in it, it must go on leading to the file.
    """

    def __init__(self, path: str, name: str) -> None:
        self._path: Final = path
        self._names: Final = tuple(dict.fromkeys((path, name)))
        self._known: dict[str, Identity] = {}

    def note(self, name: str, identity: Identity | None = None) -> None:
        """From now on this name must keep the file it has, or the one that `identity` names."""
        found = identity or identity_of(name)
        if found is not None:
            self._known[name] = found

    def note_database(self) -> None:
        """Call it once a connection has read, which is when SQLite has the files open. A database file
        noted before must still be the same one."""
        self.check()
        found = identity_of(self._path)
        for name in self._names:
            self.note(name, found)
        for suffix in ("-wal", "-shm"):
            self.note(self._path + suffix)

    def forget_shared(self) -> None:
        """Call it before every connection is closed: SQLite may then remove the WAL and the shared
        memory."""
        for suffix in ("-wal", "-shm"):
            self._known.pop(self._path + suffix, None)

    def remove_orphans(self) -> None:
        """Remove the WAL and the shared memory of a database file that has been removed, once all of the
        WAL has been copied. SQLite leaves them behind, and would read them into the next file of that
        name."""
        if identity_of(self._path) == self._known.get(self._path):
            return
        for suffix in ("-wal", "-shm"):
            name = self._path + suffix
            if name in self._known and identity_of(name) == self._known[name]:
                os.unlink(name)

    # decisions/0056: in each unit, for no notice of the kernel's tells of a folder above that is renamed.
    def check(self) -> None:
        """For who writes: raises StorageError when one of the files has been removed or replaced."""
        for name, known in tuple(self._known.items()):
            self._check(name, known)

    def check_database(self) -> None:
        """For who reads: the same, of the database file alone."""
        for name in self._names:
            if name in self._known:
                self._check(name, self._known[name])

    def are_in_place(self) -> bool:
        """Whether `check` has nothing to say."""
        try:
            self.check()
        except StorageError:
            return False
        return True

    def _check(self, name: str, known: Identity) -> None:
        try:
            found = os.stat(name)
        except OSError:
            raise StorageError(
                f"{name} has been removed while {self._path} was open; nothing was written. Close the "
                "database in every program, which saves what it still can, before you open it again; "
                "never delete or move one of its files, or a folder they are in, while it is open"
            ) from None
        if (found.st_dev, found.st_ino) != known:
            raise StorageError(
                f"{name} has been replaced by another file while {self._path} was open; nothing was "
                "written. Close the database in every program before you open it again; a copy "
                "(`eosdb backup`) is put in place only while nobody has it open"
            )


def identity_of(path: str) -> Identity | None:
    """Device and inode, None when there is no such file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def size_of(path: str) -> int:
    """In bytes, 0 when there is no such file."""
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def check_only_name(path: str) -> None:
    """Raises StorageError for a file with several names: each would have a WAL and locks of its own, so
    that what is acknowledged under one is lost under the other."""
    try:
        status = os.stat(path)
    except OSError:
        return
    names = status.st_nlink if stat.S_ISREG(status.st_mode) else 1
    if names > 1 and (status.st_dev, status.st_ino) == identity_of(path + _UNFINISHED):
        names -= 1
    if names > 1:
        raise StorageError(
            f"{path} has {names} names (hard links); SQLite would keep a WAL and locks for each of them, "
            "and lose what is written under one or the other. Keep one: make a copy with `eosdb backup`, "
            "or a symbolic link, and remove the others"
        )
