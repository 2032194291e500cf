"""Compacts a file: rewrites it without its free pages, while readers and other processes have it open.

SQLite's VACUUM does this in one statement. These two steps report progress, can be interrupted, and use the
file's own disk: the content is written to a second file, and then copied back page by page, in one commit.
Meanwhile other writers wait, and readers keep their snapshots.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Iterator
from typing import Final

from eosdb.broker.core import Core
from eosdb.errors import DatabaseFullError, DatabaseLockedError
from eosdb.model.failpoints import Failpoint, reach
from eosdb.model.progress import Progress, report_progress
from eosdb.model.reports import CompactReport
from eosdb.store import space, wal
from eosdb.store.file import failures, forking
from eosdb.store.file.connection import connect, hearing
from eosdb.store.file.failures import translated
from eosdb.store.schema.new_file import forget_unfinished, unfinished_name
from eosdb.store.store import Store
from eosdb.store.writing.writer import Writer

_PAGES_A_STEP: Final = 256
"""Less than SQLite's page cache, so that the first step writes nothing."""


def compact(core: Core, *, on_progress: Progress | None = None) -> CompactReport:
    """Rewrite the file without its free pages, in one commit, so that it shrinks.

    Readers are not affected; writers wait until it is done, at most `lock_timeout_ms`. It temporarily needs
    disk space of twice the compacted file. `on_progress(done, total)` counts pages; if it raises, nothing
    changes. Raises DatabaseFullError, saying how much space is needed, and DatabaseLockedError.
    """
    store, start = core.store, core.clock.monotonic_ms()
    before = report_progress(on_progress, lambda report: _compact(store, report))
    is_held = os.path.getsize(f"{store.path}-wal") > 0
    return CompactReport(
        bytes_before=before,
        bytes_after=os.path.getsize(store.path),
        held_by=(wal.readers(store.path) or failures.UNSEEN) if is_held else "",
        elapsed_s=(core.clock.monotonic_ms() - start) / 1000,
    )


def _compact(store: Store, report: Progress) -> int:
    path, patience_ms = store.path, store.lock_timeout_ms
    with (
        forking.at_work(),
        store.alone() as writer,
        contextlib.closing(connect(path, patience_ms)) as reader,
    ):
        pages = space.pages(reader)
        used = pages.total - pages.free
        with _room(path, used * pages.size):
            try:
                version = _write_beside(writer, reader, path, used, report)
                reach(Failpoint.COMPACT_WRITTEN)
                with contextlib.closing(connect(path, patience_ms)) as target:
                    _copy_over(writer, reader, target, path, version, used, report)
            finally:
                forget_unfinished(path)
        reach(Failpoint.COMPACT_COMMITTED)
        writer.wrote(used * pages.size)
        writer.shrink_files()
    return pages.total * pages.size


def _write_beside(
    writer: Writer, reader: sqlite3.Connection, path: str, used: int, report: Progress
) -> int:
    """Write the file's content without free pages to a second file. Returns the `_version` of the content.
    Progress counts pages: first written to the second file, then copied back."""
    forget_unfinished(path)
    (page_size,) = reader.execute("PRAGMA page_size").fetchone()

    def look() -> None:
        with contextlib.suppress(FileNotFoundError):
            written = os.path.getsize(unfinished_name(path)) // page_size
            report(min(written, used), 2 * used)

    report(0, 2 * used)
    try:
        # SQLite's write lock stops all programs from changing the content; the writer mutex stops only
        # eosdb's.
        writer.begin(sync=True, careful=False)
        version = _version(reader)
        with hearing(reader, look):
            reader.execute("VACUUM INTO ?", (unfinished_name(path),))
    finally:
        writer.roll_back()
    return version


def _version(reader: sqlite3.Connection) -> int:
    """A number that changes with every commit of another connection."""
    return int(reader.execute("PRAGMA data_version").fetchone()[0])


def _copy_over(
    writer: Writer,
    reader: sqlite3.Connection,
    target: sqlite3.Connection,
    path: str,
    version: int,
    used: int,
    report: Progress,
) -> None:
    """Copy every page of the second file over the file, in one commit."""
    target.execute(f"PRAGMA synchronous={writer.durable}")
    with contextlib.closing(connect(unfinished_name(path), 0)) as source:
        pages = space.pages(source).total

        is_first = True

        def copied(status: int, left: int, _: int) -> None:
            # A changed version means a write, but only before the first step. Later the backup holds
            # SQLite's lock, and changes the version itself when it restarts the WAL.
            nonlocal is_first
            is_busy = status in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if is_busy or (is_first and _version(reader) != version):
                raise DatabaseLockedError(
                    f"{path}: another program, which does not use eosdb's lock file, wrote the file while "
                    "it was compacted. Nothing was changed; try again"
                )
            is_first = False
            if left:
                reach(Failpoint.COMPACT_COPYING)
            report(2 * used - left * used // pages, 2 * used)

        try:
            source.backup(target, pages=max(1, min(_PAGES_A_STEP, pages // 2)), progress=copied)
        except sqlite3.Error as error:
            writer.note(error)
            raise


@contextlib.contextmanager
def _room(path: str, size: int) -> Iterator[None]:
    """Check the free disk space first. If the disk fills in the block, the error names the needed space."""
    needed = (
        f"compacting temporarily needs {2 * size} bytes of disk space: for the content in a second file, "
        "and in the WAL"
    )
    free = shutil.disk_usage(os.path.dirname(path) or ".").free
    if free < 2 * size:
        raise DatabaseFullError(
            f"{path}: {needed}; found {free}. Nothing was written, make room and try again"
        )
    try:
        with translated(path):
            yield
    except DatabaseFullError as error:
        raise DatabaseFullError(f"{error}; {needed}") from error
