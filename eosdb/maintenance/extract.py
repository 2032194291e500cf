"""Moves eosdb's tables out of another application's file into a separate file.

The new file appears complete, verified and durable; then one commit drops the tables here. In between, both
files have them, so after a kill a second run finds the new file and continues. Other programs cannot write
eosdb's tables meanwhile, but the owner's programs can write their own.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from typing import Final

from eosdb.broker.core import Core
from eosdb.coordinator.projection import apply
from eosdb.errors import CorruptDatabaseError, EosdbError, IllegalStateError, StorageError
from eosdb.log import json_views
from eosdb.maintenance import verify
from eosdb.model.clock import Clock
from eosdb.model.failpoints import Failpoint, reach
from eosdb.model.progress import Progress, report_progress
from eosdb.model.validation import check_path
from eosdb.store import journal
from eosdb.store.file import forking
from eosdb.store.file.connection import connect, hearing, uri
from eosdb.store.file.failures import translated
from eosdb.store.file.locks import WriterMutex
from eosdb.store.schema import file_id, guard, identify, new_file, newest
from eosdb.store.store import Store
from eosdb.store.writing.writer import Writer
from eosdb.system import birth
from eosdb.system.road import road

_LOCK: Final = "-lock"


def extract(
    core: Core, target: str | os.PathLike[str], *, on_progress: Progress | None = None
) -> int:
    """Move eosdb's tables, with the file id and the whole history, from this file, which was adopted or has
    tables of its own, to a new file. Returns the position of the newest event.

    Afterwards this file is the other application's: close this object and all others that have it open. The
    new file is complete, verified and durable before anything is dropped here, in one commit; if the
    process is killed in between, call it again.

    `on_progress(done, total)` counts verified events; if it raises, nothing changes. Raises
    IllegalStateError if `target` exists, if views, triggers or foreign keys of the owner use eosdb's
    tables, or if the file has no tables but eosdb's.
    """
    path = check_path("target", target)
    return report_progress(
        on_progress, lambda report: _extract(core.store, core.clock, path, report)
    )


def _extract(store: Store, clock: Clock, target: str, report: Progress) -> int:
    path, patience_ms = store.path, store.lock_timeout_ms
    with (
        forking.at_work(),
        store.alone() as writer,
        contextlib.closing(connect(path, patience_ms, read_only=True)) as reader,
    ):
        _check_parts(path, reader)
        mark = journal.mark(reader)
        if os.path.exists(target) and os.path.samefile(path, target):
            raise IllegalStateError(f"{target} is the same file; give the path of a new one")
        if os.path.lexists(target):
            _check_twin(path, target, mark, clock, patience_ms, report)
        else:
            _make(path, target, clock, patience_ms, report)
        # decisions/0044: if the process is killed here, a second run finds the new file and continues.
        reach(Failpoint.EXTRACT_LINKED)
        _drop(path, patience_ms, writer, mark)
        writer.wrote(0)
        writer.shrink_files()
    return mark.position


def _check_parts(path: str, connection: sqlite3.Connection) -> None:
    """Check that the file has objects of the owner, and that they do not need eosdb's."""
    if not guard.own_objects(connection) and not newest.of(connection).is_adopted:
        raise IllegalStateError(
            f"{path} has only eosdb's tables, so extracting them would leave nothing; `eosdb backup` makes "
            "a copy under another name"
        )
    if uses := guard.dependents(connection):
        raise IllegalStateError(
            f"{path}: these need eosdb's tables, so nothing was moved: {'; '.join(uses)}. Drop them first"
        )


def _check_twin(
    path: str, target: str, mark: journal.Mark, clock: Clock, patience_ms: int, report: Progress
) -> None:
    """Check that the file at `target` is an interrupted run's complete copy of the tables."""
    try:
        file = identify.identify(target, patience_ms)
        if file is None or file.is_published or file.is_adopted:
            why: str | None = "it is not an ordinary eosdb file"
        else:
            with _checked(target, clock, patience_ms, report) as connection:
                why = journal.departure(connection, str(mark))
                if why is None and mark.position and not journal.at(connection, mark.position):
                    why = f"its history does not go back to event {mark.position}"
    except EosdbError as error:
        why = str(error)
    if why is not None:
        raise IllegalStateError(
            f"{target} exists already, and is not a full copy of eosdb's tables in {path}: {why}. Nothing "
            "was changed; give a new path"
        )
    new_file.sync_folder(target)  # Durable before tables are dropped.


