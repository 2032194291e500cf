"""Opens a file: creates it if necessary, and upgrades it to the newest schema.

Alembic is imported only to upgrade an older file.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Final, NamedTuple

from eosdb import errors
from eosdb.model.failpoints import Failpoint, reach
from eosdb.store.file import failures, forking
from eosdb.store.file.connection import check_version, connect, says_wal
from eosdb.store.file.failures import system_calls, translated
from eosdb.store.file.file_system import check_local, mounted_error, mounted_name
from eosdb.store.file.locks import WriterMutex
from eosdb.store.file.open_files import check_only_name
from eosdb.store.schema import adoption, file_id, new_file, newest
from eosdb.store.schema.identify import (
    Found,
    check_may_write,
    check_version_of,
    close,
    identify,
    is_readable,
    looked_at,
    was_open_to_write,
)
from eosdb.store.schema.newest import SCHEMA_VERSION
from eosdb.system.lock_file import LOCK

_ALONE_WITHIN_MS: Final = 2_000
"""How long an upgrade waits for programs that are closing the file; other writers wait for the upgrade."""
_IN_USE: Final = 0x40000002
"""The byte that every SQLite connection locks from its first read on."""


class Opened(NamedTuple):
    """The open writer mutex or, for reading only, a connection that is kept because it has already read the
    schema, which takes most of the time of opening."""

    mutex: WriterMutex | None
    reader: sqlite3.Connection | None
    untrusted: bool = False
    """Whether the file is of unknown origin, so that connections are opened by `connect_untrusted`."""


def open_file(
    path: str,
    *,
    create: bool,
    migrate: bool,
    read_only: bool,
    lock_timeout_ms: int,
    sync: bool = True,
    at_rest: bool = False,
    adopt: bool = False,
    to_wal: bool = False,
) -> Opened:
    """Make sure that `path` is an eosdb file of the newest schema, in WAL mode.

    `at_rest` is for reading only (see `connection.connect`). `adopt` adds eosdb's tables to another
    application's file; `to_wal` also switches that file from rollback-journal mode to WAL mode. A new file
    is durable afterwards, unless `sync` is False. Raises DatabaseNotFoundError, NotAnEosdbFileError,
    CorruptDatabaseError, SchemaOutOfDateError, SchemaTooNewError, ReadOnlyDatabaseError or StorageError,
    each with the file and the next step.
    """
    check_version(sqlite3.sqlite_version_info)
    with forking.at_work(), system_calls(path):
        forking.check_not_inherited(path)
        check_only_name(path)
        if read_only:
            return _open_to_read(path, lock_timeout_ms, at_rest)
        check_local(path)
        if adopt and adoption.check(path, lock_timeout_ms, to_wal=to_wal):
            was_there = os.path.exists(path + LOCK)
            mutex = _open_mutex(path, lock_timeout_ms)
            try:
                mutex.acquire()
                made_here = None if was_there else mutex
                adoption.adopt(path, lock_timeout_ms, to_wal=to_wal, made_here=made_here)
            finally:
                mutex.close()
        return _open_to_write(path, create, migrate, lock_timeout_ms, sync)


def _open_to_read(path: str, lock_timeout_ms: int, at_rest: bool) -> Opened:
    if os.path.exists(path + "-wal"):
        # A published copy has no WAL and may be on any file system; other files must be on a local one.
        check_local(path)
    _check_exists(path)
    if (name := mounted_name(path)) is not None and not _is_published_at_rest(path):
        raise mounted_error(name, path)
    file, reader = looked_at(path, lock_timeout_ms, at_rest=at_rest)
    try:
        if file is None or not is_readable(file.needs):
            check_version_of(path, file, "read_only=True")
    except BaseException:
        if reader is not None:
            reader.close()
        raise
    return Opened(None, reader)


def _is_published_at_rest(path: str) -> bool:
    """Whether the file is a published copy, which never changes. Creates no file beside it."""
    _, connection = looked_at(path, 0, at_rest=True)
    try:
        return connection is not None and not says_wal(path)
    finally:
        close(connection)


def _open_to_write(
    path: str, create: bool, migrate: bool, lock_timeout_ms: int, sync: bool
) -> Opened:
    if not create:
        _check_exists(path)
    _check_folder(path, errors.StorageError)
    if os.path.exists(path) and not was_open_to_write(path):
        # Look before the lock file is created, which must not appear beside another application's file.
        if not os.path.exists(path + "-wal"):
            close(looked_at(path, lock_timeout_ms, at_rest=True)[1])
        check_may_write(path, identify(path, lock_timeout_ms))
    mutex = _open_mutex(path, lock_timeout_ms)
    try:
        try:
            mutex.acquire()
            new_file.forget_unfinished(path)
            file = identify(path, lock_timeout_ms, by_header=True)
            check_may_write(path, file)
            if file is None:
                if os.path.exists(path) or not new_file.make(path, sync=sync):
                    _in_unit(path, lock_timeout_ms, newest.create)
            elif file.version < SCHEMA_VERSION:
                if not migrate:
                    check_version_of(path, file, "migrate=False")
                _upgrade(path, lock_timeout_ms, file)
        finally:
            mutex.release()
    except BaseException:
        mutex.close()
        raise
    return Opened(mutex, None)


def apply_revisions(connection: sqlite3.Connection) -> None:
    """Run Alembic on the driver connection, inside the caller's unit."""
    from alembic import command
    from alembic.config import Config
    from sqlalchemy import create_engine
    from sqlalchemy.pool import StaticPool

    config = Config()
    config.set_main_option("script_location", str(_scripts()).replace("%", "%%"))
    engine = create_engine("sqlite://", creator=lambda: connection, poolclass=StaticPool)
    # SQLAlchemy must not commit or roll back, because the caller ends the unit.
    for method in ("do_commit", "do_rollback"):
        setattr(engine.dialect, method, lambda _: None)
    with engine.connect() as opened:
        config.attributes["connection"] = opened
        command.upgrade(config, "head")


