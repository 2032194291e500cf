"""Counts a store's writes and measures the parts of each commit's time, for metrics and the notice of a
slow commit.

A unit's time runs from the request for the lock to the end of the checkpoint after its COMMIT. The store
logs pending notices after it has released the lock and the turn.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from eosdb.errors import DatabaseFullError, ReadOnlyDatabaseError, StorageError, of_one_write
from eosdb.model.clock import real_ns
from eosdb.model.notices import catalog
from eosdb.model.notices.notice import Untold, one_line
from eosdb.model.reports import CommitTimes

BOUNDS_NS: Final = tuple(
    int(seconds * 1_000_000_000)
    for seconds in (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5)
)
"""Upper bounds of the buckets; the last bucket has none."""


_OF_THE_FILE: Final = (DatabaseFullError, ReadOnlyDatabaseError, StorageError)


class Timings:
    """The counts and timings of one store since it was opened. Only the leading thread uses them."""

    def __init__(self, path: str, slow_commit_ms: int) -> None:
        self.has_written = False
        self.rows = 0
        """The rows that units inserted, changed or deleted."""
        self._commits = self._synced_commits = self._requests = 0
        self._path = path
        self._slow_ns = slow_commit_ms * 1_000_000
        self.untold: Final = Untold()
        self._buckets = [0] * (len(BOUNDS_NS) + 1)
        self._commit_ns = self._lock_ns = 0
        self._began = self._committing = self._committed = 0
        self._waits = False
        self._is_failing = False
        """Whether the file or its disk refused the last write."""
        self._turn_lock_ns = self._turn_commit_ns = 0

    def begun(self) -> None:
        """Record that a turn begins and requests the file's lock."""
        self._began = real_ns()
        self._waits = True
        self._turn_lock_ns = self._turn_commit_ns = 0

    def locked(self) -> None:
        """Record that the file's lock is held. Taking it again in this turn counts as no wait."""
        if self._waits:
            self._waits = False
            self._turn_lock_ns = real_ns() - self._began
            self._lock_ns += self._turn_lock_ns

    def committing(self) -> None:
        """Record that all statements are done and COMMIT begins."""
        self._committing = real_ns()

    def committed(self, requests: int, *, sync: bool) -> None:
        """The unit, of this many requests, is committed."""
        assert requests > 0, requests
        self._committed = real_ns()
        took = self._committed - self._committing
        assert took >= 0, took
        self._buckets[bisect_left(BOUNDS_NS, took)] += 1
        self._commit_ns += took
        self._turn_commit_ns += took
        self._commits += 1
        self._synced_commits += sync
        self._requests += requests

    def ended(self, requests: int) -> None:
        """Record the end of a turn, in which `requests` requests shared a commit. A turn without a commit
        is not reported."""
        end = real_ns()
        took = end - self._began
        if self._slow_ns < 0 or took < self._slow_ns or not self._turn_commit_ns:
            return
        checkpoint = end - self._committed
        work = took - self._turn_lock_ns - self._turn_commit_ns - checkpoint
        parts = (took, self._turn_lock_ns, work, self._turn_commit_ns, checkpoint)
        took_ms, lock_ms, work_ms, commit_ms, checkpoint_ms = (ns // 1_000_000 for ns in parts)
        self.untold.add(
            catalog.SLOW_COMMIT,
            file=self._path,
            took_ms=took_ms,
            lock_ms=lock_ms,
            work_ms=work_ms,
            commit_ms=commit_ms,
            checkpoint_ms=checkpoint_ms,
            requests=requests,
        )

    def note_outcome(self, errors: Sequence[BaseException]) -> None:
        """Report once that the file refuses writes, and once that it accepts them again."""
        failed = [error for error in errors if isinstance(error, _OF_THE_FILE)]
        if failed and not self._is_failing:
            self._is_failing = True
            cause = one_line(of_one_write(failed[0]))
            self.untold.add(catalog.WRITES_FAIL, file=self._path, error=failed[0], cause=cause)
        elif self._is_failing and not errors:
            self._is_failing = False
            self.untold.add(catalog.WRITES_AGAIN, file=self._path)

    def tell(self) -> None:
        """Log the pending notices. Call it while no lock is held."""
        if self.untold.waiting:
            # A failing log handler must not fail the write, which is committed.
            with contextlib.suppress(Exception):
                self.untold.tell()

    def counts(self) -> dict[str, float]:
        """Return the numbers of commits, of commits with an fsync, and of requests per commit."""
        return {
            "commit-total": float(self._commits),
            "fsync-total": float(self._synced_commits),
            "requests-per-commit-avg": self._requests / max(self._commits, 1),
        }

    def times(self) -> CommitTimes:
        """Return the durations of COMMIT, including its fsync, and of waiting for the write lock."""
        return CommitTimes(
            bounds_s=tuple(bound / 1e9 for bound in BOUNDS_NS),
            counts=tuple(self._buckets),
            total_s=self._commit_ns / 1e9,
            lock_wait_s=self._lock_ns / 1e9,
        )
