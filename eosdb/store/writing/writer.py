"""The write connection of a store: runs units from BEGIN to COMMIT, and checkpoints between units.

The caller holds the writer mutex. `durability` is SQLite's `synchronous`. Under "full" a commit is fsynced
under the mutex (decisions/0105), except for units that count only with a later, synced unit.
"""

from __future__ import annotations

import contextlib
import sqlite3
from typing import Final

from eosdb.errors import EosdbError
from eosdb.model.failpoints import Failpoint, reach
from eosdb.model.notices import catalog
from eosdb.store import wal
from eosdb.store.file.connection import (
    WAL_LIMIT_BYTES,
    begin_immediate,
    connect,
    keep_roll_back,
    roll_back_without_memory,
)
from eosdb.store.file.failures import is_failed_sync, out_of_memory, translated
from eosdb.store.file.locks import WriterMutex
from eosdb.store.file.open_files import size_of
from eosdb.store.wal import Checkpoint, WalGrowth
from eosdb.store.writing.group_commit import UnitRequest
from eosdb.store.writing.timings import Timings
from eosdb.store.writing.unit import Apply, RedoCarefullyError, Unit
from eosdb.system.signals import is_of_a_signal

_REMEMBERED_MAX: Final = 20_000
_UNITS_PER_LOOK: Final = 16
"""Memo sizes are checked once in this many units, which bounds memory."""
_CHECKPOINT_BYTES: Final = 4 * 1024 * 1024
_READERS_WAIT_MS: Final = 50
_SYNCHRONOUS: Final = {"full": "FULL", "normal": "NORMAL", "off": "OFF"}


