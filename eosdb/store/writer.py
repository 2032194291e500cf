"""The one connection of a store that writes: units from BEGIN to COMMIT, and the checkpoints between.

Its caller holds the writer mutex. `durability` is SQLite's `synchronous`: a unit that decides something is
synced under "full"; one that is only made valid by a later, synced unit need not be.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from typing import Final

from eosdb.failpoints import Failpoint, reach
from eosdb.store.connection import WAL_LIMIT_BYTES, connect
from eosdb.store.group_commit import Request
from eosdb.store.unit import Apply, RedoCarefullyError, Unit

_MEMO_MAX: Final = 20_000
_CHECKPOINT_BYTES: Final = 4 * 1024 * 1024
_FRAME_BYTES: Final = 4_096
_READERS_WAIT_MS: Final = 50
_SYNCHRONOUS: Final = {"full": "FULL", "normal": "NORMAL", "off": "OFF"}
NO_COUNTS: Final = {"commit-total": 0.0, "fsync-total": 0.0, "requests-per-commit-avg": 0.0}
"""Of a store that does not write."""


class Writer:
    """One at a time uses it: whoever has the store's turn."""

    def __init__(self, path: str, apply: Apply, durability: str, lock_timeout_ms: int) -> None:
        self._lock_timeout_ms = lock_timeout_ms
        self.durable: Final = _SYNCHRONOUS[durability]
        self._relaxed = "NORMAL" if durability == "full" else self.durable
        self._synchronous = ""
        self.connection: Final = connect(path, lock_timeout_ms)
        self._unit = Unit(self.connection, apply)
        self._data_version = -1
        self._changes_before = 0
        # Left by others, who may have been killed before it was their turn to copy it.
        self._wal_bytes = _size(f"{path}-wal")
        self._is_checkpoint_asked = False
        self._wal_factor = 1.0
        """What the last checkpoint found in the WAL, against what had been estimated."""
        self.has_written = False
        """Whether a unit has changed anything."""
        self._commits = self._synced_commits = self._requests = 0

    # -- units ----------------------------------------------------------------------------------

    def run(self, batch: list[Request]) -> None:
        """Every request in one unit. Raises sqlite3.Error when nothing of it stands."""
        sync = any(request.sync for request in batch)
        try:
            outcomes = self._run(batch, sync=sync, careful=False)
        except RedoCarefullyError:
            outcomes = self._run(batch, sync=sync, careful=True)
        for request, (result, error) in zip(batch, outcomes, strict=True):
            request.result, request.error, request.done = result, error, True

    def _run(
        self, batch: list[Request], *, sync: bool, careful: bool
    ) -> list[tuple[object, Exception | None]]:
        unit = self.begin(sync=sync, careful=careful)
        try:
            outcomes = [self._run_request(unit, request, len(batch) == 1) for request in batch]
            self.commit(len(batch))
        except BaseException:
            self.roll_back()
            raise
        return outcomes

    def _run_request(
        self, unit: Unit, request: Request, alone: bool
    ) -> tuple[object, Exception | None]:
        """One request as a part of the unit; alone, the whole unit is undone with it."""
        try:
            if not alone:
                with unit.savepoint():
                    return request.function(unit), None
            return request.function(unit), None
        except (sqlite3.Error, RedoCarefullyError):
            raise
        except Exception as error:
            if alone:
                self.roll_back()
            return None, error

    def begin(self, *, sync: bool, careful: bool) -> Unit:
        """Take SQLite's write lock. `careful` as in Unit."""
        execute = self.connection.execute
        synchronous = self.durable if sync else self._relaxed
        if synchronous != self._synchronous:
            execute(f"PRAGMA synchronous={synchronous}")
            self._synchronous = synchronous
        self._changes_before = self.connection.total_changes
        unit = self._unit
        unit.written_bytes = 0
        unit.careful = careful
        execute("BEGIN IMMEDIATE")
        try:
            (version,) = execute("PRAGMA data_version").fetchone()
        except BaseException:
            self.roll_back()
            raise
        if version != self._data_version or len(unit.memo) > _MEMO_MAX:
            self._data_version = version
            unit.memo.clear()
        return unit

    def commit(self, requests: int) -> None:
        """Make the unit stand, with so many requests in it. Raises sqlite3.Error."""
        if self.connection.in_transaction:
            self.connection.execute("COMMIT")
        self.count(requests, sync=self._synchronous == "FULL")
        reach(Failpoint.UNIT_COMMITTED)
        changes = self.connection.total_changes - self._changes_before
        if changes:
            self.wrote(16_384 + changes * 200 + self._unit.written_bytes)

    def roll_back(self) -> None:
        """Undo the unit, also where SQLite has undone it itself."""
        self._unit.memo.clear()
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def count(self, requests: int, *, sync: bool) -> None:
        """A unit has been committed, on this connection or beside it."""
        self._commits += 1
        self._synced_commits += sync
        self._requests += requests

    def wrote(self, wal_bytes: int) -> None:
        """So much, roughly, has gone into the WAL."""
        self.has_written = True
        self._wal_bytes += wal_bytes

    def counts(self) -> dict[str, float]:
        """Units committed, those that were fsynced, and how many requests shared one."""
        return {
            "commit-total": self._commits,
            "fsync-total": self._synced_commits,
            "requests-per-commit-avg": self._requests / max(self._commits, 1),
        }

    # -- checkpoints ----------------------------------------------------------------------------

    def make_checkpoint_due(self) -> None:
        self._is_checkpoint_asked = True

    def checkpoint_when_due(self) -> None:
        """Copy the WAL into the file as far as readers allow."""
        estimated = self._wal_bytes
        if estimated * self._wal_factor < _CHECKPOINT_BYTES and not self._is_checkpoint_asked:
            return
        self._wal_bytes, self._is_checkpoint_asked = 0, False
        # A full disk must not undo a commit that has succeeded; the next round tries again.
        with contextlib.suppress(sqlite3.Error):
            _, frames, _ = self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if estimated >= _CHECKPOINT_BYTES:
                self._wal_factor = min(max(frames * _FRAME_BYTES / estimated, 0.25), 4.0)
            if frames * _FRAME_BYTES > WAL_LIMIT_BYTES // 2:
                self._begin_wal_anew()
            reach(Failpoint.CHECKPOINT_DONE)

    def _begin_wal_anew(self) -> None:
        """With readers that overlap all the time the WAL would never be reused: wait for those that are
        reading now, but not for one that stands still."""
        self.connection.execute(f"PRAGMA busy_timeout={_READERS_WAIT_MS}")
        try:
            self.connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
        finally:
            self.connection.execute(f"PRAGMA busy_timeout={self._lock_timeout_ms}")

    def close(self) -> None:
        self.connection.close()


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        return 0
