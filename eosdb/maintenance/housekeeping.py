"""Housekeeping: what time alone makes due, on the injectable clock.

Time-outs and expirations are also done by any write that finds one due (see the coordinator). A whole
round runs on demand; every log.retention.check.interval.ms one process that writes runs it by itself, a few
steps after each of its writes, without a thread (decisions/0023).
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
"""How long others wait for one unit of housekeeping that runs beside their work."""
_UNIT_ON_DEMAND_MS: Final = 20
_AFTER_A_WRITE_NS: Final = 50_000_000
"""The most that steps take after one write, and what they take after the first write of a program, which
may be its last."""
_NS_A_ROW: Final = 3_000
"""What it takes to delete a row: who writes many has as many deleted."""


class Housekeeper:
    """Runs housekeeping for one database object."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._looked_ms = self._look_at_ms = 0
        """When it was last looked whether a round is due, and when to look again; the lock file says when
        the last one began."""
        self._steps: Iterator[None] | None = None
        """The round that is going on."""
        self._whole: Round | None = None
        """It, or the one before."""
        self._rested_ns: int | None = None
        """When the last steps ended."""
        self._took_ns = 0
        self._rows_before = 0
        """What had been written then."""

    def run(self, on_progress: Progress | None = None) -> HousekeepingReport:
        """Do everything that is due now; `on_progress` counts records in compacted partitions."""
        self._core.store.begin_round(self._core.clock.time_ms(), 0)
        return report_progress(on_progress, self._run)

    def _run(self, report: Progress) -> HousekeepingReport:
        whole = self._round(_UNIT_ON_DEMAND_MS, sync=True, on_progress=report)
        for _ in whole.steps():
            pass
        self._tell_of(whole)
        return whole.report()

    def run_when_due(self) -> None:
        """After a write: the next steps of the round that is going on, or the first ones of a new round
        if the interval has passed. Nothing if another thread is at it.

        A failure ends the round, and the next one goes on: the calling request has been committed already.
        """
        now_ms = self._core.clock.time_ms()
        # A clock that has gone back has not passed what it said when it was ahead.
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
        """A round that has deleted something says what."""
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
        for _ in self._round(_UNIT_ON_DEMAND_MS, sync=sync).take_snapshots():
            pass

    def _round(self, unit_ms: int, *, sync: bool, on_progress: Progress | None = None) -> Round:
        if on_progress is None:
            return Round(self._core, unit_ms=unit_ms, sync=sync)
        return Round(self._core, unit_ms=unit_ms, sync=sync, on_progress=on_progress)

    def _begins_round(self) -> bool:
        """Whether the interval has passed, and no other process has begun this round."""
        every_ms = self._core.config.log_retention_check_interval_ms
        now_ms = self._core.clock.time_ms()
        self._looked_ms, self._look_at_ms = now_ms, now_ms + every_ms
        is_due, last_ms = self._core.store.begin_round(now_ms, every_ms)
        self._look_at_ms = last_ms + every_ms
        if is_due:
            self._whole = self._round(_UNIT_MS, sync=False)
            self._steps = self._whole.steps()
        return is_due

    def _take_steps(self) -> None:
        """One, and more after a write of many rows; none before as much time has passed as the last ones
        took, so that half of it is left to others."""
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
