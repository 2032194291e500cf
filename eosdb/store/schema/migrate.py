"""Identifies a file, and upgrades it to the newest schema.

`application_id` in the header marks an eosdb file, `user_version` is its newest revision; an adopted file
is identified by its tables (newest.py). Alembic is imported only to upgrade an older file.

A writable file is in WAL mode from the start. A file in rollback-journal mode is a published copy with the
id and history of its source. Writes would give that id a second history, so the copy is read-only.
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
from eosdb.store.file.connection import check_version, connect, is_in_wal_mode, says_wal
from eosdb.store.file.failures import system_calls, translated
from eosdb.store.file.file_system import check_local, mounted_error, mounted_name
from eosdb.store.file.locks import WriterMutex
from eosdb.store.file.open_files import check_only_name
from eosdb.store.schema import adoption, file_id, new_file, newest
from eosdb.store.schema.newest import APPLICATION_ID, SCHEMA_VERSION
from eosdb.system.descriptors import head
from eosdb.system.lock_file import LOCK

_ALONE_WITHIN_MS: Final = 2_000
"""How long an upgrade waits for programs that are closing the file; other writers wait for the upgrade."""
_IN_USE: Final = 0x40000002
"""The byte that every SQLite connection locks from its first read on."""
_BACK: Final = "`PRAGMA journal_mode=WAL` in any SQLite client switches it back"


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
    file, reader = _looked_at(path, lock_timeout_ms, at_rest=at_rest)
    try:
        if file is None or not _is_readable(file.needs):
            _check_version(path, file, "read_only=True")
    except BaseException:
        if reader is not None:
            reader.close()
        raise
    return Opened(None, reader)


def _is_published_at_rest(path: str) -> bool:
    """Whether the file is a published copy, which never changes. Creates no file beside it."""
    _, connection = _looked_at(path, 0, at_rest=True)
    try:
        return connection is not None and not says_wal(path)
    finally:
        _close(connection)


def _open_to_write(
    path: str, create: bool, migrate: bool, lock_timeout_ms: int, sync: bool
) -> Opened:
    if not create:
        _check_exists(path)
    _check_folder(path, errors.StorageError)
    if os.path.exists(path) and not _was_open_to_write(path):
        # Look before the lock file is created, which must not appear beside another application's file.
        if not os.path.exists(path + "-wal"):
            _close(_looked_at(path, lock_timeout_ms, at_rest=True)[1])
        _check_may_write(path, identify(path, lock_timeout_ms))
    mutex = _open_mutex(path, lock_timeout_ms)
    try:
        try:
            mutex.acquire()
            new_file.forget_unfinished(path)
            file = identify(path, lock_timeout_ms, by_header=True)
            _check_may_write(path, file)
            if file is None:
                if os.path.exists(path) or not new_file.make(path, sync=sync):
                    _in_unit(path, lock_timeout_ms, newest.create)
            elif file.version < SCHEMA_VERSION:
                if not migrate:
                    _check_version(path, file, "migrate=False")
                _upgrade(path, lock_timeout_ms, file)
        finally:
            mutex.release()
    except BaseException:
        mutex.close()
        raise
    return Opened(mutex, None)


class Found(NamedTuple):
    version: int
    is_published: bool
    is_adopted: bool
    needs: file_id.Needs | None = None
    """The `Needs` of a schema that this program does not know."""
    is_of_development: bool = False
    """Whether a version before 1.0 made it (`file_id.is_of_development`)."""


def identify(path: str, busy_timeout_ms: int, *, by_header: bool = False) -> Found | None:
    """Return the kind and schema of the file; None if it is absent or empty. With `by_header`, only the
    header is read if it states the newest schema. Raises NotAnEosdbFileError for a file of another kind,
    CorruptDatabaseError for a damaged one."""
    file, connection = _looked_at(path, busy_timeout_ms, by_header=by_header)
    _close(connection)
    return file


def _close(connection: sqlite3.Connection | None) -> None:
    if connection is not None:
        connection.close()


def _looked_at(
    path: str, busy_timeout_ms: int, *, at_rest: bool = False, by_header: bool = False
) -> tuple[Found | None, sqlite3.Connection | None]:
    """Do what `identify` does, and return also the read-only connection, which the caller closes."""
    # Let SQLite open the file: if this process closed a descriptor of the file, it would lose all its POSIX
    # locks on it, also those of other connections.
    try:
        size = os.stat(path).st_size
    except FileNotFoundError:
        return None, None
    except OSError as error:
        raise errors.StorageError(f"{path} cannot be read: {error.strerror}") from None
    if os.path.isdir(path):
        raise errors.NotAnEosdbFileError(f"{path} is a folder; give the path of a file")
    if not os.access(path, os.R_OK):
        raise errors.StorageError(f"{path} is not readable by this user")
    if size == 0 and not os.path.exists(path + "-wal"):
        return None, None
    content: newest.Kind | None = None
    try:
        with translated(path):
            connection = connect(path, busy_timeout_ms, read_only=True, at_rest=at_rest)
            is_kept = False
            try:
                content = newest.of(connection)
                if content.version is not None:
                    if by_header and content == newest.Kind(APPLICATION_ID, SCHEMA_VERSION, False):
                        found = Found(SCHEMA_VERSION, not says_wal(path), False)
                    else:
                        found = _found(connection, path, content, content.version)
                    is_kept = True
                    return found, connection
            finally:
                if not is_kept:
                    connection.close()
    except errors.CorruptDatabaseError as error:
        version = _version_in_header(path) if content is None else content.version
        if version is None:
            raise errors.NotAnEosdbFileError(f"{error}; eosdb did not touch it") from error
        if version <= SCHEMA_VERSION:
            raise
        # This file is of a newer eosdb, with SQL that this SQLite may not know.
        raise errors.SchemaTooNewError(_too_new(path, version, None)) from error
    if content.is_empty:
        return None, None
    raise errors.NotAnEosdbFileError(
        f"{path} is a SQLite database of another application (application_id {content.application_id:#x}, "
        f"expected {APPLICATION_ID:#x}); eosdb did not touch it. To add eosdb's tables to it: `eosdb init "
        "--adopt FILE`, or eosdb.connect(path, adopt=True)"
    )


def _found(connection: sqlite3.Connection, path: str, content: newest.Kind, version: int) -> Found:
    if version < 0:
        raise errors.CorruptDatabaseError(
            f"{path} does not store the schema of eosdb's tables in {newest.ALEMBICS}; restore a backup"
        )
    needs = file_id.needs(connection)
    found = Found(version, not is_in_wal_mode(connection, path), content.is_adopted)
    if file_id.is_of_development(version, needs):
        return found._replace(is_of_development=True)
    if version > SCHEMA_VERSION:
        return found._replace(needs=needs)
    check_journal(connection, path)
    return found


def _version_in_header(path: str) -> int | None:
    """Return the schema of a file that SQLite cannot read; None if its header is not eosdb's."""
    header = head(path, 72)
    is_ours = int.from_bytes(header[68:72], "big") == APPLICATION_ID
    return int.from_bytes(header[60:64], "big") if is_ours else None


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


