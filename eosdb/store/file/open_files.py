"""The files of an open database, so that removing or replacing one of them is noticed.

SQLite keeps using the files it has open, whatever happens to their names. A program that opens the name
later gets other files with other locks, and each loses what the other has acknowledged.
"""

from __future__ import annotations

import os
import stat
from typing import Final

from eosdb.errors import NotAnEosdbFileError, StorageError
from eosdb.system.lock_file import LOCK

Identity = tuple[int, int]
"""Device and inode."""
_BESIDE: Final = ("-wal", "-shm", "-journal", LOCK)
_UNFINISHED: Final = ".eosdb-unfinished"
"""The second name that a file has for a moment while it is created (see new_file.py)."""


class OpenFiles:
    """The database file, its WAL, its shared memory and the lock file, by device and inode. `name` is the
    path used to open the file: if it contains links, they must keep leading to the file."""

    def __init__(self, path: str, name: str) -> None:
        self._path: Final = path
        self._names: Final = tuple(dict.fromkeys((path, name)))
        self._known: dict[str, Identity] = {}

    def note(self, name: str, identity: Identity | None = None) -> None:
        """Record that this name must keep leading to its current file, or to `identity` if given."""
        file = identity or identity_of(name)
        if file is not None:
            self._known[name] = file

    def note_database(self) -> None:
        """Record the database's files. Call it after a connection has read, when SQLite has them open. A
        database file recorded before must be unchanged."""
        self.check()
        file = identity_of(self._path)
        for name in self._names:
            self.note(name, file)
        for suffix in ("-wal", "-shm"):
            self.note(self._path + suffix)

    def forget_shared(self) -> None:
        """Forget the WAL and the shared memory. Call it before all connections are closed, when SQLite
        may remove them."""
        for suffix in ("-wal", "-shm"):
            self._known.pop(self._path + suffix, None)

    def remove_orphans(self) -> None:
        """Remove the WAL and the shared memory of a removed database file, after the whole WAL has been
        copied. SQLite would leave them behind and read them into the next file of that name."""
        if identity_of(self._path) == self._known.get(self._path):
            return
        for suffix in ("-wal", "-shm"):
            name = self._path + suffix
            if name in self._known and identity_of(name) == self._known[name]:
                os.unlink(name)

    # decisions/0056: in each unit, for no notice of the kernel's tells of a folder above that is renamed.
    def check(self) -> None:
        """For writers: raises StorageError if one of the files has been removed or replaced."""
        for name, identity in tuple(self._known.items()):
            self._check(name, identity)

    def check_database(self) -> None:
        """For readers: the same for the database file alone."""
        for name in self._names:
            if name in self._known:
                self._check(name, self._known[name])

    def are_in_place(self) -> bool:
        """Whether `check` would not raise."""
        try:
            self.check()
        except StorageError:
            return False
        return True

    def _check(self, name: str, identity: Identity) -> None:
        try:
            status = os.stat(name)
        except OSError:
            raise StorageError(
                f"{name} has been removed while {self._path} was open; nothing was written. Close the "
                "database in every program, which saves what it still can, before you open it again; "
                "never delete or move one of its files, or a folder they are in, while it is open"
            ) from None
        if (status.st_dev, status.st_ino) != identity:
            raise StorageError(
                f"{name} has been replaced by another file while {self._path} was open; nothing was "
                "written. Close the database in every program before you open it again; a copy "
                "(`eosdb backup`) is put in place only while nobody has it open"
            )


def identity_of(path: str) -> Identity | None:
    """Return device and inode; None if there is no such file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def size_of(path: str) -> int:
    """Return the size in bytes; 0 if there is no such file."""
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def check_only_name(path: str) -> None:
    """Raises StorageError for a file with several names (hard links): under each it would have a separate
    WAL and separate locks, and commits under one name would be lost under the other. Raises it, too, for
    a link at the name of a file beside it: SQLite would write what it leads to. Raises NotAnEosdbFileError
    for a device, a pipe or a socket."""
    for beside in _BESIDE:
        if os.path.islink(path + beside):
            raise StorageError(
                f"{path}{beside} is a symbolic link, which eosdb never makes; what it leads to would be "
                "overwritten; remove the link, and see who may write to the folder"
            )
    try:
        status = os.stat(path)
    except OSError:
        return
    is_regular = stat.S_ISREG(status.st_mode)
    if not is_regular and not stat.S_ISDIR(status.st_mode):
        raise NotAnEosdbFileError(
            f"{path} is a device, a pipe or a socket, expected a regular file; name another path"
        )
    names = status.st_nlink if is_regular else 1
    if names > 1 and (status.st_dev, status.st_ino) == identity_of(path + _UNFINISHED):
        names -= 1
    if names > 1:
        raise StorageError(
            f"{path} has {names} names (hard links); SQLite would keep a WAL and locks for each of them, "
            "and lose what is written under one or the other. Keep one: make a copy with `eosdb backup`, "
            "or a symbolic link, and remove the others"
        )
