"""Translates errors of sqlite3 and of system calls to eosdb's errors, by their code and not their text.

SQLite rolls back a failed write, so its outcome is "not written". The outcome is "unknown" if the commit
may already be in the WAL: the next process might find it after a crash.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from collections.abc import Collection, Iterator
from typing import Final

from eosdb.errors import (
    CorruptDatabaseError,
    DatabaseFullError,
    DatabaseLockedError,
    EosdbError,
    ReadOnlyDatabaseError,
    StorageError,
    in_doubt,
)
from eosdb.system.lock_file import LOCK, WRITER
from eosdb.system.road import road
from eosdb.system.signals import is_of_a_signal

_SQLITES: Final = (("-shm", (120,)), ("", (0x40000000, 0x40000001)))
"""The bytes that SQLite locks to write: in the WAL's index (-shm) or, if there is none or with
`locking_mode=EXCLUSIVE`, in the database file."""
UNSEEN: Final = "a process that the system does not show, such as another user's"
_THIS: Final = "this process"
_OF_ITS_OWN: Final = (
    " on a connection that is perhaps of this very thread (eosdb.join publishes in its transaction)"
)


def locked_error(
    path: str, holder: str, waited_ms: int | None = None, *, so: str = "not written"
) -> DatabaseLockedError:
    """Return the error of a write that did not get the lock in time; `holder` is empty if unknown."""
    since = "" if waited_ms is None else f" for {waited_ms} ms"
    return DatabaseLockedError(
        f"{path}: {so}, because the write lock has been held{since} by {holder or UNSEEN}. Try "
        "again when that transaction has ended, end it, or wait for longer (BrokerConfig.lock_timeout_ms)"
    )


def describe_sqlites(path: str) -> str:
    """Describe the processes that hold SQLite's write lock: `process 4711 (python app.py)`."""
    places = (describe_holders(path + suffix, locked) for suffix, locked in _SQLITES)
    who = next(filter(None, places), "")
    return f"{who}{_OF_ITS_OWN if who.startswith(_THIS) else ''}"


def describe_writer(path: str) -> str:
    """Describe the process that keeps others from writing; empty if none is found. Who has the mutex may
    wait for SQLite's lock, so the holder of that lock comes first."""
    return describe_sqlites(path) or describe_holders(path + LOCK, [WRITER])


def describe_holders(path: str, locked: Collection[int]) -> str:
    """Describe the processes that have locked any of these bytes of the file, or these locks of a lock
    file: `process 4711 (python app.py)`. Empty if none is found."""
    return " and ".join(map(_described, road.holders(path, locked)))


def _described(pid: int) -> str:
    command, is_stopped = road.process(pid)
    named = _THIS if pid == os.getpid() else "process"
    stopped = ", which is stopped: let it go on (kill -CONT) or end it" if is_stopped else ""
    command = f" ({command[:100]})" if command else ""
    return f"{named} {pid}{command}{stopped}"


_BY_CODE: Final[dict[int, tuple[type[EosdbError], str]]] = {
    sqlite3.SQLITE_LOCKED: (
        DatabaseLockedError,
        "the file is locked within this process; nothing was written, try again",
    ),
    sqlite3.SQLITE_FULL: (
        DatabaseFullError,
        "the disk is full, or a limit of space is reached; nothing was written, make room and try again",
    ),
    sqlite3.SQLITE_READONLY: (ReadOnlyDatabaseError, "the file may not be written"),
    sqlite3.SQLITE_NOMEM: (
        StorageError,
        "there is not enough memory; nothing was written, try again",
    ),
    sqlite3.SQLITE_PERM: (ReadOnlyDatabaseError, "the file may not be accessed"),
    sqlite3.SQLITE_CANTOPEN: (StorageError, "the file cannot be opened"),
    sqlite3.SQLITE_CORRUPT: (
        CorruptDatabaseError,
        "the file is damaged; restore a backup, and see `eosdb verify`",
    ),
    sqlite3.SQLITE_NOTADB: (CorruptDatabaseError, "the file is not a SQLite database"),
    # SQLite has only this code for all failures to create -shm, which precedes any write.
    sqlite3.SQLITE_IOERR_SHMOPEN: (
        StorageError,
        "the WAL's index (-shm) cannot be created: the disk is full, or fails; nothing was written. See "
        "`df` and the system's log (`dmesg`), make room and try again",
    ),
    sqlite3.SQLITE_IOERR: (
        StorageError,
        "the disk has failed; check it (the system's log says more, such as `dmesg`) and try again",
    ),
}
_NO_ROOM_FOR_THE_INDEX: Final = (
    "the disk is full: there is no room for the WAL's index (-shm). This write is undone, though it may "
    "be there again after a crash; make room and try again"
)
_SYNC: Final = {sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC}
_FULL_EXTENDED: Final = {
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_SHMSIZE,
    sqlite3.SQLITE_IOERR_TRUNCATE,
}


_OF_THE_FILE_SYSTEM: Final = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_IOERR_SHMOPEN,
}
"""Codes that the state of the file system may have caused."""
_OF_A_FULL_DISK: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_OF_RIGHTS: Final = {errno.EROFS, errno.EACCES, errno.EPERM}
_OF_THE_FILE: Final = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
}


def is_of_the_file(error: sqlite3.Error) -> bool:
    """Whether the file or the disk caused the error, so that every other statement would also fail."""
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF in _OF_THE_FILE


def is_failed_sync(error: BaseException | None) -> bool:
    return getattr(error, "sqlite_errorcode", None) in _SYNC