def check_not_upgraded(
    connection: sqlite3.Connection, path: str, *, read_only: bool = False
) -> None:
    """Raises SchemaTooNewError if another program upgraded the file while it was closed for a fork."""
    version = newest.of(connection).version
    if version is not None and version > SCHEMA_VERSION:
        if read_only and _is_readable(file_id.needs(connection)):
            return
        raise errors.SchemaTooNewError(
            f"{path} was upgraded to schema {version} while it was open here, and this eosdb knows up to "
            f"{SCHEMA_VERSION}; nothing was written. Open it again with a newer eosdb"
        )


def check_journal(connection: sqlite3.Connection, path: str) -> None:
    """Raises CorruptDatabaseError if the file has no journal, since its header alone was checked before."""
    try:
        connection.execute("SELECT max(position) FROM eosdb_journal").fetchone()
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):
            raise
        raise errors.CorruptDatabaseError(
            f"{path} is marked as an eosdb file but has no journal; restore a backup"
        ) from error


def check_newest(connection: sqlite3.Connection, path: str) -> None:
    """Check that a program's own connection is to a file in WAL mode with eosdb's newest schema. Raises the
    errors of `open_file`."""
    content = newest.of(connection)
    assert content.version is not None
    if content.version == SCHEMA_VERSION:
        file = Found(SCHEMA_VERSION, not is_in_wal_mode(connection, path), content.is_adopted)
    else:
        file = _found(connection, path, content, content.version)
    _check_not_of_development(path, file)
    _check_not_published(path, file)
    _check_version(path, file, "a transaction of another program's")


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
            f"{path} does not exist; create it with `eosdb init` or create=True"
        )


