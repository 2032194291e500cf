"""Methods of `Database` for the file as a whole: housekeeping, checks, copies, and disk space."""

from __future__ import annotations

import os
from typing import Final

from eosdb.broker.core import Core
from eosdb.log import producer_rows
from eosdb.maintenance import compact, copies, extract, restore, verify
from eosdb.maintenance.housekeeping import Housekeeper
from eosdb.model.progress import Progress
from eosdb.model.reports import CompactReport
from eosdb.model.validation import check_path
from eosdb.model.values import HousekeepingReport, RebuildReport, SnapshotInfo, VerifyReport
from eosdb.store.file.connection import is_in_wal_mode


class WholeFile:
    """The part of `Database` for maintenance of the file."""

    def __init__(self, core: Core) -> None:
        self.clock: Final = core.clock
        self._core: Final = core
        self._store: Final = core.store
        self._housekeeper: Final = Housekeeper(core)

    def housekeeping(self, *, on_progress: Progress | None = None) -> HousekeepingReport:
        """Run everything that is due: time-outs, expirations, retention, compaction.

        `on_progress(done, total)` counts records of compacted topics. The work takes many commits: if
        the callback raises, what is done so far stays done.
        """
        self._store.check_open()
        return self._housekeeper.run(on_progress)

    def take_snapshot(self) -> list[SnapshotInfo]:
        """Store a snapshot of the producer state of every partition; returns the newest snapshot of
        each."""
        self._store.write(lambda _: None, sync=False)  # Refused if the file was opened read-only.
        self._housekeeper.take_snapshots(sync=True)
        with self._store.read() as connection:
            return producer_rows.newest(connection)

    def verify(self, *, on_progress: Progress | None = None) -> VerifyReport:
        """Replay the events and compare the result with the tables. Writes nothing, and does not block
        writers. `on_progress(done, total)` counts events."""
        return verify.verify(self._store, self.clock, on_progress)

    def rebuild(self, *, on_progress: Progress | None = None) -> RebuildReport:
        """Drop every materialized table and rebuild it from the events, in one commit.
        `on_progress(done, total)` counts events; if it raises, nothing changes."""
        return verify.rebuild(self._store, self.clock, on_progress)

    def compact(self, *, on_progress: Progress | None = None) -> CompactReport:
        """Rewrite the file without its free pages, in one commit, so that it shrinks. A file of an
        earlier eosdb returns pages by itself from then on.

        Readers are not affected; writers wait until it is done, at most `lock_timeout_ms`. It
        temporarily needs disk space of twice the compacted file. `on_progress(done, total)` counts
        pages; if it raises, nothing changes. Raises DatabaseFullError, saying how much space is needed,
        and DatabaseLockedError.
        """
        return compact.compact(self._store, self.clock, on_progress)

    def backup(
        self, target: str | os.PathLike[str], *, on_progress: Progress | None = None
    ) -> None:
        """Copy the current state of the file to `target`, which appears complete or not at all.

        `on_progress(done, total)` counts pages; if it raises, there is no copy. Raises IllegalStateError
        if `target` exists.
        """
        copies.back_up(self._store, check_path("target", target), on_progress)

    def extract(
        self, target: str | os.PathLike[str], *, on_progress: Progress | None = None
    ) -> int:
        """Move eosdb's tables, with the file id and the whole history, from this file, which was adopted
        or has tables of its own, to a new file. Returns the position of the newest event.

        Afterwards this file is the other application's: close this object and all others that have it
        open. The new file is complete, verified and durable before anything is dropped here, in one
        commit; if the process is killed in between, call it again.

        `on_progress(done, total)` counts verified events; if it raises, nothing changes. Raises
        IllegalStateError if `target` exists, if views, triggers or foreign keys of the owner use eosdb's
        tables, or if the file has no tables but eosdb's.
        """
        return extract.extract(self._store, self.clock, check_path("target", target), on_progress)

    @property
    def is_published(self) -> bool:
        """Whether this is a published copy: it can only be opened with `read_only=True`."""
        with self._store.read() as connection:
            return not is_in_wal_mode(connection, self._store.path)

    def restore_to(
        self,
        target: str | os.PathLike[str],
        position: int | None = None,
        timestamp: int | None = None,
        *,
        on_progress: Progress | None = None,
    ) -> int:
        """Write a copy of the file as it was after event `position`, or at `timestamp` (ms). Returns the
        position.

        Records that retention or compaction has removed since cannot be restored; the copy's log start
        shows that. `on_progress(done, total)` counts pages and events. Raises InvalidRequestError for a
        position beyond the journal or before the history (`history_retention_ms`), and unless exactly
        one of the two is given, and IllegalStateError if `target` exists.
        """
        return restore.restore_to(
            self._store, self.clock, check_path("target", target), position, timestamp, on_progress
        )
