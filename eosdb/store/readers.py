"""A store's connections that only read: a pool of snapshots, and one that sees whether anything changed."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from typing import Final

from eosdb.store.connection import connect
from eosdb.store.failures import translate, translated
from eosdb.store.open_files import OpenFiles


class Readers:
    """Threads may share it. `check_open` raises when the store is closed."""

    def __init__(
        self, path: str, files: OpenFiles, busy_timeout_ms: int, read_only: bool,
        check_open: Callable[[], None],
    ) -> None:  # fmt: skip
        self._path: Final = path
        self._files: Final = files
        self._busy_timeout_ms: Final = busy_timeout_ms
        self._read_only: Final = read_only
        self._check_open: Final = check_open
        self._idle: list[sqlite3.Connection] = []
        self._reading: set[object] = set()
        self._changed = threading.Condition(threading.Lock())
        self._is_paused = False
        self._watcher: sqlite3.Connection | None = None
        self._watcher_lock = threading.Lock()

    @contextlib.contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A connection on one snapshot of the file, which cannot write."""
        reader, connection = object(), None
        try:
            # Inside, with a name of its own: an interrupt (Ctrl-C) must not leave a reader to wait for.
            connection = self._take(reader)
            connection.execute("BEGIN")
            yield connection
        except sqlite3.Error as error:
            raise translate(error, self._path) from error
        finally:
            self._give_back(reader, connection)

    def data_version(self) -> int:
        """A number that changes with every commit to the file, also of this process."""
        try:
            with self._watcher_lock:
                self._check_open()
                if self._watcher is None:
                    self._watcher = self._open()
                version: int = self._watcher.execute("PRAGMA data_version").fetchone()[0]
                return version
        except sqlite3.Error as error:
            raise translate(error, self._path) from error

    def close(self) -> None:
        """Wait for whoever reads, and close every connection."""
        self._empty(None)

    def pause(self, patience_s: float) -> bool:
        """Close every connection, and open none before `go_on`; False, and nothing has changed, where
        somebody reads for longer than that."""
        self._is_paused = True
        if self._watcher_lock.acquire(timeout=patience_s):
            try:
                if self._empty(patience_s):
                    return True
            finally:
                self._watcher_lock.release()
        self.go_on()
        return False

    def go_on(self) -> None:
        with self._changed:
            self._is_paused = False
            self._changed.notify_all()

    def _empty(self, patience_s: float | None) -> bool:
        with self._changed:
            if not self._changed.wait_for(lambda: not self._reading, patience_s):
                return False
            idle, self._idle = self._idle, []
        if self._watcher is not None:
            idle.append(self._watcher)
            self._watcher = None
        for connection in idle:
            connection.close()
        return True

    def _take(self, reader: object) -> sqlite3.Connection:
        self._check_open()
        with self._changed:
            while self._is_paused:
                self._changed.wait()
            self._check_open()
            self._reading.add(reader)
            if self._idle:
                return self._idle.pop()
        return self._open()

    def _open(self) -> sqlite3.Connection:
        self._files.check()
        with translated(self._path):
            connection = connect(self._path, self._busy_timeout_ms, read_only=self._read_only)
            connection.execute("PRAGMA query_only=ON")
        self._files.check()
        return connection

    def _give_back(self, reader: object, connection: sqlite3.Connection | None) -> None:
        try:
            if connection is not None:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("COMMIT")
                with self._changed:
                    self._idle.append(connection)
        finally:
            with self._changed:
                self._reading.discard(reader)
                self._changed.notify_all()