class Writer:
    """Runs units and checkpoints. Only the leading thread uses it."""

    def __init__(
        self,
        path: str,
        apply: Apply,
        durability: str,
        lock_timeout_ms: int,
        mutex: WriterMutex,
        timings: Timings,
        *,
        external_checkpoints: bool,
    ) -> None:
        self._path = path
        self._lock_timeout_ms = lock_timeout_ms
        self.deadline_ns = 0
        """The time (`real_ns`) until which the next units wait for SQLite's lock."""
        self._mutex = mutex
        self._leaves_checkpoints = external_checkpoints
        self._timings = timings
        self.durable: Final = _SYNCHRONOUS[durability]
        # decisions/0004: a unit without sync becomes durable with the next synced unit.
        self._relaxed = "NORMAL" if durability == "full" else self.durable
        self._synchronous = ""
        self.connection: Final = connect(path, lock_timeout_ms)
        try:
            # SQLite opens -wal and -shm only when it first reads.
            self.connection.execute("SELECT 1 FROM sqlite_schema").fetchone()
            self.connection.execute("PRAGMA busy_timeout=0")  # `begin_immediate` does the waiting.
            keep_roll_back(self.connection)
        except BaseException:
            self.connection.close()
            raise
        self._unit = Unit(self.connection, apply, timings.untold)
        self._data_version = -1
        self._are_memos_true = False
        """Whether the newest unit was committed, so that the memos match the file."""
        self._begun = 0
        self._changes_before = 0
        # A killed process may have left a large WAL.
        self._wal_bytes = size_of(f"{path}-wal")
        self._is_checkpoint_asked = False
        self._wal_factor = 1.0
        """The WAL's bytes at the last checkpoint, divided by the estimate."""
        self._found = Checkpoint(0, 0)
        self._growth = WalGrowth(path, timings.untold)

    # -- units ----------------------------------------------------------------------------------

    def run(self, batch: list[UnitRequest]) -> None:
        """Run all requests in one unit; each gets its own result or error. Raises sqlite3.Error if the
        unit is rolled back."""
        sync = any(request.sync for request in batch)
        try:
            self._run(batch, sync=sync, careful=False)
        except RedoCarefullyError:
            self._run(batch, sync=sync, careful=True)

    def _run(self, batch: list[UnitRequest], *, sync: bool, careful: bool) -> None:
        """Run all requests in one unit, once. If a signal raises after the commit, they still get their
        results."""
        assert batch, "a round has requests"
        outcomes: list[tuple[object, Exception | None]] = []
        # Made before the commit, because memory may run out after it.
        told = zip(batch, outcomes, strict=True)
        is_committing = False
        try:
            unit = self.begin(sync=sync, careful=careful)
            outcomes += [self._run_request(unit, request, len(batch) == 1) for request in batch]
            is_committing = True
            is_undone = len(batch) == 1 and outcomes[0][1] is not None
            self.commit(len(batch), is_undone=is_undone)
        except sqlite3.Error:
            is_committing = False
            raise
        finally:
            if is_committing and not self.connection.in_transaction:
                for request, (result, error) in told:
                    request.result, request.error, request.done = result, error, True
            else:
                self.roll_back()

    def _run_request(
        self, unit: Unit, request: UnitRequest, alone: bool
    ) -> tuple[object, Exception | None]:
        """Run one request as a part of the unit. If it is `alone`, its error rolls back the whole unit."""
        try:
            return request.function(unit) if alone else unit.part(request.function), None
        except (sqlite3.Error, RedoCarefullyError):
            raise
        except MemoryError as error:
            raise out_of_memory() from error
        except Exception as error:
            if is_of_a_signal(error):
                raise
            if alone:
                self.roll_back()
            return None, error

    def begin(self, *, sync: bool, careful: bool) -> Unit:
        """Take SQLite's write lock; `careful` as in Unit. Always follow with `commit` or `roll_back`."""
        unit, connection = self._unit, self.connection
        try:
            connection.rollback()
            assert not connection.in_transaction
            synchronous = self.durable if sync else self._relaxed
            if synchronous != self._synchronous:
                connection.execute(f"PRAGMA synchronous={synchronous}")
                self._synchronous = synchronous
            self._changes_before = connection.total_changes
            unit.written_bytes = 0
            unit.careful = careful
            begin_immediate(connection, self.deadline_ns)
            assert connection.in_transaction
            connection.has_begun()
            self._timings.locked()
            (version,) = connection.execute("PRAGMA data_version").fetchone()
            self._begun += 1
            if not self._are_memos_true or (
                self._begun % _UNITS_PER_LOOK == 0 and unit.memos.size() > _REMEMBERED_MAX
            ):
                unit.discard()
            elif version != self._data_version:
                unit.catch_up()
        except MemoryError as error:
            raise out_of_memory() from error
        self._data_version = version
        self._are_memos_true = False
        return unit

    def commit(self, requests: int, *, is_undone: bool = False) -> None:
        """Commit the unit, which holds this many requests, unless its only request was rolled back. Raises
        sqlite3.Error, and RedoCarefullyError (see `Unit.write_waiting`)."""
        if not is_undone:
            self._commit()
            self._timings.committed(requests, sync=self._synchronous == "FULL")
            self._are_memos_true = True
            if self._synchronous == self.durable:  # Otherwise a power cut may still undo the unit.
                self.note_position(self._unit.known_position)
        reach(Failpoint.UNIT_COMMITTED)
        changes = self.connection.total_changes - self._changes_before
        assert changes >= 0, changes
        self._timings.rows += changes
        if changes or self._unit.written_bytes:
            self.wrote(16_384 + changes * 200 + self._unit.written_bytes)

    def _commit(self) -> None:
        if not self.connection.in_transaction:
            raise sqlite3.OperationalError("SQLite has rolled back the unit")
        try:
            self._unit.write_waiting()
            self._timings.committing()
            # `commit` allocates no objects after SQLite's commit, unlike `execute`. So MemoryError here
            # means that the commit failed.
            self.connection.keep_write_lock()
            self.connection.commit()
        except sqlite3.Error as error:
            self.note(error)
            raise
        except MemoryError as error:
            raise out_of_memory() from error

    def roll_back(self) -> None:
        """Roll back the unit, even if SQLite already has."""
        self._unit.discard()
        try:
            self.connection.rollback()
        except MemoryError:
            with contextlib.suppress(MemoryError):  # If this fails, the next unit rolls back.
                roll_back_without_memory(self.connection)

    def wrote(self, wal_bytes: int) -> None:
        """Add an estimate of the bytes written to the WAL."""
        assert wal_bytes >= 0, wal_bytes
        self._timings.has_written = True
        self._wal_bytes += wal_bytes

    def note_position(self, position: int) -> None:
        """Note the position of a durable unit for later openers; 0 if it is unknown."""
        if position:
            self._mutex.note_position(position)

    # -- syncs that fail ------------------------------------------------------------------------

    def note(self, error: sqlite3.Error) -> None:
        """Record for all processes if the error was a failed sync."""
        if is_failed_sync(error):
            self._mutex.note_sync(failed=True)

    def make_good(self) -> None:
        """If a sync has failed in any process, make the WAL durable before anything else is written. Raises
        StorageError if that fails."""
        if not self._mutex.has_sync_failed():
            return
        try:
            with translated(self._path):
                # SQLite's lock also stops programs that do not use the mutex.
                begin_immediate(self.connection, self.deadline_ns)
            wal.renew(self._path)
        finally:
            self.connection.rollback()
        self._mutex.note_sync(failed=False)
        self._timings.untold.add(catalog.WAL_RENEWED, file=self._path)

    # -- checkpoints ----------------------------------------------------------------------------

    def make_checkpoint_due(self) -> None:
        self._is_checkpoint_asked = True

    def checkpoint_when_due(self) -> None:
        """If a checkpoint is due or requested, copy the WAL into the file as far as readers allow."""
        estimated, before = self._wal_bytes, self._found
        is_due = estimated * self._wal_factor >= _CHECKPOINT_BYTES
        if not (is_due or self._is_checkpoint_asked):
            return
        self._wal_bytes, self._is_checkpoint_asked = 0, False
        if self._leaves_checkpoints:
            self._growth.look_at_others(wal.read_index(self._path))
            return
        checkpoint = self._checkpoint()
        if is_due:
            self._wal_factor = min(max(checkpoint.added_since(before) / estimated, 0.25), 4.0)
        stalls = not before.is_whole and checkpoint.copied_bytes == before.copied_bytes
        if checkpoint.wal_bytes > WAL_LIMIT_BYTES // 2 and not stalls:
            checkpoint = self._begin_wal_anew()
        self._found = checkpoint
        self._growth.look(checkpoint, self._checkpoint)
        reach(Failpoint.CHECKPOINT_DONE)

    def _checkpoint(self, mode: str = "PASSIVE") -> Checkpoint:
        """Run a checkpoint. A failure (a full disk) is ignored, since the commit before it is stored. The
        next round tries again, after renewing the WAL if a sync failed."""
        try:
            _, frames, copied = self.connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        except sqlite3.Error as error:
            self.note(error)
            return Checkpoint(0, 0)
        # Not a constant: an adopted file has its owner's page size.
        (page_size,) = self.connection.execute("PRAGMA page_size").fetchone()
        return Checkpoint(frames * page_size, copied * page_size)

    def shrink_files(self) -> None:
        """Copy the WAL into the file and truncate both, as far as readers allow."""
        if self._leaves_checkpoints:
            return
        self._wal_bytes = 0
        self._found = self._begin_wal_anew("TRUNCATE")

    def _begin_wal_anew(self, mode: str = "RESTART") -> Checkpoint:
        """Run a checkpoint that waits briefly for readers, so that the WAL starts again. Otherwise
        overlapping readers could prevent this for ever."""
        try:
            self.connection.execute(f"PRAGMA busy_timeout={_READERS_WAIT_MS}")
            return self._checkpoint(mode)
        finally:
            self.connection.execute("PRAGMA busy_timeout=0")

    def close(self, *, is_in_place: bool) -> bool:
        """Close the connection; the caller holds the mutex. Returns whether the whole WAL has been copied
        into the file.

        The last connection of SQLite copies and removes the WAL but reports no failure, so this copies it
        first. Unless `is_in_place`, the path names other files by now, and no file there is touched. Raises
        StorageError when the disk fails; the next program that opens the file then finds the WAL.
        """
        if _is_closed(self.connection):
            return False  # An earlier call closed it, and was interrupted.
        if not is_in_place:
            checkpoint = self._checkpoint()
            self.connection.close()
            return checkpoint.is_whole
        try:
            self.make_good()
            if self._leaves_checkpoints:
                # decisions/0053: another program makes the checkpoints, and still needs the WAL.
                self.close_beside_others()
                return False
            checkpoint = self._checkpoint()
            self.make_good()
        except EosdbError:
            self.close_beside_others()
            raise
        self.connection.close()
        return checkpoint.is_whole

    def close_beside_others(self) -> None:
        """Close the connection without copying the WAL. A read-only connection stays open meanwhile:
        SQLite skips the checkpoint if the last connection to close cannot write."""
        try:
            reader = connect(self._path, self._lock_timeout_ms, read_only=True)
        except sqlite3.Error:
            self.connection.close()
            return
        try:
            with contextlib.suppress(sqlite3.Error):
                reader.execute("SELECT 1 FROM sqlite_schema").fetchone()
            self.connection.close()
        finally:
            reader.close()


def _is_closed(connection: sqlite3.Connection) -> bool:
    try:
        return connection.total_changes < 0
    except sqlite3.ProgrammingError:
        return True
