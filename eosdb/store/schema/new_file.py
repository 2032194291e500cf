"""Creates a file: writes it under another name, syncs it, then gives it its name. That takes two fsyncs.

Other programs see either no file or a complete one, also after a power loss. The caller holds the writer
mutex.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from typing import Final

from eosdb.errors import StorageError
from eosdb.model.failpoints import Failpoint, reach
from eosdb.store.file.connection import FORMAT_AT as FORMAT_AT
from eosdb.store.file.connection import WAL_FORMAT as WAL_FORMAT
from eosdb.store.file.failures import system_calls
from eosdb.store.schema import file_id
from eosdb.store.schema.newest import GIVES_PAGES_BACK, create
from eosdb.system import birth
from eosdb.system.road import road, sync_path

ROLLBACK_FORMAT: Final = b"\x01\x01"
"""The format of a file that needs neither WAL nor shared memory."""
_LEFT_BEHIND: Final = ("-wal", "-shm", "-journal")


def make(path: str, *, sync: bool) -> bool:
    """Create an empty eosdb file at an unused `path`; durable if `sync`. Returns False without an effect if
    the system does not support this. The caller then lets SQLite create the file. Raises StorageError if
    another program has just created one."""
    if not hasattr(sqlite3.Connection, "serialize"):
        return False
    unfinished = unfinished_name(path)
    try:
        _write(unfinished, sync=sync)
        reach(Failpoint.MIGRATION_APPLIED)
        # A deleted file may have left its WAL, and SQLite would read it into the new file.
        remove_left_behind(path, sync=sync)
        # A link fails if another program has just created the file; a rename would replace that file.
        os.link(unfinished, path)
    except FileExistsError:
        raise StorageError(
            f"{path} has just been created by another program; open it again"
        ) from None
    except OSError:
        return False
    finally:
        forget_unfinished(path)
    if sync:
        sync_folder(path)
    return True


def forget_unfinished(path: str) -> None:
    """Remove the remains of a process that was killed while it created or compacted the file."""
    for suffix in ("", "-journal"):
        with contextlib.suppress(OSError):
            os.unlink(unfinished_name(path) + suffix)


def sync_folder(path: str) -> None:
    """Make the file's name durable: without a sync of the directory, power loss removes a new entry."""
    with system_calls(path):
        sync_path(os.path.dirname(os.path.abspath(path)))


def unfinished_name(path: str) -> str:
    return f"{path}.eosdb-unfinished"


def _write(path: str, *, sync: bool) -> None:
    """Write a new file, which knows its place. No other process has it open, so closing a descriptor drops
    no locks."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), "wb") as f:
        f.write(_image(birth.identity(path)))
        f.seek(FORMAT_AT.start)
        f.write(WAL_FORMAT)
        f.flush()
        if sync:
            road.sync(f.fileno())


def remove_left_behind(path: str, *, sync: bool) -> None:
    """Remove the WAL, -shm and journal of an earlier file at `path`, as SQLite does; durably if `sync`."""
    stale = [path + suffix for suffix in _LEFT_BEHIND if os.path.lexists(path + suffix)]
    for name in stale:
        os.unlink(name)
    if stale and sync:
        sync_folder(path)


def _image(place: str) -> bytes:
    """Return the bytes of a new file at this place with a new id, not yet in WAL mode."""
    try:
        try:
            template = _idle.pop()
        except IndexError:
            template = _template()
        file_id.renew(template, place)
        data = template.serialize()
    except SystemError as error:  # Python raises this if SQLite gets no memory.
        raise MemoryError from error
    _idle.append(template)
    return data


# A database in memory that is the template of new files; reused, because parsing the schema is slow.
_idle: Final[list[sqlite3.Connection]] = []


def _template() -> sqlite3.Connection:
    template = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as made:
        made.execute(GIVES_PAGES_BACK)
        create(made)
        # A deserialized database is one piece of memory, so `serialize` does not gather its pages.
        template.deserialize(made.serialize())
    return template
