"""A store's connections that only read: a pool of snapshots, and one that sees whether anything changed.

No lock guards the pool: every change is one step of C. A closing thread announces itself before it looks
for readers, and a reader announces itself before it checks that it may read (decisions/0018).
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from typing import Final

from eosdb.store.file.connection import connect
from eosdb.store.file.failures import translate, translated
from eosdb.store.file.open_files import OpenFiles
from eosdb.store.schema.migrate import check_not_upgraded

_LOOK_AGAIN_S: Final = 0.05
"""How often a closing thread checks for running readers; as a rule it is woken instead."""


class Readers:
    """Threads may share it. `check_open` raises when the store is closed; `opened` is a connection that is
    there already."""

    def __init__(
        self, path: str, files: OpenFiles, busy_timeout_ms: int, read_only: bool,
        check_open: Callable[[], None], opened: sqlite3.Connection | None = None,
    ) -> None:  # fmt: skip
        self._path: Final = path
        self._files: Final = files
        self._busy_timeout_ms: Final = busy_timeout_ms
        self._read_only: Final = read_only
        self._check_open: Final = check_open
        self._idle: list[sqlite3.Connection] = []
        if opened is not None:
            self._idle.append(_reading_only(opened))
        self._reading: dict[object, tuple[int, sqlite3.Connection | None]] = {}
        """Running readers: the thread and connection of each."""
        self._is_paused = False
        self._pausing = threading.Lock()
        """Held while nobody may read."""
        self._woken = threading.Lock()
        self._watcher: sqlite3.Connection | None = None
        self._watcher_lock = threading.Lock()

    @contextlib.contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A connection on one snapshot of the file, which cannot write."""
        reader, connection = object(), None
        try:
            # Inside, with a name of its own: an interrupt must leave no reader for `close` to wait for.
            connection = self._check_out(reader)
            connection.execute("BEGIN")
            yield connection
        except sqlite3.Error as error:
            raise translate(error, self._path) from error
        finally:
            self._check_in(reader, connection)

    def data_version(self) -> int:
        """A number that changes with every commit to the file, also of this process."""
        try:
            with self._watcher_lock:
                self._check_open()
                self._files.check_database()
                if self._watcher is None:
                    self._watcher = self._open()
                version: int = self._watcher.execute("PRAGMA data_version").fetchone()[0]
                return version
        except sqlite3.Error as error:
            raise translate(error, self._path) from error

    def close(self) -> None:
        """Wait for running readers, and close every connection.

        A reader of this very thread was interrupted by a signal before its block could end; its traceback
        keeps it alive.
        """
        self._wait_for_others(None)
        self._close_all()

    def pause(self, patience_s: float) -> bool:
        """Close every connection, and open none before `go_on`; False, with nothing changed, when a
        reader takes longer than that or is this thread itself."""
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
        with contextlib.suppress(RuntimeError):  # It was not paused.
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
        """May be repeated: a connection is forgotten when it has been closed."""
        for _, connection in list(self._reading.values()):
            if connection is not None:
                connection.close()
        while self._idle:
            self._idle[-1].close()
            self._idle.pop()
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None

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
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._open()
        self._reading[reader] = me, connection
        return connection

    def _open(self) -> sqlite3.Connection:
        with translated(self._path):
            connection = connect(self._path, self._busy_timeout_ms, read_only=self._read_only)
            try:
                _reading_only(connection)
                check_not_upgraded(connection, self._path)
            except BaseException:
                connection.close()
                raise
        self._files.check()
        return connection

    def _check_in(self, reader: object, connection: sqlite3.Connection | None) -> None:
        try:
            if connection is not None:
                try:
                    if connection.in_transaction:  # Some end their snapshot early.
                        connection.execute("COMMIT")
                    self._idle.append(connection)
                except sqlite3.Error:
                    connection.close()
        finally:
            self._leave(reader)

    def _leave(self, reader: object) -> None:
        self._reading.pop(reader, None)
        with contextlib.suppress(RuntimeError):  # Nobody waits.
            self._woken.release()


def _reading_only(connection: sqlite3.Connection) -> sqlite3.Connection:
    connection.execute("PRAGMA query_only=ON")
    return connection