def _scripts() -> Path:
    return Path(str(files("eosdb.migrations")))


def create_materialized(connection: sqlite3.Connection) -> None:
    """Drop the materialized tables and create them again, empty, inside the caller's unit."""
    names = newest.materialized_tables()
    drop_json_views(connection)
    for name in reversed(names):
        connection.execute(f'DROP TABLE IF EXISTS "{name}"')
    for schema_object in newest.newest_schema():
        if schema_object.table in names:
            connection.execute(schema_object.sql)


def drop_json_views(connection: sqlite3.Connection) -> None:
    """Drop the views over JSON values; replay creates them again."""
    tables = "SELECT 1 FROM sqlite_master WHERE name = 'eosdb_json_views'"
    if connection.execute(tables).fetchone() is not None:
        for (name,) in connection.execute("SELECT name FROM eosdb_json_views").fetchall():
            connection.execute(f'DROP VIEW IF EXISTS "{name}"')


def _upgrade(path: str, busy_timeout_ms: int, file: Found) -> None:
    """Upgrade the file. Other connections must be closed: they would go on with the earlier schema."""

    def upgrade(connection: sqlite3.Connection) -> None:
        apply_revisions(connection)
        newest.create_views(connection)
        file_id.bring_up_to_date(connection)
        if not file.is_adopted:
            newest.stamp(connection, SCHEMA_VERSION)

    try:
        patience_ms = min(busy_timeout_ms, _ALONE_WITHIN_MS)
        _in_unit(path, patience_ms, upgrade, is_adopted=file.is_adopted, is_alone=True)
    except errors.DatabaseLockedError:
        who = failures.describe_holders(path, [_IN_USE]) or failures.UNSEEN
        raise errors.DatabaseLockedError(
            f"{path} has schema {file.version} and is open in {who}, so it cannot be upgraded to "
            f"{SCHEMA_VERSION}; nothing was changed. Close the file in every program, readers included, "
            "and open it again"
        ) from None


def _in_unit(
    path: str,
    busy_timeout_ms: int,
    change: Callable[[sqlite3.Connection], None],
    *,
    is_adopted: bool = False,
    is_alone: bool = False,
) -> None:
    """Change the schema in one commit, and switch eosdb's own file to WAL mode. `is_alone` waits until all
    other connections are closed, and excludes new ones."""
    with translated(path):
        connection = connect(path, busy_timeout_ms, create=True)
        try:
            if is_alone:
                # Waits until all other connections are closed, because each has a shared lock on the file.
                connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            if not is_adopted:
                connection.execute(newest.GIVES_PAGES_BACK)
                connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("BEGIN IMMEDIATE")
            change(connection)
            reach(Failpoint.MIGRATION_APPLIED)
            connection.execute("COMMIT")
        finally:
            connection.close()
    new_file.sync_folder(path)


def _open_mutex(path: str, lock_timeout_ms: int) -> WriterMutex:
    try:
        if os.path.exists(path) and not os.access(path, os.W_OK):
            raise errors.ReadOnlyDatabaseError(
                f"{path} is not writable; open it with read_only=True"
            )
        return WriterMutex(path + LOCK, lock_timeout_ms)
    except PermissionError as error:
        lock = str(error.filename)
        if not os.path.exists(lock):
            raise errors.ReadOnlyDatabaseError(
                f"the folder of {path} is not writable; open it with read_only=True"
            ) from None
        raise errors.ReadOnlyDatabaseError(
            f"{lock} is not writable by this user, but {path} is: it belongs to user id "
            f"{os.stat(lock).st_uid}. Give it the owner and the mode of the database (`chown` and `chmod "
            f"--reference={path} {lock}`), or open the file with read_only=True"
        ) from None


def _check_folder(path: str, kind: type[errors.EosdbError]) -> None:
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        what = "is not a folder" if os.path.exists(folder) else "does not exist"
        raise kind(
            f"{path} cannot be opened: its folder {folder} {what}; correct the path, or create the folder "
            "first"
        )


def _check_exists(path: str) -> None:
    _check_folder(path, errors.DatabaseNotFoundError)
    if not os.path.exists(path):
        raise errors.DatabaseNotFoundError(
            f"{path} does not exist; create it with `eosdb init`, or with eosdb.connect(path)"
        )