def _make(path: str, target: str, clock: Clock, patience_ms: int, report: Progress) -> None:
    unfinished, had_lock = new_file.unfinished_name(target), os.path.exists(target + _LOCK)
    try:
        mutex = WriterMutex(target + _LOCK, patience_ms)
        try:
            mutex.acquire()
            new_file.forget_unfinished(target)
            with translated(target):
                _fill(unfinished, path, report)
            with _checked(unfinished, clock, patience_ms, report):
                pass
            _sync_in_wal_mode(unfinished)
            reach(Failpoint.EXTRACT_WRITTEN)
            new_file.remove_left_behind(target, sync=True)
            os.link(unfinished, target)
            new_file.sync_folder(target)
        finally:
            new_file.forget_unfinished(target)
            if not had_lock and not os.path.lexists(target):
                with contextlib.suppress(OSError):
                    mutex.remove_files()
            mutex.close()
    except FileExistsError:
        raise IllegalStateError(f"{target} has just been created by another program") from None
    except OSError as error:
        raise StorageError(f"{target} cannot be written: {error.strerror}") from error


def _fill(unfinished: str, path: str, report: Progress) -> None:
    with contextlib.closing(
        sqlite3.connect(uri(unfinished, "rwc"), uri=True, isolation_level=None)
    ) as new:
        new.execute(newest.GIVES_PAGES_BACK)
        new.execute("PRAGMA journal_mode=OFF")  # No rollback: a copy that fails is deleted.
        new.execute("PRAGMA synchronous=OFF")
        new.execute("ATTACH ? AS adopted", (uri(path, "ro"),))
        new.execute("BEGIN")
        last = journal.last_position(new)
        with hearing(new, lambda: report(0, last)):
            _copy_tables(new)
        new.execute("COMMIT")
        new.execute("DETACH adopted")  # Otherwise the views would match tables of both files.
        new.execute("BEGIN")
        json_views.make_all(new)
        newest.stamp(new, newest.SCHEMA_VERSION)
        # decisions/0094: the tables move, so their life goes on at the new place.
        file_id.settle(new, birth.identity(unfinished))
        new.execute("COMMIT")


def _copy_tables(new: sqlite3.Connection) -> None:
    """Copy the tables' rows, then create the indexes and triggers, which is faster."""
    wanted = newest.newest_schema()
    for table in newest.tables():
        new.execute(next(entry.sql for entry in wanted if entry.name == table))
        names = [f'"{name}"' for _, name, *_ in new.execute(f'PRAGMA main.table_info("{table}")')]
        columns = ", ".join(names)
        new.execute(
            f'INSERT INTO main."{table}" ({columns}) SELECT {columns} FROM adopted."{table}"'
        )
    for entry in wanted:
        if entry.type != "table":
            new.execute(entry.sql)


@contextlib.contextmanager
def _checked(
    path: str, clock: Clock, patience_ms: int, report: Progress
) -> Iterator[sqlite3.Connection]:
    """Verify the file, then yield a read connection on it."""
    store = Store(path, apply=apply, read_only=True, lock_timeout_ms=patience_ms)
    try:
        problems = verify.verified(store, clock, report).problems
        if problems:
            raise CorruptDatabaseError(
                f"eosdb's tables are damaged, so nothing was moved: {len(problems)} problems, the first is "
                f"{problems[0]}. `eosdb verify` shows them all"
            )
        with store.read() as connection:
            yield connection
    finally:
        store.close()


def _sync_in_wal_mode(path: str) -> None:
    """Switch the file to WAL mode and sync it. No other program has it open, so closing the descriptor
    drops no locks."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.pwrite(descriptor, new_file.WAL_FORMAT, new_file.FORMAT_AT.start)
        road.sync(descriptor)
    finally:
        os.close(descriptor)


def _drop(path: str, patience_ms: int, writer: Writer, mark: journal.Mark) -> None:
    """Drop all tables and views of eosdb's in one commit."""
    with contextlib.closing(connect(path, patience_ms)) as connection:
        connection.execute(f"PRAGMA synchronous={writer.durable}")
        connection.execute("BEGIN IMMEDIATE")
        try:
            _check_parts(path, connection)  # Check again: other programs ignore the mutex.
            if journal.mark(connection) != mark:
                raise IllegalStateError(f"{path} was written during the copy; run this again")
            was_adopted = newest.of(connection).is_adopted
            views = [*guard.typed_views(connection), *reversed(newest.views())]
            for name in views:
                connection.execute(f'DROP VIEW IF EXISTS "{name}"')
            for name in reversed(newest.tables()):
                connection.execute(f'DROP TABLE IF EXISTS "{name}"')
            if not was_adopted:
                connection.execute("PRAGMA application_id=0")
                connection.execute("PRAGMA user_version=0")
            reach(Failpoint.EXTRACT_DROPPED)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            writer.note(error)
            raise
        finally:
            connection.rollback()