def out_of_memory() -> sqlite3.Error:
    """Return SQLite's out-of-memory error, to replace the driver's MemoryError."""
    error = sqlite3.OperationalError("out of memory")
    error.sqlite_errorcode = sqlite3.SQLITE_NOMEM
    return error


def without_memory(path: str) -> EosdbError:
    """Return the eosdb error for a MemoryError in a unit of the file."""
    return translate(out_of_memory(), path)


def translate(error: sqlite3.Error, path: str) -> EosdbError:
    extended = getattr(error, "sqlite_errorcode", None) or 0
    if extended in _SYNC:
        return in_doubt(
            StorageError(
                f"{path}: the disk failed to sync this write, which is undone, though it may be there "
                "again after a crash; check the disk (the system's log says more, such as `dmesg`) and "
                f"try again (SQLite: {error})"
            )
        )
    if extended == sqlite3.SQLITE_ERROR and "no such table" in str(error):
        # Only eosdb's own statements come here, so the missing table is eosdb's.
        return StorageError(
            f"{path}: tables of eosdb's are missing, so nothing was written. If `eosdb inspect extract` "
            "has moved them to a new file, open that; if another program has dropped them, restore a "
            f"backup (SQLite: {error})"
        )
    if extended == sqlite3.SQLITE_BUSY_SNAPSHOT:
        return DatabaseLockedError(
            f"{path}: not written, because this program has closed the file during the transaction (a "
            "checksum, a copy), which drops SQLite's locks, and another program has begun to write or has "
            "written. Try again; read the file between transactions, or use `db.backup`"
        )
    primary = sqlite3.SQLITE_FULL if extended in _FULL_EXTENDED else extended & 0xFF
    if primary == sqlite3.SQLITE_BUSY:
        # An exclusive lock stops readers, too.
        return locked_error(path, describe_sqlites(path), so="neither read nor written")
    if extended == sqlite3.SQLITE_IOERR_SHMOPEN:
        primary = sqlite3.SQLITE_FULL if _has_no_room(path) else extended
    if extended == sqlite3.SQLITE_IOERR_SHMSIZE:
        return in_doubt(DatabaseFullError(f"{path}: {_NO_ROOM_FOR_THE_INDEX} (SQLite: {error})"))
    if isinstance(error, sqlite3.OperationalError) and not extended:
        # The driver raises this for text that is not UTF-8. Its message quotes the text and is cut.
        return CorruptDatabaseError(
            f"{path}: a text in the file is damaged; restore a backup, and see `eosdb verify` (SQLite: "
            f"{error!s:.80}…)"
        )
    state = _state_of_file_system(path) if primary in _OF_THE_FILE_SYSTEM else None
    kind, advice = state or _BY_CODE.get(primary, (StorageError, "SQLite reported an error"))
    failure = kind(f"{path}: {advice} (SQLite: {error})")
    # A cause means that the file cannot be written; without one, the error means read_only=True.
    failure.__cause__ = error
    return in_doubt(failure) if primary == sqlite3.SQLITE_IOERR else failure


def translate_system(error: OSError, path: str) -> EosdbError:
    """Return the eosdb error for a system call that failed at the file or beside it."""
    state = _state_of_file_system(path)
    if state is None and error.errno in _OF_A_FULL_DISK:
        state = _BY_CODE[sqlite3.SQLITE_FULL]
    if state is None and error.errno in _OF_RIGHTS:
        state = _BY_CODE[sqlite3.SQLITE_READONLY]
    if state is not None:
        kind, advice = state
        return kind(f"{path}: {advice} ({error.strerror})")
    return StorageError(
        f"{path}: a system call failed ({error.strerror or error}); nothing was written, try again"
    )


def _state_of_file_system(path: str) -> tuple[type[EosdbError], str] | None:
    """Return the error if the file system of `path` is read-only or has no inode left; else None."""
    try:
        status = os.statvfs(os.path.dirname(path) or ".")
    except OSError:
        return None
    if status.f_flag & os.ST_RDONLY or _refuses_writers(f"{path}-lock"):
        return ReadOnlyDatabaseError, (
            "its file system is read-only, perhaps since a disk error; nothing was written. Make it "
            "writable again, or open the file with read_only=True"
        )
    if status.f_files and not status.f_favail:
        return DatabaseFullError, (
            "its file system has no inode left (`df -i`), so no file can be created; nothing was written, "
            "remove some files and try again"
        )
    return None


def _has_no_room(path: str) -> bool:
    with contextlib.suppress(OSError):
        status = os.statvfs(os.path.dirname(path) or ".")
        return status.f_blocks > 0 == status.f_bfree
    return False


def _refuses_writers(lock: str) -> bool:
    """Whether the file system is read-only but does not report it, like ext4 after an error. Opens only the
    lock file, since closing the database file would drop SQLite's locks."""
    try:
        os.close(os.open(lock, os.O_WRONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno == errno.EROFS
    return False


@contextlib.contextmanager
def system_calls(path: str) -> Iterator[None]:
    """Translate errors of system calls inside the block, which must not call user code."""
    try:
        yield
    except OSError as error:
        if is_of_a_signal(error):
            raise
        raise translate_system(error, path) from error


@contextlib.contextmanager
def translated(path: str) -> Iterator[None]:
    """Translate errors of sqlite3 inside the block."""
    try:
        yield
    except sqlite3.Error as error:
        raise translate(error, path) from error
    except UnicodeDecodeError as error:
        # SQLite's message quotes the damaged schema, which is not UTF-8, so the driver raises this.
        raise CorruptDatabaseError(
            f"{path}: the schema is damaged; restore a backup, and see `eosdb verify`"
        ) from error
