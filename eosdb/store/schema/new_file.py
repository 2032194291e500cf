"""A new file: made beside its path from a ready image, synced, and then given its name.

Other programs see no file or a whole one, and so does the next start after power loss, for two fsyncs in
all. The caller holds the writer mutex.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from functools import lru_cache
from typing import Final

from eosdb.errors import StorageError
from eosdb.model.failpoints import Failpoint, reach
from eosdb.store.file.failures import system_calls
from eosdb.store.schema import file_id
from eosdb.store.schema.newest import GIVES_PAGES_BACK, create

FORMAT_AT: Final = slice(18, 20)
WAL_FORMAT: Final = b"\x02\x02"
"""SQLite's file format: the versions for writing and reading; 2 is a file in WAL mode."""
ROLLBACK_FORMAT: Final = b"\x01\x01"
"""A file that needs neither WAL nor shared memory."""
_LEFT_BEHIND: Final = ("-wal", "-shm", "-journal")


def make(path: str, *, sync: bool) -> bool:
    """Make an empty eosdb file appear at `path`, where there is none; durable if `sync`.

    False, with nothing done, where the system does not support this; then let SQLite make the file, or
    report what is wrong. Raises StorageError when another program has just made one.
    """
    image = _image()
    if image is None:
        return False
    data = _with_own_id(image)
    unfinished = unfinished_name(path)
    try:
        _write(unfinished, data, sync=sync)
        reach(Failpoint.MIGRATION_APPLIED)
        # A WAL that a deleted file left behind would be read into the new one.
        remove_left_behind(path, sync=sync)
        # Not renamed: that would replace what another program makes at this moment.
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
    """Remove what a process left that was killed while making the file, or while compacting it."""
    for suffix in ("", "-journal"):
        with contextlib.suppress(OSError):
            os.unlink(unfinished_name(path) + suffix)


def sync_folder(path: str) -> None:
    """Make the file's name durable: a new directory entry survives power loss only when synced."""
    with system_calls(path):
        descriptor = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def unfinished_name(path: str) -> str:
    """Where a file is made that is to become the one at `path`."""
    return f"{path}.eosdb-unfinished"


def _write(path: str, data: bytes, *, sync: bool) -> None:
    """A new file that nobody else has open, so that closing a descriptor of it drops no locks."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), "wb") as f:
        f.write(data)
        f.flush()
        if sync:
            os.fsync(f.fileno())


def remove_left_behind(path: str, *, sync: bool) -> None:
    """As SQLite does when it makes a file; durably, before the new file appears."""
    found = [path + suffix for suffix in _LEFT_BEHIND if os.path.lexists(path + suffix)]
    for name in found:
        os.unlink(name)
    if found and sync:
        sync_folder(path)


def _with_own_id(image: bytes) -> bytes:
    """The bytes of a new file: no two have the same id."""
    scratch = sqlite3.connect(":memory:", isolation_level=None)
    try:
        scratch.deserialize(image)
        file_id.renew(scratch)
        data = bytearray(scratch.serialize())
    finally:
        scratch.close()
    data[FORMAT_AT] = WAL_FORMAT
    return bytes(data)


@lru_cache(maxsize=1)
def _image() -> bytes | None:
    """The image that all new files begin with; None where Python's sqlite3 cannot serialize a
    database."""
    scratch = sqlite3.connect(":memory:", isolation_level=None)
    try:
        if not hasattr(scratch, "serialize"):
            return None
        scratch.execute(GIVES_PAGES_BACK)
        scratch.execute("BEGIN")
        create(scratch)
        scratch.execute("COMMIT")
        return scratch.serialize()
    finally:
        scratch.close()
