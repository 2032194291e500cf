"""Copies a file while it is written: backups by SQLite's online backup, and published copies for other
hosts.

Both get their name only when they are complete and durable.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from typing import Final

from eosdb.admin import summary
from eosdb.admin.summary import FileSummary
from eosdb.broker.core import Core
from eosdb.coordinator.authorizer import Authorizer
from eosdb.errors import ConfigError, EosdbError, IllegalStateError, StorageError
from eosdb.model.failpoints import Failpoint, reach
from eosdb.model.progress import Progress, report_progress, silent
from eosdb.model.validation import check_path, check_text
from eosdb.store.file.connection import connect, hearing
from eosdb.store.file.failures import translate_system, translated
from eosdb.store.file.file_system import LOCKS
from eosdb.store.schema import file_id
from eosdb.store.schema.identify import identify
from eosdb.store.schema.new_file import FORMAT_AT, ROLLBACK_FORMAT, sync_folder
from eosdb.store.store import Store
from eosdb.system.lock_file import LOCK
from eosdb.system.road import sync_path

_PARTS: Final = ("", "-wal", "-shm", "-journal", *reversed(LOCKS))
"""Suffixes of an attempt's files. The lock, which every attempt has, is removed last."""
_LOCK_NAME: Final = re.compile(rf".+\.unfinished-[0-9a-f]{{8}}{LOCK}", re.DOTALL)


def claim(path: str) -> int:
    """Open the file at `path`, creating it if necessary, and claim it: no other program can claim it
    before this process has closed it or died. Raises OSError, also for a link, whose target would be
    overwritten.

    The claim is a kernel lock (`flock`). On NFS it holds for all hosts, unless the folder is mounted with
    `nolock` or `local_lock`: then a copy that another host is writing looks abandoned.
    """
    while (descriptor := _claimed(path, os.O_CREAT, fcntl.LOCK_EX)) is None:
        pass  # Meanwhile the path names another file.
    return descriptor


@contextlib.contextmanager
def unfinished(target: str) -> Iterator[str]:
    """Yield an unused path beside `target` for its unfinished file, which is removed after the block. Files
    of killed processes in the folder are removed, too. Raises OSError."""
    _remove_abandoned(os.path.dirname(os.path.abspath(target)))
    path = f"{target}.unfinished-{secrets.token_hex(4)}"
    descriptor = -1
    try:
        # A second file has the claim: closing the first would drop SQLite's locks. On NFS both collide.
        descriptor = claim(path + LOCK)
        yield path
    finally:  # An interrupted claim may have created the file. No other process uses its random name.
        try:
            _remove(path)
        finally:
            if descriptor >= 0:
                os.close(descriptor)


def _remove_abandoned(folder: str) -> None:
    names: list[str] = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        names = [entry.path for entry in entries if _LOCK_NAME.fullmatch(entry.name)]
    for name in names:
        with contextlib.suppress(OSError):  # Claimed, owned by another user, or gone.
            descriptor = _claimed(name, 0, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if descriptor is not None:
                try:
                    _remove(name.removesuffix(LOCK))
                finally:
                    os.close(descriptor)


def _remove(path: str) -> None:
    for part in _PARTS:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path + part)


