"""The files of an open database, to detect that one was removed or replaced.

SQLite goes on using its open files after they were renamed or removed. A program that opens the name later
gets other files with other locks, and each program loses the other's acknowledged commits.
"""

from __future__ import annotations

import os
import stat
from typing import Final

from eosdb.errors import NotAnEosdbFileError, StorageError
from eosdb.native import accelerator
from eosdb.system.lock_file import LOCK

Identity = tuple[int, int]
"""Device and inode."""
_BESIDE: Final = ("-wal", "-shm", "-journal", LOCK)
_UNFINISHED: Final = ".eosdb-unfinished"
"""The file's second name while it is created (new_file.py)."""


class OpenFiles:
    """The database file, its WAL, its shared memory and the lock file, by device and inode. If `name`,
    the path used to open the file, contains links, they must keep leading to the file."""

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
        """Record the database's files. Call it after a connection has read, which opens them. Raises
        StorageError if a file recorded earlier was replaced."""
        self.check()
        file = identity_of(self._path)
        for name in self._names:
            self.note(name, file)
        for suffix in ("-wal", "-shm"):
            self.note(self._path + suffix)

    def forget_shared(self) -> None:
        """Forget the WAL and the shared memory. Call it before all connections close: SQLite may then
        remove them."""
        for suffix in ("-wal", "-shm"):
            self._known.pop(self._path + suffix, None)

    def remove_orphans(self) -> None:
        """Remove the WAL and shared memory of a removed database file, after the whole WAL was copied.
        Otherwise SQLite would read them into the next file of that name."""
        if identity_of(self._path) == self._known.get(self._path):
            return
        for suffix in ("-wal", "-shm"):
            name = self._path + suffix
            if name in self._known and identity_of(name) == self._known[name]:
                os.unlink(name)

    # decisions/0056: every unit checks this, because the kernel does not report a renamed parent folder.
    def check(self) -> None:
        """For writers: raises StorageError if one of the files was removed or replaced."""
        self._check(self._known)

    def check_database(self) -> None:
        """For readers: raises StorageError if the database file was removed or replaced."""
        self._check({name: self._known[name] for name in self._names if name in self._known})

    def are_in_place(self) -> bool:
        try:
            self.check()
        except StorageError:
            return False
        return True

    def _check(self, files: dict[str, Identity]) -> None:
        # Every unit checks four files; the accelerator does it 40 times as fast.
        if (module := accelerator.rows()) is not None and not module.changed(files):
            return
        for name, identity in (*files.items(),):
            found = identity_of(name)
            if found is None:
                raise StorageError(
                    f"{name} has been removed while {self._path} was open; nothing was written. Close the "
                    "database in every program, which saves what it still can, before you open it again; "
                    "never delete or move one of its files, or a folder they are in, while it is open"
                )
            if found != identity:
                raise StorageError(
                    f"{name} has been replaced by another file while {self._path} was open; nothing was "
                    "written. Close the database in every program before you open it again; a copy "
                    "(`eosdb backup`) is put in place only while nobody has it open"
                )


def identity_of(path: str) -> Identity | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def size_of(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def check_only_name(path: str) -> None:
    """Raises StorageError for a file with hard links: each name would have its own WAL and locks, and lose
    the other's commits. Also if the name of the WAL, -shm, journal or lock file is a symbolic link: SQLite
    would write to its target. Raises NotAnEosdbFileError for a device, a pipe or a socket."""
    for beside in _BESIDE:
        if os.path.islink(path + beside):
            raise StorageError(
                f"{path}{beside} is a symbolic link, which eosdb never makes; a write would overwrite its "
                "target. Remove the link, and check who may write to the folder"
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
            f"{path} has {names} names (hard links); SQLite would keep a separate WAL and locks for each "
            "name, and lose commits. Keep one name and remove the others; use `eosdb backup` or a symbolic "
            "link instead"
        )
