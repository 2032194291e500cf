"""sqlite3's exceptions become eosdb's, in one place, by SQLite's result code and never by text."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import Final

from eosdb.errors import (
    CorruptDatabaseError,
    DatabaseFullError,
    DatabaseLockedError,
    EosdbError,
    ReadOnlyDatabaseError,
    StorageError,
)

_BY_CODE: Final[dict[int, tuple[type[EosdbError], str]]] = {
    sqlite3.SQLITE_BUSY: (
        DatabaseLockedError,
        "another program holds SQLite's write lock; nothing was written, try again",
    ),
    sqlite3.SQLITE_LOCKED: (
        DatabaseLockedError,
        "the file is locked within this process; nothing was written, try again",
    ),
    sqlite3.SQLITE_FULL: (
        DatabaseFullError,
        "the disk is full, or takes no more; nothing was written, make room and try again",
    ),
    sqlite3.SQLITE_READONLY: (ReadOnlyDatabaseError, "the file may not be written"),
    sqlite3.SQLITE_PERM: (ReadOnlyDatabaseError, "the file may not be accessed"),
    sqlite3.SQLITE_CANTOPEN: (StorageError, "the file cannot be opened"),
    sqlite3.SQLITE_CORRUPT: (
        CorruptDatabaseError,
        "the file is damaged; restore a backup, and see `eosdb verify`",
    ),
    sqlite3.SQLITE_NOTADB: (CorruptDatabaseError, "the file is not a SQLite database"),
}
_SYNC: Final = {sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC}
_FULL_EXTENDED: Final = {
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_SHMSIZE,
    sqlite3.SQLITE_IOERR_TRUNCATE,
}


_OF_THE_FILE: Final = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
}


def is_of_the_file(error: sqlite3.Error) -> bool:
    """Whether the file or the disk is to blame, and no statement would have fared better."""
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF in _OF_THE_FILE


def is_failed_sync(error: BaseException | None) -> bool:
    """Whether the disk failed to make a write durable."""
    return getattr(error, "sqlite_errorcode", None) in _SYNC


def translate(error: sqlite3.Error, path: str) -> EosdbError:
    """The eosdb error for a sqlite3 error at the file `path`."""
    extended = getattr(error, "sqlite_errorcode", None) or 0
    if extended in _SYNC:
        return StorageError(
            f"{path}: the disk failed to sync this write, which is undone, though it may be there again "
            "after a crash of the machine; check the disk (the system's log says more, such as "
            f"`dmesg`) and try again (SQLite: {error})"
        )
    if extended == sqlite3.SQLITE_ERROR and "no such table" in str(error):
        # The statement is eosdb's own: users' statements are not told of here.
        return StorageError(
            f"{path} has eosdb's tables no more, or not all: `eosdb extract` has taken them out into a "
            "file of their own, which is the one to open, or another program has dropped them; nothing was "
            f"written (SQLite: {error})"
        )
    primary = sqlite3.SQLITE_FULL if extended in _FULL_EXTENDED else extended & 0xFF
    kind, advice = _BY_CODE.get(primary, (StorageError, "SQLite reported an error"))
    return kind(f"{path}: {advice} (SQLite: {error})")


@contextlib.contextmanager
def translated(path: str) -> Iterator[None]:
    """Raise eosdb's error for any that sqlite3 raises inside the block."""
    try:
        yield
    except sqlite3.Error as error:
        raise translate(error, path) from error
    except UnicodeDecodeError as error:
        # SQLite's message quotes a damaged schema, and the driver cannot read it.
        raise CorruptDatabaseError(
            f"{path}: the schema is damaged; restore a backup, and see `eosdb verify`"
        ) from error
