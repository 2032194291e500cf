"""An open SQLite file: `write` runs write units, `read` gives snapshots.

Only this package issues BEGIN, COMMIT, ROLLBACK and checkpoints. A writer waits for other threads (group
commit), for other processes (the writer mutex), and for other programs (SQLite's own lock). There are three
kinds of unit:

| kind   | begun by         | what it holds                           | when a part raises              |
| ------ | ---------------- | --------------------------------------- | ------------------------------- |
| shared | `write`          | requests of all threads that wait       | that request is rolled back     |
| block  | `begin`, `join`  | eosdb's writes and the user's own SQL   | what it wrote is rolled back    |
| replay | `unit.late`      | a replay, on the caller's connection    | the caller rolls back           |

`begin` has a connection of its own, whose authorizer rejects harmful statements, so eosdb's write takes 7
statements. `join` uses the program's connection and takes 28, of which 21 check its settings.

`durability` is SQLite's `synchronous`. Under "full", a commit is followed by an fsync unless `sync=False`;
then the next fsync makes it durable.

A signal handler may raise between any two steps of Python. So each `finally` begins with the calls into C
that release resources (decisions/0018).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from eosdb.errors import (
    DatabaseClosedError,
    DatabaseLockedError,
    EosdbError,
    IllegalStateError,
    ReadOnlyDatabaseError,
    inherit_doubt,
)
from eosdb.model.clock import real_ns
from eosdb.model.closing import Closing
from eosdb.model.threads import Fate
from eosdb.store.file import failures, forking
from eosdb.store.file.connection import connect, connect_untrusted, is_in_wal_mode
from eosdb.store.file.locks import OwnerLocks, WriterMutex, is_owned
from eosdb.store.file.open_files import OpenFiles
from eosdb.store.file.presence import close_unused
from eosdb.store.file.watch import Watch, end_idle, watch
from eosdb.store.readers import Readers
from eosdb.store.schema.identify import check_journal, check_not_upgraded
from eosdb.store.schema.migrate import Opened
from eosdb.store.writing.group_commit import GroupCommit, UnitRequest
from eosdb.store.writing.held_unit import HeldUnit
from eosdb.store.writing.timings import Timings
from eosdb.store.writing.unit import Apply, Unit
from eosdb.store.writing.writer import Writer
from eosdb.system.signals import is_of_a_signal

T = TypeVar("T")
_BLOCK: Final = (
    "a block of db.begin() (see docs/web.md if these belong to requests that wait for each other)"
)
_NOT_OPENED: Final = Opened(None, None)


class Store:
    """An open file. Threads can share it; `close` can be called twice."""

    def __init__(
        self,
        path: str,
        *,
        apply: Apply,
        durability: str = "full",
        read_only: bool = False,
        lock_timeout_ms: int = 30_000,
        slow_commit_ms: int = -1,
        external_checkpoints: bool = False,
        opened: Opened = _NOT_OPENED,
        name: str | None = None,
    ) -> None:
        self.path = path
        self.read_only = read_only
        self.lock_timeout_ms: Final = lock_timeout_ms
        self._durability = durability
        self._has_given_up = False
        """Whether the last wait for the writer mutex failed."""
        self._closing: Closing | None = None
        self._closed = False
        self._process = os.getpid()
        self._mutex, reader, self._untrusted = opened
        self._group = GroupCommit(self._run_round, lock_timeout_ms, path)
        self._apply = apply
        self._external_checkpoints = external_checkpoints
        self.timings: Final = Timings(path, slow_commit_ms)
        self._files = OpenFiles(path, name or path)
        self._readers = Readers(
            path, self._files, lock_timeout_ms, read_only, self._check_not_closed, opened
        )
        self._writer: Writer | None = None
        self._held: HeldUnit | None = None
        self._before_close: list[Callable[[], None]] = []
        self._before_rest: list[Callable[[], None]] = []
        with forking.at_work():
            if self._mutex is not None:
                for lock_file in self._mutex.files():
                    self._files.note(*lock_file)
                try:
                    self._open_writer()
                except BaseException:
                    self._mutex.close()
                    raise
                self._mutex.close_with(self)
            elif reader is not None and is_in_wal_mode(reader, path):
                self._files.note_database()
            forking.rests(self)

    # -- whether it may be used -----------------------------------------------------------------

    def _check_writable(self) -> WriterMutex:
        """Return the writer mutex. Raises ReadOnlyDatabaseError and the errors of `check_open`."""
        if self.read_only:
            raise ReadOnlyDatabaseError(f"{self.path} was opened with read_only=True")
        self._check_not_closed()
        assert self._mutex is not None
        return self._mutex

    def check_open(self) -> None:
        """Raises DatabaseClosedError, IllegalStateError in a fork, and StorageError if the file was
        replaced."""
        self._check_not_closed()
        self._files.check_database()

    def _check_not_closed(self) -> None:
        if self._closed:
            raise self._closed_error()
        if self._process != os.getpid():
            raise IllegalStateError(
                f"{self.path} was opened before this process was forked; a child must open it itself"
            )

    @property
    def forked(self) -> bool:
        """Whether this is a fork of the process that opened the file, and so may not use it."""
        return self._process != os.getpid()

    def _closed_error(self) -> DatabaseClosedError:
        return DatabaseClosedError(f"{self.path} has been closed")

    # -- owners ---------------------------------------------------------------------------------

    def owner_locks(self) -> OwnerLocks:
        """Return this process's locks for owners. Raises ReadOnlyDatabaseError, DatabaseClosedError."""
        return self._check_writable().owner_locks

    def is_owned(self, number: int) -> bool:
        """Whether any process holds this owner's lock. True for a copy, which has no lock file."""
        if self._mutex is None:
            return is_owned(self.path, number)
        return self._mutex.is_owned(number)

    # -- units ----------------------------------------------------------------------------------

    def write(
        self,
        function: Callable[[Unit], T],
        *,
        sync: bool = True,
        tells: bool = True,
        fate: Fate | None = None,
    ) -> T:
        """Run `function` in a write unit and return its result after the commit; if it raises, nothing is
        stored.

        `function` may run more than once and must have no effect outside the unit. `sync=False` skips the
        fsync of durability "full", for a write that counts only with a later, synced unit. `tells=False`
        leaves pending log messages to a later write: pass it while holding a lock. After an interrupt,
        `fate` returns the outcome.
        """
        self._check_writable()
        try:
            return self._group.submit(function, sync, fate)
        finally:
            if tells:
                self.timings.tell()

    @contextlib.contextmanager
    def begin(self) -> Iterator[HeldUnit]:
        """Yield a write unit. It is committed at the end of the block, and rolled back if the block raises
        or the generator is dropped. Other writers wait meanwhile. The block may end in another thread.
        Raises IllegalStateError inside another block, and DatabaseLockedError after a bounded wait."""
        mutex = self._check_writable()
        turn = self._group.new_turn(_BLOCK)
        # decisions/0042: one generator, because the garbage collector may close an inner one first.
        try:
            self._group.take(turn)
            try:
                self.timings.begun()
                writer = self._lock_file(turn.asked_ns)
                held = self._held
                if held is not None and not held.can_be_reused:
                    held.close()
                    held = None
                if held is None:
                    held = self._held = HeldUnit(self.path, self._apply, writer.note, self.timings)
                self._files.check()  # The new connection may have created -wal and -shm.
                try:
                    held.begin(writer.durable, writer.deadline_ns)
                    yield held
                    written_bytes = held.commit()
                finally:
                    # decisions/0018: no signal handler can run before this assignment and the rollback.
                    held.is_ours = True
                    try:
                        held.undo()
                    except MemoryError:
                        pass
                    finally:
                        with contextlib.suppress(MemoryError):  # The next turn rolls back.
                            held.roll_back()
                try:
                    self.timings.committed(1, sync=writer.durable == "FULL")
                    writer.note_position(held.known_position)
                    writer.wrote(written_bytes)
                    writer.checkpoint_when_due()
                    self.timings.note_outcome(())
                    self.timings.ended(1)
                except Exception as error:  # The unit is committed, whatever fails now.
                    if is_of_a_signal(error):
                        raise
            except EosdbError as error:
                self.timings.note_outcome((error,))
                raise
            finally:
                try:
                    mutex.release()
                except MemoryError:
                    mutex.release_again()
        finally:
            turn.is_left = True
            self._group.left(turn)
        self.timings.tell()

    @contextlib.contextmanager
    def alone(self) -> Iterator[Writer]:
        """Exclude every other writer during the block, in this process and in others."""
        mutex = self._check_writable()
        turn = self._group.new_turn("maintenance, or a large write,")
        try:
            self._group.take(turn)
            try:
                writer = self._lock_file(turn.asked_ns)
                with failures.translated(self.path):
                    yield writer
                writer.checkpoint_when_due()
            finally:
                try:
                    mutex.release()
                except MemoryError:
                    mutex.release_again()
        finally:
            turn.is_left = True
            self._group.left(turn)
        self.timings.tell()

    def _patience_ms(self, asked_ns: int) -> int:
        """Return the time left (ms) for a request made at `asked_ns`. `lock_timeout_ms` covers waiting for
        other threads, the mutex and SQLite's lock together."""
        return max(self.lock_timeout_ms - (real_ns() - asked_ns) // 1_000_000, 0)

    def _lock_file(self, asked_ns: int) -> Writer:
        """Acquire the writer mutex, check that the files are in place, and renew the WAL after a failed
        sync. The caller releases the mutex, also when this raises."""
        assert self._mutex is not None
        try:
            self._has_given_up = True
            self._mutex.acquire(self._patience_ms(asked_ns))
            self._has_given_up = False
            self._files.check()
            writer = self._writer or self._open_writer()
            writer.deadline_ns = asked_ns + self.lock_timeout_ms * 1_000_000
            # If an earlier rollback ran out of memory, SQLite's write lock is still held.
            writer.connection.rollback()
            if self._held is not None and self._held.is_whole:
                self._held.roll_back()
            writer.make_good()
        except MemoryError as error:
            raise failures.without_memory(self.path) from error
        return writer

    def _open_writer(self) -> Writer:
        assert self._mutex is not None
        with failures.translated(self.path):
            writer = Writer(
                self.path,
                self._apply,
                self._durability,
                self.lock_timeout_ms,
                self._mutex,
                self.timings,
                external_checkpoints=self._external_checkpoints,
            )
        try:
            check_not_upgraded(writer.connection, self.path)
            with failures.translated(self.path):
                check_journal(writer.connection, self.path)
        except EosdbError:
            writer.close_beside_others()
            raise
        self._files.note_database()
        self._writer = writer
        return writer

    def read(self) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        """Return a context manager for a read-only connection on one snapshot of the file."""
        return self._readers.read()

    @contextlib.contextmanager
    def own_reader(self) -> Iterator[sqlite3.Connection]:
        """Yield a separate connection on one snapshot, which `close` leaves open."""
        self.check_open()
        with (
            forking.at_work(),
            failures.translated(self.path),
            contextlib.closing(
                connect_untrusted(self.path)
                if self._untrusted
                else connect(self.path, self.lock_timeout_ms, read_only=True)
            ) as connection,
        ):
            connection.execute("BEGIN")
            yield connection

    def data_version(self) -> int:
        """Return a number that changes with every commit to the file, including this object's."""
        return self._readers.data_version()

    def watch(self) -> Watch:
        """Return a watch for writes to the WAL. Every commit writes to the WAL."""
        return watch(f"{self.path}-wal")

    def left(self, used: Watch) -> None:
        """Take back a watch that a wait no longer needs."""
        used.close()
        if self._closed:
            end_idle(used.path)

    def before_close(self, function: Callable[[], None]) -> None:
        self._before_close.append(function)

    def before_rest(self, function: Callable[[], None]) -> None:
        """Register a function that `pause` calls before a fork, to close other connections."""
        self._before_rest.append(function)

    def close(self, *, orderly: bool = True) -> None:
        """Release the file after waiting for running reads and writes. Idempotent; call it again after an
        interrupt. Unless `orderly`, nothing more is written, as if the process had died. Raises
        StorageError if the disk failed to sync earlier writes, but still releases the file."""
        if self.forked:
            return
        if self._closing is None:
            before = self._before_close if orderly else ()
            self._closing = Closing(
                *before, self._refuse, self._close_readers, self._close_files, self._close_mutex
            )
        self._closing.run()

    def _refuse(self) -> None:
        self._closed = True
        self._group.end(self._closed_error)

    def _close_readers(self) -> None:
        with forking.at_work():
            self._readers.close()
        end_idle(f"{self.path}-wal")

    def _close_files(self) -> None:
        with forking.at_work():
            self._close_writer(0 if self._has_given_up else self.lock_timeout_ms)

    def _close_mutex(self) -> None:
        self._files.forget_shared()
        if self._mutex is not None:
            self._mutex.close()
        close_unused()

    def _close_writer(self, patience_ms: int) -> None:
        """Close the write connection under the mutex: SQLite's last connection makes a checkpoint."""
        if self._held is not None:
            self._held.close()
            self._held = None
        writer = self._writer
        if writer is None or self._mutex is None:
            return
        try:
            self._mutex.acquire(patience_ms)
            if writer.close(is_in_place=self._files.are_in_place()):
                self._files.remove_orphans()
        except DatabaseLockedError:
            # Another program holds the mutex, so this is not the last connection.
            writer.close_beside_others()
        except EosdbError as error:
            self._writer = None
            error.outcome = "written"
            raise
        finally:
            self._mutex.release()
        self._writer = None

    def pause(self, patience_s: float) -> bool:
        """Close all connections before a fork, and allow no reads or writes until `go_on`. Returns False
        if that is impossible."""
        if not self._group.pause(patience_s):
            return False
        if not self._readers.pause(patience_s):
            self._group.go_on()
            return False
        for function in self._before_rest:
            function()
        self._files.forget_shared()
        with contextlib.suppress(
            EosdbError
        ):  # If the disk fails, the next program that opens the file reports it.
            self._close_writer(0)
        return True

    def go_on(self) -> None:
        """Resume after a fork; connections are reopened on demand."""
        self._readers.go_on()
        with contextlib.suppress(RuntimeError):  # An interrupt came before `pause` had the lead.
            self._group.go_on()

    def note(self, error: BaseException | None) -> None:
        """Record for all processes if this error of a user's connection was a failed sync."""
        if failures.is_failed_sync(error) and self._mutex is not None and not self._closed:
            self._mutex.note_sync(failed=True)

    def check_may_close(self) -> None:
        """Raises IllegalStateError inside a block of `begin`."""
        self._group.check_holds_nothing()

    def known_position(self, file_id: str) -> int:
        """The newest position that the lock file knows of this file; 0 if it knows none."""
        return self._check_writable().known_position(file_id)

    def note_position(self, position: int, file_id: str) -> None:
        """Begin to note the positions of this file in the lock file."""
        self._check_writable().note_position(position, file_id)

    def checkpoint(self) -> None:
        """Copy the WAL into the file as far as readers allow."""
        with self.alone() as writer:
            writer.make_checkpoint_due()

    def begin_round(self, now_ms: int, every_ms: int) -> tuple[bool, int]:
        """Return whether a round of housekeeping is due, and when the last one began in any process. The
        caller runs a due round. If the last round is unknown or long ago, none is due and the interval
        starts now: so a user can look at an old file before its records expire."""
        with self.alone():
            return self._check_writable().begin_round(now_ms, every_ms)

    def _run_round(self, batch: list[UnitRequest]) -> None:
        assert self._mutex is not None
        failure: EosdbError | None = None
        try:
            self.timings.begun()
            writer = self._lock_file(batch[0].asked_ns)
            try:
                writer.run(batch)
            except sqlite3.Error as error:
                failure = failures.translate(error, self.path)
                if isinstance(failure, DatabaseLockedError):
                    raise failure from error
                if len(batch) == 1:
                    batch[0].error, batch[0].done = failure, True
                else:
                    self._run_alone(writer, batch, failure)
            writer.checkpoint_when_due()
            self.timings.ended(len(batch))
        except (EosdbError, OSError, MemoryError) as error:
            if is_of_a_signal(error):
                raise
            told = self._told(error)
            inherit_doubt(told, failure)
            is_locked = isinstance(told, DatabaseLockedError)
            for request in batch:
                # Later requests have not waited as long, so they go into the next round.
                waits_on = is_locked and request is not batch[0]
                if not (request.done or (waits_on and self._patience_ms(request.asked_ns))):
                    request.error, request.done = told, True
        finally:
            # decisions/0018: a signal cannot prevent the rollback and release, since both are calls into C.
            try:
                if self._writer is not None:
                    self._writer.connection.rollback()
            except MemoryError:
                pass  # The next turn rolls back.
            finally:
                try:
                    self._mutex.release()
                except MemoryError:
                    self._mutex.release_again()
        errors = [request.error for request in batch if request.error is not None]
        self.timings.note_outcome(errors)

    def _told(self, error: EosdbError | OSError | MemoryError) -> EosdbError:
        if isinstance(error, EosdbError):
            return error
        if isinstance(error, OSError):
            return failures.translate_system(error, self.path)
        return failures.without_memory(self.path)

    def _run_alone(self, writer: Writer, batch: list[UnitRequest], shared: EosdbError) -> None:
        """After a shared unit has failed with the error `shared`, run each request in a unit of its own, so
        that each gets its own result or error."""
        for request in batch:
            try:
                writer.make_good()
                writer.run([request])
            except sqlite3.Error as error:
                alone = failures.translate(error, self.path)
                inherit_doubt(alone, shared)
                request.error, request.done = alone, True
