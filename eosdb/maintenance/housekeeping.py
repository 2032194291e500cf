"""Housekeeping: work that becomes due by time alone, on the injectable clock.

Time-outs and expirations are also handled by any write that finds one due (see the coordinator). A whole
round runs on demand. Every log.retention.check.interval.ms one writing process runs a round by itself, a
few steps after each of its writes, without a thread (decisions/0023).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Final

from eosdb.broker.handler import Core
from eosdb.maintenance.round import Round
from eosdb.model.clock import monotonic_ns
from eosdb.model.notices import catalog
from eosdb.model.progress import Progress, report_progress
from eosdb.model.values import HousekeepingReport

_UNIT_MS: Final = 2
"""The target duration of one unit of background housekeeping, for which other writers wait."""
_UNIT_ON_DEMAND_MS: Final = 20
_AFTER_A_WRITE_NS: Final = 50_000_000
"""The time limit of the steps after one write; the first write of a program uses all of it, because it
may be its last."""
_NS_A_ROW: Final = 3_000
"""The cost of deleting a row, so that a program that writes many rows also deletes many."""


class Housekeeper:
    """Runs housekeeping for one database object."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._looked_ms = self._look_at_ms = 0
        """When a round was last checked for, and when to check again; the lock file stores when the last
        one began."""
        self._steps: Iterator[None] | None = None
        """The steps of the current round."""
        self._whole: Round | None = None
        """The current or last round."""
        self._rested_ns: int | None = None
        """When the last steps ended."""
        self._took_ns = 0
        self._rows_before = 0
        """The number of rows written by then."""

    def run(self, on_progress: Progress | None = None) -> HousekeepingReport:
        """Run everything that is due now; `on_progress` counts records in compacted partitions."""
        self._core.store.begin_round(self._core.clock.time_ms(), 0)
        return report_progress(on_progress, self._run)

    def _run(self, report: Progress) -> HousekeepingReport:
        whole = Round(self._core, unit_ms=_UNIT_ON_DEMAND_MS, sync=True, on_progress=report)
        for _ in whole.steps():
            pass
        self._tell_of(whole)
        return whole.report()

    def run_when_due(self) -> None:
        """Run the next steps of the current round after a write, or the first ones of a new round if the
        interval has passed; does nothing if another thread is running steps.

        A failure ends the round, and a later round continues, because the write has already been
        committed.
        """
        now_ms = self._core.clock.time_ms()
        # After the clock was set back, times from before are in the future.
        if self._steps is None and self._looked_ms <= now_ms < self._look_at_ms:
            return
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._steps is not None or self._begins_round():
                self._take_steps()
        except Exception as error:
            self._steps = None
            catalog.HOUSEKEEPING_LATER.say(file=self._core.store.path, cause=error, error=error)
        finally:
            self._lock.release()

    def _tell_of(self, whole: Round) -> None:
        """Log what a round has deleted, if anything."""
        report = whole.report()
        done = {name: getattr(report, name) for name in catalog.HOUSEKEPT.fields[1:]}
        if any(done.values()):
            catalog.HOUSEKEPT.say(
                file=self._core.store.path,
                counts=", ".join(f"{n} {name.replace('_', ' ')}" for name, n in done.items() if n),
                **done,
            )

    def take_snapshots(self, *, sync: bool = False) -> None:
        """Take a producer-state snapshot of every partition that has grown since its last."""
        for _ in Round(self._core, unit_ms=_UNIT_ON_DEMAND_MS, sync=sync).take_snapshots():
            pass

    def _begins_round(self) -> bool:
        """Whether the interval has passed and no other process has begun this round."""
        every_ms = self._core.config.log_retention_check_interval_ms
        now_ms = self._core.clock.time_ms()
        self._looked_ms, self._look_at_ms = now_ms, now_ms + every_ms
        is_due, last_ms = self._core.store.begin_round(now_ms, every_ms)
        self._look_at_ms = last_ms + every_ms
        if is_due:
            first_id = 0 if self._whole is None else self._whole.first_id
            self._whole = Round(self._core, unit_ms=_UNIT_MS, sync=False, first_id=first_id)
            self._steps = self._whole.steps()
        return is_due

    def _take_steps(self) -> None:
        """Run one step, or more after a write of many rows; none until as much time has passed as the
        last steps took, so that half of the time is left for other work."""
        assert self._steps is not None
        store, clock = self._core.store, self._core.clock
        began, allowance = monotonic_ns(clock), _AFTER_A_WRITE_NS
        if self._rested_ns is not None:
            if began - self._rested_ns < self._took_ns:
                return
            allowance = min(allowance, (store.rows_written - self._rows_before) * _NS_A_ROW)
        try:
            for _ in self._steps:
                if monotonic_ns(clock) - began >= allowance:
                    return
            self._steps = None
            if self._whole is not None:
                self._tell_of(self._whole)
        finally:
            self._rested_ns, self._rows_before = monotonic_ns(clock), store.rows_written
            self._took_ns = self._rested_ns - began
