"""Opens driver connections with the settings eosdb needs, and makes long statements interruptible."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from eosdb.errors import IllegalStateError, StorageError
from eosdb.model.clock import SystemClock, real_ns
from eosdb.native import accelerator
from eosdb.store.file.forking import check_not_inherited
from eosdb.store.file.presence import FORMAT_AT as FORMAT_AT
from eosdb.store.file.presence import WAL_FORMAT as WAL_FORMAT
from eosdb.store.file.presence import PresentConnection
from eosdb.system.descriptors import descriptor_of
from eosdb.system.road import road

WAL_LIMIT_BYTES: Final = 64 * 1024 * 1024
OLDEST_SQLITE: Final = (3, 37, 0)
"""The first version with STRICT tables."""
_UNTRUSTED: Final = {
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1_000,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
}
_CLOCK: Final = SystemClock()
_LONGEST_PAUSE_MS: Final = 50
# The SQL comment makes the text unique, so that the driver's statement cache keeps this statement.
_ROLL_BACK: Final = "ROLLBACK /* eosdb */"


def check_version(version: tuple[int, ...]) -> None:
    """Raises IllegalStateError if SQLite is too old to read eosdb's tables."""
    if version < OLDEST_SQLITE:
        raise IllegalStateError(
            f"eosdb needs SQLite {'.'.join(map(str, OLDEST_SQLITE))} or newer, and this Python has "
            f"{'.'.join(map(str, version))}: install a newer libsqlite3, or a Python that was "
            "built with one"
        )


def connect(
    path: str,
    busy_timeout_ms: int,
    *,
    read_only: bool = False,
    create: bool = False,
    at_rest: bool = False,
    is_glance: bool = False,
    factory: type[PresentConnection] = PresentConnection,
) -> PresentConnection:
    """Open a driver connection with eosdb's settings. With `at_rest` the caller guarantees that nobody
    writes to the file: SQLite then locks nothing and creates no files beside it. With `is_glance` it is
    closed as soon as the header is read, and need not keep others from the WAL. Raises sqlite3.Error, and
    IllegalStateError if a forked process cannot lock the file."""
    check_not_inherited(path)
    mode = "ro" if read_only else "rwc" if create else "rw"
    if at_rest:
        mode += "&immutable=1"
    elif read_only and not os.access(os.path.dirname(path) or ".", os.W_OK):
        # SQLite cannot create -shm in a read-only folder. Without -wal nobody writes, so no -shm is needed.
        mode += "" if os.path.exists(path + "-wal") else "&immutable=1"
    connection = accelerator.opened(
        lambda: sqlite3.connect(
            uri(path, mode),
            uri=True,
            timeout=busy_timeout_ms / 1000,
            isolation_level=None,  # eosdb issues BEGIN itself.
            check_same_thread=False,
            cached_statements=512,
            factory=factory,
        )
    )
    try:
        # Like a plain connection: else a migration that rebuilds a table would delete its children.
        connection.execute("PRAGMA foreign_keys=OFF")
        connection.execute("PRAGMA temp_store=MEMORY")
        if road.IS_PORTABLE:
            # On macOS, a plain fsync leaves data in the disk's cache.
            connection.execute("PRAGMA fullfsync=ON")
            connection.execute("PRAGMA checkpoint_fullfsync=ON")
        if not read_only:
            # decisions/0002: SQLite must not start checkpoints, because they need the writer mutex.
            connection.execute("PRAGMA wal_autocheckpoint=0")
            connection.execute(f"PRAGMA journal_size_limit={WAL_LIMIT_BYTES}")
        if not (
            create or at_rest or is_glance
        ):  # A new file may be locked for this connection alone.
            connection.execute("PRAGMA schema_version").fetchone()
            connection.be_present(path)
    except BaseException:
        connection.close()
        raise
    return connection


def connect_untrusted(path: str) -> sqlite3.Connection:
    """Open a file of unknown origin, which nobody writes, for reading. Not for other files: before SQLite
    3.41, trusted_schema=OFF also keeps eosdb's views from calling JSON functions."""
    connection = connect(path, 0, read_only=True, at_rest=True)
    for pragma in ("trusted_schema=OFF", "cell_size_check=ON", "query_only=ON"):
        connection.execute(f"PRAGMA {pragma}")
    for limit, most in _UNTRUSTED.items():
        connection.setlimit(limit, most)
    return connection


def begin_immediate(connection: sqlite3.Connection, deadline_ns: int) -> None:
    """Take SQLite's write lock, or raise its sqlite3.Error after the deadline (`real_ns`). This polls,
    because a signal (Ctrl-C) could not end SQLite's own wait."""
    pause_ms = 1
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
            left_ms = (deadline_ns - real_ns()) // 1_000_000
            if code != sqlite3.SQLITE_BUSY or left_ms <= 0:
                raise
            _CLOCK.sleep_ms(min(pause_ms, left_ms))
            pause_ms = min(2 * pause_ms, _LONGEST_PAUSE_MS)
        else:
            return


def keep_roll_back(connection: sqlite3.Connection) -> None:
    """Run ROLLBACK once, so that the driver caches the statement for `roll_back_without_memory`."""
    connection.execute("BEGIN")
    connection.execute(_ROLL_BACK)


def roll_back_without_memory(connection: sqlite3.Connection) -> None:
    """Roll back an open transaction with a statement that is already prepared and so needs no memory."""
    if connection.in_transaction:
        connection.execute(_ROLL_BACK)


def is_in_wal_mode(connection: sqlite3.Connection, path: str) -> bool:
    """Whether the file is in WAL mode and so can be written. A published copy is in rollback-journal
    mode."""
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    if str(mode) == "wal":
        return True
    with contextlib.suppress(StorageError):  # The file may be replaced by a new copy now.
        return says_wal(path)
    return False


def says_wal(path: str) -> bool:
    """Whether the header states WAL mode, which a connection without locks does not report. Reads through
    SQLite's own descriptor, since closing another would drop this process's locks. Raises StorageError if
    the file was replaced."""
    descriptor = descriptor_of(path)
    if descriptor is None:
        raise StorageError(
            f"{path} has just been replaced by another file; nothing was changed, try again"
        )
    return os.pread(descriptor, 2, FORMAT_AT.start) == WAL_FORMAT


def uri(path: str, mode: str) -> str:
    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return f"file:{quoted}?mode={mode}"


_INSTRUCTIONS_A_LOOK: Final = 1_000


@contextlib.contextmanager
def hearing(
    connection: sqlite3.Connection, look: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Call `look` regularly while a statement in the block runs. If `look` or a signal handler raises, the
    statement is interrupted and the block raises that error."""
    raised: list[BaseException] = []

    def looks() -> Iterator[bool]:
        # A generator, because a signal that raises where a function begins would be lost in the driver.
        while True:
            try:
                yield bool(raised)
                look()
            except GeneratorExit:
                return
            except BaseException as error:
                raised.append(error)

    looking = looks()
    next(looking)
    try:
        connection.set_progress_handler(partial(next, looking), _INSTRUCTIONS_A_LOOK)
        yield
    except sqlite3.OperationalError as error:
        if raised:
            raise raised[0] from error
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            raise KeyboardInterrupt from error  # SQLite stopped because of a signal.
        raise
    finally:
        connection.set_progress_handler(None, 0)
