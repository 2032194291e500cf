"""Adopts another application's file: one commit adds eosdb's tables, or the file stays as it is.

All obstacles are checked before any file is created beside it. They are checked again inside the commit,
because the owner's programs do not use eosdb's mutex. The header does not change, nor does the journal mode
unless requested.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable
from typing import Final

from eosdb import errors
from eosdb.model.clock import SystemClock, real_ns
from eosdb.model.failpoints import Failpoint, reach
from eosdb.store.file.connection import begin_immediate, connect, hearing, says_wal
from eosdb.store.file.failures import describe_sqlites, translated
from eosdb.store.file.locks import WriterMutex
from eosdb.store.file.open_files import size_of
from eosdb.store.schema import guard, new_file, newest
from eosdb.store.schema.newest import create_objects, newest_schema

_HOT: Final = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
"""A rollback journal in use begins with these bytes; a journal kept for the next transaction does not."""
_CLOCK: Final = SystemClock()
_PAUSE_MS: Final = 10


def obstacles(names: Iterable[tuple[str, str]], references: Iterable[tuple[str, str]]) -> list[str]:
    """Return the conflicts of a schema with eosdb's. `names` are its objects by type and name,
    `references` its foreign keys by table."""
    ours = {entry.name.lower(): f"a {entry.type}" for entry in newest_schema()}
    conflicts = []
    for type_, name in names:
        if name.lower() in ours:
            conflicts.append(
                f"the {type_} {name!r} ({ours[name.lower()]} of eosdb's has this name)"
            )
        elif name.lower().startswith(guard.PREFIX):
            conflicts.append(
                f"the {type_} {name!r} (names that begin with {guard.PREFIX} are eosdb's)"
            )
    for table, parent in references:
        if parent.lower() in ours:
            conflicts.append(
                f"the table {table!r} (its foreign key refers to {parent!r}, which would be eosdb's)"
            )
    return conflicts


def check(path: str, lock_timeout_ms: int, *, to_wal: bool) -> bool:
    """Return whether the file is another application's and can be adopted. Writes nothing to the file or
    its folder. Raises NotAnEosdbFileError with all obstacles, ReadOnlyDatabaseError, CorruptDatabaseError,
    and StorageError if a transaction does not end in time or its program was killed."""
    if not os.path.isfile(path) or not os.access(path, os.R_OK) or not os.path.getsize(path):
        return False
    deadline_ns = real_ns() + lock_timeout_ms * 1_000_000
    while True:
        # Without -wal or -shm nobody uses WAL mode, so the file is read without locks, which creates no
        # file.
        has_log, has_index = os.path.exists(f"{path}-wal"), os.path.exists(f"{path}-shm")
        at_rest = not (has_log and has_index)
        before = _state(path)
        try:
            may_be_new = has_index or not has_log
            return _is_adoptable(path, lock_timeout_ms, to_wal, at_rest, may_be_new=may_be_new)
        except errors.EosdbError:
            # A read without locks fails while another program writes, so try again.
            is_writing = _unfinished(path) is not None and describe_sqlites(path)
            if not at_rest or real_ns() >= deadline_ns:
                raise
            if not is_writing and _state(path) == before:
                raise
        _CLOCK.sleep_ms(_PAUSE_MS)


def _is_adoptable(
    path: str, busy_timeout_ms: int, to_wal: bool, at_rest: bool, *, may_be_new: bool
) -> bool:
    """Run `check` once. If `may_be_new`, an empty file is new: no WAL contains its content."""
    with (
        translated(path),
        contextlib.closing(
            connect(path, busy_timeout_ms, read_only=True, at_rest=at_rest)
        ) as connection,
    ):
        try:
            with translated(path):
                # One snapshot for all queries, because another process may adopt the file in between.
                connection.execute("BEGIN")
                file = newest.of(connection)
        except errors.CorruptDatabaseError:
            _check_finished(path)
            return False
        if file.version is not None or (file.is_empty and may_be_new):
            return False
        _check_finished(path)
        if not os.access(path, os.W_OK):
            raise errors.ReadOnlyDatabaseError(f"{path} is not writable, so it cannot be adopted")
        in_wal_mode = says_wal(path) if at_rest else _mode(connection) == "wal"
        _refuse_for(path, [*_found(connection), *([] if in_wal_mode or to_wal else [_ROLLBACK])])
        _check_health(path, connection)
    return True


def _state(path: str) -> list[tuple[int, int, int] | None]:
    found: list[tuple[int, int, int] | None] = []
    for name in (path, f"{path}-wal", f"{path}-journal"):
        try:
            status = os.stat(name)
            found.append((status.st_ino, status.st_size, status.st_mtime_ns))
        except OSError:
            found.append(None)
    return found


def adopt(path: str, busy_timeout_ms: int, *, to_wal: bool, made_here: WriterMutex | None) -> None:
    """Add eosdb's tables in one commit; does nothing if another process has just done so. The caller holds
    the writer mutex; if its files were `made_here`, a failure removes them. Raises the errors of `check`,
    DatabaseFullError, and DatabaseLockedError if another program holds its lock."""
    with (
        translated(path),
        contextlib.closing(connect(path, busy_timeout_ms)) as connection,
    ):
        is_switched = False
        try:
            is_switched = to_wal and _mode(connection) != "wal"
            if is_switched:
                connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA busy_timeout=0")
            begin_immediate(connection, real_ns() + busy_timeout_ms * 1_000_000)
            if newest.of(connection).version is None:
                is_wal = _mode(connection) == "wal"
                _refuse_for(path, [*_found(connection), *([] if is_wal else [_ROLLBACK])])
                create_objects(connection)
                reach(Failpoint.MIGRATION_APPLIED)
            connection.execute("COMMIT")
        except BaseException:
            connection.rollback()
            with contextlib.suppress(sqlite3.Error, OSError):
                if newest.of(connection).version is None:
                    if is_switched:
                        connection.execute("PRAGMA journal_mode=DELETE")
                    if made_here is not None:
                        made_here.remove_files()
            raise
        # A checkpoint moves the tables from the WAL into the file, so a copy without the WAL has them, too.
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    new_file.sync_folder(path)


_ROLLBACK: Final = (
    "its rollback-journal mode, for eosdb needs the write-ahead log (`PRAGMA journal_mode=WAL` in any "
    "SQLite client switches it, for good and for every program that uses it; `eosdb init --adopt --wal`, "
    'or adopt="wal", switches and adopts)'
)


def _found(connection: sqlite3.Connection) -> list[str]:
    names = connection.execute(
        "SELECT type, name FROM sqlite_master WHERE name NOT LIKE 'sqlite~_%' ESCAPE '~' ORDER BY rowid"
    )
    conflicts = obstacles(names.fetchall(), connection.execute(guard.REFERENCES).fetchall())
    (encoding,) = connection.execute("PRAGMA encoding").fetchone()
    if encoding != "UTF-8":
        conflicts.append(
            f"its text encoding {encoding}, for eosdb needs UTF-8 (`sqlite3 OLD .dump | sqlite3 NEW` makes "
            "a file that has it)"
        )
    return conflicts


def _refuse_for(path: str, conflicts: list[str]) -> None:
    # decisions/0044: all conflicts are reported at once, before any file is created.
    if conflicts:
        raise errors.NotAnEosdbFileError(
            f"{path} is a SQLite database of another application that cannot be adopted yet; nothing was "
            f"changed. Remove or change first: {'; '.join(conflicts)}"
        )


def _check_finished(path: str) -> None:
    if (error := _unfinished(path)) is not None:
        raise error


def _unfinished(path: str) -> errors.StorageError | None:
    """Return the error for a transaction that only the owner's programs can end, if there is one."""
    journal = b""
    with contextlib.suppress(OSError), open(f"{path}-journal", "rb") as file:
        journal = file.read(len(_HOT))
    if journal == _HOT:
        return errors.StorageError(
            f"{path}-journal holds a transaction that has not ended: a program is writing, or was killed. "
            "Let it end, or open the file once with its own program, which rolls it back; then adopt it"
        )
    if size_of(f"{path}-wal") and not os.path.exists(f"{path}-shm"):
        return errors.StorageError(
            f"{path}-wal is there without {path}-shm: a program has locked the file for itself alone "
            "(`PRAGMA locking_mode=EXCLUSIVE`), or the two were copied from elsewhere. Open and close the "
            "file once with its own program, which brings the log into it; then adopt the file"
        )
    return None


def _check_health(path: str, connection: sqlite3.Connection) -> None:
    try:
        with hearing(connection):
            (health,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_CORRUPT:
            raise
        health = str(error)
    if health != "ok":
        raise errors.CorruptDatabaseError(
            f"{path} is damaged, so it is not adopted, and nothing was changed; restore a backup of it "
            f"first (SQLite: {health})"
        )


def _mode(connection: sqlite3.Connection) -> str:
    return str(connection.execute("PRAGMA journal_mode").fetchone()[0])
