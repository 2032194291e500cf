"""The store's read connections: a pool for snapshots, and one that detects commits.

No lock guards the pool: every change to it is a single C call. A closing thread first sets a flag, then
looks for running readers. A reader first registers, then checks the flag. So at least one of the two sees
the other (decisions/0018).
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from typing import Final

from eosdb.store.file.connection import connect, connect_untrusted
from eosdb.store.file.failures import translate, translated
from eosdb.store.file.open_files import OpenFiles
from eosdb.store.schema.identify import check_not_upgraded
from eosdb.store.schema.migrate import Opened

_LOOK_AGAIN_S: Final = 0.05
"""How often a closing thread checks for running readers, in case the last reader does not wake it."""

_TURN_S: Final = 0.25


class Readers:
    """A pool of read connections, shared by threads. `check_open` raises when the store is closed; `opened`
    may contain the pool's first connection."""

    def __init__(
        self, path: str, files: OpenFiles, busy_timeout_ms: int, read_only: bool,
        check_open: Callable[[], None], opened: Opened,
    ) -> None:  # fmt: skip
        self._path: Final = path
        self._files: Final = files
        self._busy_timeout_ms: Final = busy_timeout_ms
        self._read_only: Final = read_only
        self._untrusted: Final = opened.untrusted
        self._check_open: Final = check_open
        self._idle: list[sqlite3.Connection] = []
        self._opened: list[sqlite3.Connection] = []
        """Every open connection, including one that an interrupt kept out of `_idle` and `_reading`."""
        if opened.reader is not None:
            self._opened.append(opened.reader)
            self._idle.append(_reading_only(opened.reader))
        self._reading: dict[object, tuple[int, sqlite3.Connection | None]] = {}
        """Thread and connection of each running reader."""
        self._is_paused = False
        self._pausing = threading.Lock()
        """Held while reading is suspended."""
        self._woken = threading.Lock()
        self._watcher: sqlite3.Connection | None = None
        self._watchers = 0
        self._watcher_lock = threading.Lock()
        self._opening = threading.Lock()

    @contextlib.contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Yield a read-only connection on one snapshot of the file."""
        reader, connection = object(), None
        try:
            # Inside `try`, so that `finally` removes this reader after an interrupt: `close` waits for it.
            connection = self._check_out(reader)
            connection.execute("BEGIN")
            yield connection
        except sqlite3.Error as error:
            raise translate(error, self._path) from error
        finally:
            self._check_in(reader, connection)

    def data_version(self) -> int:
        """Return a number that changes with every commit to the file, including those of this process."""
        try:
            with self._watcher_lock:
                self._check_open()
                self._files.check_database()
                if self._watcher is None:
                    self._watcher, self._watchers = self._open(), self._watchers + 1
                version: int = self._watcher.execute("PRAGMA data_version").fetchone()[0]
                # Another connection counts from its own beginning.
                return version + (self._watchers << 32)
        except sqlite3.Error as error:
            raise translate(error, self._path) from error

    def close(self) -> None:
        """Wait for running readers, and close every connection. It does not wait for a reader of the
        calling thread: a signal interrupted its block, and the traceback keeps it alive."""
        self._wait_for_others(None)
        self._close_all()

    def pause(self, patience_s: float) -> bool:
        """Close every connection, and open none until `go_on`. Returns False and changes nothing if a
        reader takes longer than `patience_s` or belongs to the calling thread."""
        self._is_paused = True
        self._pausing.acquire()
        if self._watcher_lock.acquire(timeout=patience_s):
            try:
                if self._wait_for_others(patience_s) and not self._reading:
                    self._close_all()
                    return True
            finally:
                self._watcher_lock.release()
        self.go_on()
        return False

    def go_on(self) -> None:
        self._is_paused = False
        with contextlib.suppress(RuntimeError):  # Reading is not paused.
            self._pausing.release()

    def _wait_for_others(self, patience_s: float | None) -> bool:
        me, waited = threading.get_ident(), 0.0
        while any(thread != me for thread, _ in list(self._reading.values())):
            if not self._woken.acquire(timeout=_LOOK_AGAIN_S):
                waited += _LOOK_AGAIN_S
                if patience_s is not None and waited >= patience_s:
                    return False
        return True

    def _close_all(self) -> None:
        """Close every connection. If an interrupt stops it, call it again."""
        for connection in self._opened:
            connection.close()
        self._idle.clear()
        self._watcher = None
        self._opened.clear()

    def _check_out(self, reader: object) -> sqlite3.Connection:
        me = threading.get_ident()
        while True:
            self._check_open()
            self._reading[reader] = me, None
            self._check_open()
            if not self._is_paused:
                break
            self._leave(reader)
            with self._pausing:
                pass
        self._files.check_database()
        connection = self._taken() or self._opened_in_turn()
        self._reading[reader] = me, connection
        return connection

    def _opened_in_turn(self) -> sqlite3.Connection:
        """Open a connection, one thread at a time, since opening may wait for a lock of the file. Meanwhile
        most waiting threads find an idle connection."""
        try:
            self._opening.acquire(timeout=_TURN_S)
            return self._taken() or self._open()
        finally:
            try:  # noqa: SIM105 - decisions/0018: the release must come first, before any interrupt.
                self._opening.release()
            except RuntimeError:
                pass  # The wait timed out, and the thread with the lock has released it.

    def _taken(self) -> sqlite3.Connection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _open(self) -> sqlite3.Connection:
        self._files.check()  # Finds a missing WAL; SQLite would report a failing disk.
        with translated(self._path):
            if self._untrusted:
                connection = connect_untrusted(self._path)
            else:
                connection = connect(self._path, self._busy_timeout_ms, read_only=self._read_only)
            try:
                self._opened.append(connection)
                _reading_only(connection)
                check_not_upgraded(connection, self._path, read_only=self._read_only)
            except BaseException:
                self._drop(connection)
                raise
        self._files.check()
        return connection

    def _check_in(self, reader: object, connection: sqlite3.Connection | None) -> None:
        try:
            if connection is not None:
                try:
                    if connection.in_transaction:  # Some callers have ended it already.
                        connection.execute("COMMIT")
                    self._idle.append(connection)
                except sqlite3.Error:
                    self._drop(connection)
        finally:
            self._leave(reader)

    def _drop(self, connection: sqlite3.Connection) -> None:
        connection.close()
        with contextlib.suppress(ValueError):  # `_close_all` has removed it already.
            self._opened.remove(connection)

    def _leave(self, reader: object) -> None:
        self._reading.pop(reader, None)
        with contextlib.suppress(RuntimeError):  # No thread waits.
            self._woken.release()


def _reading_only(connection: sqlite3.Connection) -> sqlite3.Connection:
    connection.execute("PRAGMA query_only=ON")
    return connection