def _claimed(path: str, flags: int, operation: int) -> int | None:
    """Return a descriptor with the claim; None if `path` no longer leads to the claimed file."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
    try:
        fcntl.flock(descriptor, operation)
        if os.path.exists(path) and os.path.samestat(os.fstat(descriptor), os.stat(path)):
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


_TIMEOUT_MS: Final = 30_000
_PAGES_A_STEP: Final = 4_096
"""16 MiB: steps of this size have no measurable cost, and Python can be interrupted between them."""


def backup(
    core: Core, target: str | os.PathLike[str], *, on_progress: Progress | None = None
) -> None:
    """Copy the current state of the file to `target`, which appears complete or not at all.

    `on_progress(done, total)` counts pages; if it raises, there is no copy. Raises IllegalStateError if
    `target` exists.
    """
    path = check_path("target", target)

    def work(report: Progress) -> None:
        with core.store.read() as connection:
            copy(connection, path, report)

    report_progress(on_progress, work)


def backup_of_other_schema(path: str, target: str, *, on_progress: Progress | None = None) -> None:
    """Copy an eosdb file that this version cannot open, because its schema is older or newer, as `backup`
    does. So there is a copy before the upgrade."""
    with (
        translated(path),
        contextlib.closing(connect(path, _TIMEOUT_MS, read_only=True)) as source,
        hearing(source),
    ):
        source.execute("BEGIN")
        report_progress(on_progress, lambda report: copy(source, target, report))


def publish(store: Store, target: str) -> None:
    """Publish the current state of the file to `target`, replacing any earlier copy there: a file that
    needs neither WAL nor shared memory, so that other hosts can read it.

    Readers of the previous copy keep reading it. `target` is complete and durable, or unchanged. Raises
    StorageError and DatabaseFullError, IllegalStateError if `target` is an ordinary eosdb file, and
    ConfigError for a name that is not UTF-8, because SQLite creates the file.
    """
    check_text("target", target, ConfigError)
    if os.path.exists(target) and not os.path.isfile(target) and not os.path.isdir(target):
        raise StorageError(f"{target} is a device or a pipe, expected a file or a new name")
    if _is_written(target, store.lock_timeout_ms):
        raise IllegalStateError(
            f"{target} is an eosdb file and not a published copy; publishing would overwrite it. Give "
            "another name, or remove it first"
        )
    with (
        _appearing(target, os.rename) as unfinished,
        # VACUUM INTO takes its own snapshot, so it needs a connection outside a transaction.
        contextlib.closing(
            connect(store.path, store.lock_timeout_ms, read_only=True)
        ) as connection,
        hearing(connection),
    ):
        connection.execute("VACUUM INTO ?", (unfinished,))


def _is_written(path: str, busy_timeout_ms: int) -> bool:
    """Whether the path is an ordinary eosdb file: neither a published copy nor something else."""
    try:
        file = identify(path, busy_timeout_ms)
    except EosdbError:
        return False
    return file is not None and not file.is_published


def copy_pages(
    source: sqlite3.Connection, target: sqlite3.Connection, on_progress: Progress = silent
) -> None:
    source.backup(
        target,
        pages=_PAGES_A_STEP,
        progress=lambda _, left, total: on_progress(total - left, total),
    )


def page_count(source: sqlite3.Connection) -> int:
    """Return the number of pages, and thereby start the transaction's snapshot of these pages."""
    (pages,) = source.execute("SELECT page_count FROM pragma_page_count").fetchone()
    return int(pages)


def copy(
    source: sqlite3.Connection,
    target: str,
    on_progress: Progress = silent,
    change: Callable[[sqlite3.Connection], None] | None = None,
) -> None:
    """Copy `source`'s snapshot to the new file `target`, apply `change` to the copy, and publish it.

    `source` is in a transaction, so the copy has no pages that others write between two steps.
    `on_progress` counts pages. `target` appears complete and durable, or not at all. Raises
    IllegalStateError if it exists, and StorageError or DatabaseFullError if it cannot be written.
    """
    if os.path.exists(target):
        raise IllegalStateError(
            f"{target} exists already; a copy never overwrites, give a new path"
        )
    on_progress(0, page_count(source))
    with (
        _appearing(target, os.link) as unfinished,
        contextlib.closing(sqlite3.connect(unfinished, isolation_level=None)) as connection,
    ):
        copy_pages(source, connection, on_progress)
        if change is not None:
            change(connection)
        file_id.settle(connection, file_id.COPIED)  # decisions/0094
        # If the source is a published copy, the new file is an ordinary file in WAL mode.
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@contextlib.contextmanager
def _appearing(target: str, put: Callable[[str, str], None]) -> Iterator[str]:
    """Yield a path for the block to write. Then sync that file, and call `put` to name it `target`."""
    try:
        with unfinished(target) as path:
            with translated(target):
                yield path
            sync_path(path, os.O_RDWR)
            reach(Failpoint.COPY_WRITTEN)
            put(path, target)
            sync_folder(target)
    except FileExistsError:
        raise IllegalStateError(f"{target} has just been created by another program") from None
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise StorageError(
            f"{target} cannot be written: {error.strerror}. Expected a file in an existing folder"
        ) from error
    except OSError as error:
        raise translate_system(error, target) from error


_EVERYTHING: Final = Authorizer("User:publisher", "User:publisher")
"""Authorises all topics, so that every copy is complete."""


def freeze(store: Store, folder: str | None) -> tuple[int, FileSummary]:
    """Create a page-for-page copy of the file. Returns its descriptor, and a summary of the same snapshot.

    The copy needs neither WAL nor shared memory, and has no name once it is complete, so it disappears with
    the descriptor. It is created in `folder`, or beside the file; the file of a killed process is reused.
    Raises StorageError and DatabaseFullError.
    """
    name = f"{os.path.basename(store.path)}.publishing"
    path = os.path.join(folder or os.path.dirname(store.path), name)
    try:
        descriptor = claim(path)
        try:
            os.ftruncate(descriptor, 0)
        except BaseException:
            os.close(descriptor)  # Otherwise this claim would block the next attempt.
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
