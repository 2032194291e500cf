"""One SQLite file and its two doors: `write` for units, `read` for snapshots.

The only place that says BEGIN, COMMIT, ROLLBACK and checkpoint. Writers take their turn three
times: in the process (group commit), between processes (writer mutex), and against foreign programs
(SQLite's own lock). `durability` is SQLite's `synchronous`: a unit that decides something is synced
under "full"; one that is only made valid by a later, synced unit need not be.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

from eosdb.errors import (
    DatabaseClosedError,
    DatabaseLockedError,
    EosdbError,
    IllegalStateError,
    ReadOnlyDatabaseError,
)
from eosdb.store.connection import connect
from eosdb.store.failures import translate, translated
from eosdb.store.group_commit import GroupCommit, Request
from eosdb.store.held_unit import HeldUnit
from eosdb.store.joint_unit import JointUnit
from eosdb.store.mutex import WriterMutex
from eosdb.store.unit import Apply, Unit
from eosdb.store.watch import Watch
from eosdb.store.writer import NO_COUNTS, Writer

T = TypeVar("T")


class Store:
    """An open file. Threads may share it; `close` may be called twice."""

    def __init__(
        self,
        path: str,
        *,
        apply: Apply,
        durability: str = "full",
        read_only: bool = False,
        lock_timeout_ms: int = 30_000,
        mutex: WriterMutex | None = None,
    ) -> None:
        self.path: Final = path
        self.read_only: Final = read_only
        self.lock_timeout_ms: Final = lock_timeout_ms
        self._closing = False
        self._closed = False
        self._forked = False
        self._readers: list[sqlite3.Connection] = []
        self._watcher: sqlite3.Connection | None = None
        self._watcher_lock = threading.Lock()
        self._reading: set[object] = set()
        self._readers_changed = threading.Condition(threading.Lock())
        self._mutex = mutex
        self._group = GroupCommit(self._run_round, lock_timeout_ms)
        self._apply = apply
        self._held: HeldUnit | None = None
        self._joint: JointUnit | None = None
        self._before_close: list[Callable[[], None]] = []
        if not read_only:
            with translated(path):
                self._writer = Writer(path, apply, durability, lock_timeout_ms)
        _opened.add(self)

    def write(self, function: Callable[[Unit], T], *, sync: bool = True) -> T:
        """Run `function` in a write unit and return its result when it is committed.

        All of it or, when it raises, none of it. `sync=False` leaves out the fsync of durability
        "full", for writes that only a later synced unit makes count. `function` may be run more
        than once and must have no effect outside the unit.
        """
        self._check_writable()
        if self._joint is not None and self._joint.is_ours:
            return self._joint.run(function)
        return self._group.submit(function, sync)

    @property
    def is_joint(self) -> bool:
        """Whether this thread's writes are parts of a joint unit."""
        return self._joint is not None and self._joint.is_ours

    @contextlib.contextmanager
    def together(self, *, sync: bool) -> Iterator[JointUnit]:
        """Have every `write` of this thread in the block be a part of one unit.

        A part's result or error counts only when the block has ended. When the unit as a whole fails,
        or a part has to be undone, the block raises and nothing stands: then do each part by itself.
        """
        with self._turn(), translated(self.path):
            unit = self._writer.begin(sync=sync, careful=False)
            self._joint = joint = JointUnit(unit, self.path)
            try:
                yield joint
                joint.check()
                self._writer.commit(joint.parts)
            except BaseException:
                self._writer.roll_back()
                raise
            finally:
                self._joint = None

    def commit_joint(self) -> None:
        """Inside `together`: what was written so far stands from now on; what follows is a unit of its
        own, not synced."""
        joint = self._joint
        assert joint is not None
        joint.check()
        try:
            with translated(self.path):
                self._writer.commit(joint.parts)
        except EosdbError as error:
            joint.fail(error)
            raise
        joint.parts, joint.stands = 0, True
        with translated(self.path):
            self._writer.begin(sync=False, careful=False)

    @contextlib.contextmanager
    def begin(self) -> Iterator[HeldUnit]:
        """Hold a write unit for the time of the block: committed at its end, undone when it raises.

        Every other writer waits meanwhile. Raises IllegalStateError inside such a block, and
        DatabaseLockedError after a bounded wait.
        """
        with self._turn():
            with translated(self.path):
                if self._held is None:
                    connection = connect(self.path, self.lock_timeout_ms)
                    self._held = HeldUnit(connection, self._apply, self.path)
                self._held.begin(self._writer.durable)
            try:
                yield self._held
                self._writer.wrote(self._held.commit())
            except BaseException:
                self._held.roll_back()
                raise
            self._writer.count(1, sync=self._writer.durable == "FULL")

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Nobody else writes during the block, neither in this process nor in another."""
        self._check_writable()
        assert self._mutex is not None
        with self._group.turn():
            self._mutex.acquire()
            try:
                yield
                self._writer.checkpoint_when_due()
            finally:
                self._mutex.release()

    @contextlib.contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A connection on one snapshot of the file, which cannot write."""
        reader, connection = object(), None
        try:
            # Inside, with a name of its own: an interrupt (Ctrl-C) must not leave a reader to wait for.
            connection = self._take_reader(reader)
            connection.execute("BEGIN")
            yield connection
        except sqlite3.Error as error:
            raise translate(error, self.path) from error
        finally:
            self._give_back(reader, connection)

    @contextlib.contextmanager
    def own_reader(self) -> Iterator[sqlite3.Connection]:
        """A connection on one snapshot that is nobody else's: for reading on while `close` goes ahead."""
        self.check_open()
        with (
            translated(self.path),
            contextlib.closing(
                connect(self.path, self.lock_timeout_ms, read_only=True)
            ) as connection,
        ):
            connection.execute("BEGIN")
            yield connection

    def data_version(self) -> int:
        """A number that changes with every commit to the file, also of this object."""
        try:
            with self._watcher_lock:
                self.check_open()
                if self._watcher is None:
                    self._watcher = connect(
                        self.path, self.lock_timeout_ms, read_only=self.read_only
                    )
                version: int = self._watcher.execute("PRAGMA data_version").fetchone()[0]
                return version
        except sqlite3.Error as error:
            raise translate(error, self.path) from error

    def watch(self) -> Watch:
        """Tells when the WAL is written, which is what a commit begins with."""
        return Watch(f"{self.path}-wal")

    def before_close(self, function: Callable[[], None]) -> None:
        """Have `function` run before the last connection is closed."""
        self._before_close.append(function)

    def close(self, *, orderly: bool = True) -> None:
        """Release the file. Waits for running reads and writes; idempotent.

        Not `orderly`, nothing is written any more, as when the process had died.
        """
        if self._closing or self._forked:
            return
        self._closing = True
        for function in self._before_close if orderly else ():
            function()
        self._closed = True
        self._group.end(self._closed_error)
        with self._readers_changed:
            while self._reading:
                self._readers_changed.wait()
            readers, self._readers = self._readers, []
        with self._watcher_lock:
            if self._watcher is not None:
                readers.append(self._watcher)
        for reader in readers:
            reader.close()
        if not self.read_only:
            self._close_writer()

    def _close_writer(self) -> None:
        """Closing the last connection of the file is a checkpoint, which the mutex guards."""
        assert self._mutex is not None
        if self._held is not None:
            self._held.close()
        try:
            self._mutex.acquire()
        except DatabaseLockedError:
            # Whoever holds it has the file open, so this connection is not the last.
            self._writer.close()
        else:
            try:
                self._writer.close()
            finally:
                self._mutex.release()
        finally:
            self._mutex.close()

    def check_may_close(self) -> None:
        """Raises IllegalStateError in the thread that holds a unit."""
        self._group.check_holds_nothing()

    def checkpoint(self) -> None:
        """Copy the WAL into the file as far as readers allow."""

        self.write(lambda _: self._writer.make_checkpoint_due(), sync=False)

    @property
    def has_written(self) -> bool:
        """Whether a unit of this object has changed anything."""
        return not self.read_only and self._writer.has_written

    def counts(self) -> Mapping[str, float]:
        """Units committed, those that were fsynced, and how many requests shared one."""
        return NO_COUNTS if self.read_only else self._writer.counts()

    def _check_writable(self) -> None:
        if self.read_only:
            raise ReadOnlyDatabaseError(f"{self.path} was opened with read_only=True")
        self.check_open()

    def check_open(self) -> None:
        """Raises DatabaseClosedError, and IllegalStateError in a forked child."""
        if self._closed:
            raise self._closed_error()
        if self._forked:
            raise IllegalStateError(
                f"{self.path} was opened before this process was forked; a child opens it anew"
            )

    @property
    def forked(self) -> bool:
        """Whether the file is the parent process's, which alone may use and release it."""
        return self._forked

    def forget(self) -> None:
        """Called in a forked child."""
        self._forked = True

    def _closed_error(self) -> DatabaseClosedError:
        return DatabaseClosedError(f"{self.path} has been closed")

    def _run_round(self, batch: list[Request]) -> None:
        assert self._mutex is not None
        try:
            self._mutex.acquire()
        except EosdbError as error:
            for request in batch:
                request.error, request.done = error, True
            return
        try:
            try:
                self._writer.run(batch)
            except sqlite3.Error as error:
                if len(batch) == 1:
                    batch[0].error, batch[0].done = translate(error, self.path), True
                else:
                    self._run_alone(batch)
            self._writer.checkpoint_when_due()
        finally:
            self._mutex.release()

    def _run_alone(self, batch: list[Request]) -> None:
        """Each for itself, so that each gets its own answer."""
        for request in batch:
            try:
                self._writer.run([request])
            except sqlite3.Error as error:
                request.error, request.done = translate(error, self.path), True

    def _take_reader(self, reader: object) -> sqlite3.Connection:
        self.check_open()
        with self._readers_changed:
            self.check_open()
            self._reading.add(reader)
            if self._readers:
                return self._readers.pop()
        with translated(self.path):
            connection = connect(self.path, self.lock_timeout_ms, read_only=self.read_only)
            connection.execute("PRAGMA query_only=ON")
        return connection

    def _give_back(self, reader: object, connection: sqlite3.Connection | None) -> None:
        try:
            if connection is not None:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("COMMIT")
                with self._readers_changed:
                    self._readers.append(connection)
        finally:
            with self._readers_changed:
                self._reading.discard(reader)
                self._readers_changed.notify_all()


_opened: weakref.WeakSet[Store] = weakref.WeakSet()
_of_the_parent: list[Store] = []
"""Kept for ever: SQLite's connections must not even be closed in a forked child."""


def _forget_after_fork() -> None:
    for store in list(_opened):
        store.forget()
        _of_the_parent.append(store)


os.register_at_fork(after_in_child=_forget_after_fork)
