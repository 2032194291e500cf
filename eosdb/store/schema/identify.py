"""Identifies a file, and refuses those that this program cannot use: the kind and schema of a file, and the
errors that say why.

`application_id` in the header marks an eosdb file, `user_version` is its newest revision; an adopted file
is identified by its tables (newest.py).

A writable file is in WAL mode from the start. A file in rollback-journal mode is a published copy with the
id and history of its source. Writes would give that id a second history, so the copy is read-only.
"""

from __future__ import annotations

import os
import sqlite3
from typing import Final, NamedTuple

from eosdb import errors
from eosdb.store.file.connection import connect, is_in_wal_mode, says_wal
from eosdb.store.file.failures import translated
from eosdb.store.schema import file_id, newest
from eosdb.store.schema.newest import APPLICATION_ID, SCHEMA_VERSION
from eosdb.system.descriptors import head
from eosdb.system.lock_file import LOCK

_BACK: Final = "`PRAGMA journal_mode=WAL` in any SQLite client switches it back"
_USUAL_PAGE: Final = 4096
"""Bytes; a file that another program made may have pages of another size."""


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
    file, connection = looked_at(path, busy_timeout_ms, by_header=by_header, is_glance=True)
    close(connection)
    return file


def close(connection: sqlite3.Connection | None) -> None:
    """Close the connection that `looked_at` has returned, if any."""
    if connection is not None:
        connection.close()


def looked_at(
    path: str,
    busy_timeout_ms: int,
    *,
    at_rest: bool = False,
    by_header: bool = False,
    is_glance: bool = False,
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
            connection = connect(
                path, busy_timeout_ms, read_only=True, at_rest=at_rest, is_glance=is_glance
            )
            is_kept = False
            try:
                content = newest.of(connection)
                if content.version is not None:
                    if size % _USUAL_PAGE:
                        _check_length(connection, path, size)
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


def _check_length(connection: sqlite3.Connection, path: str, size: int) -> None:
    """Raises CorruptDatabaseError for a file of `size` bytes that ends within a page. SQLite reads such a
    page's missing bytes as zeros, and a checkpoint would write these."""
    (page,) = connection.execute("PRAGMA page_size").fetchone()
    logs = [path + end for end in ("-wal", "-journal")]
    if size % page and not any(os.path.exists(log) and os.path.getsize(log) for log in logs):
        raise errors.CorruptDatabaseError(
            f"{path} is cut short: it has {size} bytes, and its last page of {page} bytes ends after "
            f"{size % page}; restore a backup"
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


def check_not_upgraded(
    connection: sqlite3.Connection, path: str, *, read_only: bool = False
) -> None:
    """Raises SchemaTooNewError if another program upgraded the file while it was closed for a fork."""
    version = newest.of(connection).version
    if version is not None and version > SCHEMA_VERSION:
        if read_only and is_readable(file_id.needs(connection)):
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
    check_version_of(path, file, "a transaction of another program's")


def was_open_to_write(path: str) -> bool:
    """Whether the lock file has content, which is written when a program opens the file for writing."""
    lock = path + LOCK
    return os.path.exists(lock) and os.path.getsize(lock) > 0


def _check_not_published(path: str, file: Found | None) -> None:
    if file is None or not file.is_published:
        return
    if was_open_to_write(path):
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


def check_may_write(path: str, file: Found | None) -> None:
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
        + (", or read the file with read_only=True" if is_readable(needs) else "")
    )


def is_readable(needs: file_id.Needs | None) -> bool:
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


def check_version_of(path: str, file: Found | None, because: str) -> None:
    """Raises the error for a file whose schema is not the newest; `because` prevents its upgrade."""
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
            f"{path} has schema {version}, this eosdb writes {SCHEMA_VERSION}; neither {because} nor a "
            "command that only reads upgrades it. Run `eosdb backup`, then `eosdb migrate` or migrate=True"
        )
    else:
        return
    raise error
