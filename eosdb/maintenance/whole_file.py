"""What `Database` offers about the file as a whole: housekeeping, checks, copies, and its space."""

from __future__ import annotations

import os
from typing import Final

from eosdb.broker.handler import Core
from eosdb.log import snapshots
from eosdb.maintenance import compact, copies, extract, restore, verify
from eosdb.maintenance.housekeeping import Housekeeper
from eosdb.model.progress import Progress
from eosdb.model.reports import CompactReport
from eosdb.model.validation import check_path
from eosdb.model.values import HousekeepingReport, RebuildReport, SnapshotInfo, VerifyReport
from eosdb.store.file.connection import is_in_wal_mode


class WholeFile:
    """The part of `Database` for those who keep the file."""

    def __init__(self, core: Core) -> None:
        self.clock: Final = core.clock
        self._core: Final = core
        self._store: Final = core.store
        self._housekeeper: Final = Housekeeper(core)

    def housekeeping(self, *, on_progress: Progress | None = None) -> HousekeepingReport:
        """Do everything that is due: timeouts, expirations, retention, compaction.

        `on_progress(done, total)` counts records of compacted topics. The work takes many commits: what is
        done when the callback raises stays done.
        """
        self._store.check_open()
        return self._housekeeper.run(on_progress)

    def take_snapshot(self) -> list[SnapshotInfo]:
        """Store the current producer states of every partition; returns the newest snapshot of each."""
        self._store.write(lambda _: None, sync=False)  # Refused if the file was opened read-only.
        self._housekeeper.take_snapshots(sync=True)
        with self._store.read() as connection:
            return snapshots.newest(connection)

    def verify(self, *, on_progress: Progress | None = None) -> VerifyReport:
        """Replay the events and compare the result with the tables. Writes nothing, and does not block
        writers. `on_progress(done, total)` counts events."""
        return verify.verify(self._store, self.clock, on_progress)

    def rebuild(self, *, on_progress: Progress | None = None) -> RebuildReport:
        """Drop every materialized table and rebuild it from the events, in one commit; nothing changes if
        `on_progress(done, total)`, which counts events, raises."""
        return verify.rebuild(self._store, self.clock, on_progress)

    def compact(self, *, on_progress: Progress | None = None) -> CompactReport:
        """Write the file anew without its free pages, in one commit, so that it shrinks; files of an
        earlier eosdb give pages back by themselves from then on.

        Readers go on, writers wait for the end, `lock_timeout_ms` at most. It takes as much room as twice
        the compacted file for a while. Nothing changes if `on_progress(done, total)`, which counts pages,
        raises. Raises DatabaseFullError, saying how much room there should be, and DatabaseLockedError.
        """
        return compact.compact(self._store, self.clock, on_progress)

    def backup(
        self, target: str | os.PathLike[str], *, on_progress: Progress | None = None
    ) -> None:
        """A consistent copy of the file as it is now; it appears whole or, also when `on_progress(done,
        total)`, which counts pages, raises, not at all.

        Raises IllegalStateError when `target` exists.
        """
        copies.back_up(self._store, check_path("target", target), on_progress)

    def extract(
        self, target: str | os.PathLike[str], *, on_progress: Progress | None = None
    ) -> int:
        """Take eosdb's tables out of this file, which was adopted or has tables of its own, into a new
        file, with their id and their whole history. What is left is another application's: this object,
        and all that others have open on it, can only be closed then.

        The new file is whole, verified and durable before anything is dropped here, in one commit; who is
        killed between the two calls it again. Returns the position of the newest event. `on_progress(done,
        total)` counts events that are verified; when it raises, nothing changes. Raises IllegalStateError
        when `target` exists, when views, triggers or foreign keys of the owner use eosdb's tables, and when
        there is nothing but those.
        """
        return extract.extract(self._store, self.clock, check_path("target", target), on_progress)

    @property
    def is_published(self) -> bool:
        """Whether this is a published copy: it can only be opened with `read_only=True`."""
        with self._store.read() as connection:
            return not is_in_wal_mode(connection)

    def restore_to(
        self,
        target: str | os.PathLike[str],
        position: int | None = None,
        timestamp: int | None = None,
        *,
        on_progress: Progress | None = None,
    ) -> int:
        """A copy of the file as it was after event `position`, or at `timestamp` (ms).

        Returns the position. Records that retention or compaction has removed since cannot be restored; the
        copy's log start shows that. `on_progress(done, total)` counts pages and events. Raises
        InvalidRequestError for a position beyond the journal or before the history
        (`history_retention_ms`), and unless exactly one of the two is given, and IllegalStateError when
        `target` exists.
        """
        return restore.restore_to(
            self._store, self.clock, check_path("target", target), position, timestamp, on_progress
        )
