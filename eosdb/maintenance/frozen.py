"""A frozen copy of the file for long reads, with the file's metadata of the same instant."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from typing import Final

from eosdb.admin import summary
from eosdb.admin.summary import FileSummary
from eosdb.coordinator.authorizer import Authorizer
from eosdb.errors import StorageError
from eosdb.maintenance.claims import claim
from eosdb.maintenance.copies import copy_pages
from eosdb.store.file.failures import translated
from eosdb.store.schema.new_file import FORMAT_AT, ROLLBACK_FORMAT
from eosdb.store.store import Store

_EVERYTHING: Final = Authorizer("User:publisher", "User:publisher")
"""Authorises all topics: a copy is complete, whoever makes it."""


def freeze(store: Store, folder: str | None) -> tuple[int, FileSummary]:
    """Create a page-for-page copy of the file; returns its descriptor and the facts of the same instant.

    The copy needs neither WAL nor shared memory, and has no name once it is complete, so it disappears
    with the descriptor. It is created in `folder`, or beside the file; what a killed process left of one
    is reused. Raises StorageError and DatabaseFullError.
    """
    name = f"{os.path.basename(store.path)}.publishing"
    path = os.path.join(folder or os.path.dirname(store.path), name)
    try:
        descriptor = claim(path)
        try:
            os.ftruncate(descriptor, 0)
        except BaseException:
            os.close(descriptor)  # Else the next attempt of this process waits for it.
            raise
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}") from error
    try:
        try:
            with store.read() as source:
                facts = summary.of(source, _EVERYTHING)
                with translated(path), contextlib.closing(sqlite3.connect(path)) as target:
                    # Only this process reads the copy, so it needs neither durability nor rollback.
                    target.execute("PRAGMA journal_mode=OFF")
                    target.execute("PRAGMA synchronous=OFF")
                    copy_pages(source, target)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(path)
        os.pwrite(descriptor, ROLLBACK_FORMAT, FORMAT_AT.start)
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        return descriptor, facts
    except BaseException:
        os.close(descriptor)
        raise