def _was_open_to_write(path: str) -> bool:
    """Whether the lock file has content, which is written when a program opens the file for writing."""
    lock = path + LOCK
    return os.path.exists(lock) and os.path.getsize(lock) > 0


def _check_not_published(path: str, file: Found | None) -> None:
    if file is None or not file.is_published:
        return
    if _was_open_to_write(path):
        raise errors.ReadOnlyDatabaseError(
            f"{path} is in SQLite's rollback-journal mode: another program has switched it from WAL mode, "
            f"or a published copy has replaced it. {_BACK}; if it is a copy, write to the original file "
            "instead"
        )
    raise errors.ReadOnlyDatabaseError(
        f"{path} is a published copy (in SQLite's rollback-journal mode), which is read-only. Read it with "
        "read_only=True, and write to the original file. For a writable copy, use `eosdb restore` (new "
        "id), or `eosdb backup` to replace a lost original (same id). If it is no copy, another program "
        f"has switched its journal mode: {_BACK}"
    )


def _check_may_write(path: str, file: Found | None) -> None:
    """Raises ReadOnlyDatabaseError for a published copy, SchemaTooNewError for a newer schema, and
    SchemaOutOfDateError for a file of a development version."""
    _check_not_of_development(path, file)
    _check_not_published(path, file)
    if file is not None and file.version > SCHEMA_VERSION:
        raise errors.SchemaTooNewError(_too_new(path, file.version, file.needs))


# decisions/0072: the numbers 1 to 11 are used again, so eosdb_file tells such a file from a release's.
def _check_not_of_development(path: str, file: Found | None) -> None:
    if file is not None and file.is_of_development:
        raise errors.SchemaOutOfDateError(
            f"{path} has schema {file.version} of a development version of eosdb, from before 1.0, and no "
            "release can read it; it was not changed. Read its records with the version that wrote it, and "
            "send them to a new file"
        )


def _too_new(path: str, version: int, needs: file_id.Needs | None) -> str:
    release = "" if needs is None else f" (eosdb {needs.first_release} and later)"
    return (
        f"{path} has schema {version}{release}, this eosdb knows up to {SCHEMA_VERSION}; upgrade eosdb"
        + (", or read the file with read_only=True" if _is_readable(needs) else "")
    )


def _is_readable(needs: file_id.Needs | None) -> bool:
    """Whether this program can read a file of a newer schema."""
    return needs is not None and needs.read_version <= SCHEMA_VERSION


def check_known(connection: sqlite3.Connection) -> None:
    """Raises SchemaTooNewError for a file of a newer schema: it can be read, but may have events that this
    program cannot fold."""
    version = newest.of(connection).version
    if version is not None and version > SCHEMA_VERSION:
        ((path,),) = connection.execute("SELECT file FROM pragma_database_list WHERE name = 'main'")
        needs = file_id.needs(connection)
        release = "" if needs is None else f" to {needs.first_release} or later"
        raise errors.SchemaTooNewError(
            f"{path} has schema {version}, and this eosdb knows up to {SCHEMA_VERSION}: it can read the "
            f"records, but to verify, rebuild or restore the file, upgrade eosdb{release}"
        )


def _check_version(path: str, file: Found | None, because: str) -> None:
    error: errors.EosdbError
    _check_not_of_development(path, file)
    version = 0 if file is None else file.version
    if file is None:
        error = errors.NotAnEosdbFileError(
            f"{path} is empty; make it an eosdb file with `eosdb init`"
        )
    elif file.is_published and version < SCHEMA_VERSION:
        error = errors.SchemaOutOfDateError(
            f"{path} is a published copy of schema {version}, this eosdb reads {SCHEMA_VERSION}; publish "
            "it again with this version, or say `PRAGMA journal_mode=WAL` in any SQLite client to a copy "
            "of it, and open that"
        )
    elif version > SCHEMA_VERSION:
        error = errors.SchemaTooNewError(_too_new(path, version, file.needs))
    elif version < SCHEMA_VERSION:
        error = errors.SchemaOutOfDateError(
            f"{path} has schema {version}, this eosdb writes {SCHEMA_VERSION}, and {because} prevents the "
            "upgrade; run `eosdb backup`, and then `eosdb migrate` or open it with migrate=True"
        )
    else:
        return
    raise error
