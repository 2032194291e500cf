"""Housekeeping: work that becomes due by time alone, on the injectable clock.

Any write also runs due time-outs and expirations (see the coordinator). A whole round runs on demand. Every
log.retention.check.interval.ms one of the writing processes also runs a round: without a thread, a few
steps after each of its writes (decisions/0023).

A step reads a snapshot, or is one write unit of limited size. The caller may wait between two steps: every
unit checks again the result of an earlier read. To add a kind of housekeeping, add a generator to `_PARTS`
that yields after each step.
"""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final, TypeVar

from eosdb.broker.core import Core
from eosdb.coordinator.groups import offsets as group_offsets
from eosdb.coordinator.transactions import producer_ids
from eosdb.log import compaction, once, partition_rows, producer_rows, retention
from eosdb.log.partition_rows import Partition
from eosdb.maintenance import history
from eosdb.model.clock import monotonic_ns
from eosdb.model.failpoints import Failpoint, reach
from eosdb.model.notices import catalog
from eosdb.model.progress import Progress, report_progress, silent
from eosdb.model.topic_config import TopicConfig
from eosdb.model.values import HousekeepingReport, SnapshotInfo
from eosdb.store import space
from eosdb.store.writing.unit import STEPS_PER_UNIT, Unit
from eosdb.system.signals import is_of_a_signal

K = TypeVar("K")
T = TypeVar("T")
Steps = Generator[None, None, T]
"""Yields after each step; returns the results."""
_PAGES_OF_IDS: Final = 10
"""The most pages of producer ids per round, since every round reads ids with permanent records again."""
_WITH_RECORDS: Final = "log_end_offset > log_start_offset"
_READABLE: Final = f"{_WITH_RECORDS} AND partition >= 0"
"""Partitions with records, except the partitions in which scheduled records wait."""
_COMPACTED: Final = {True: _WITH_RECORDS, False: f"{_WITH_RECORDS} AND partition < 0"}
"""The partitions with records that are compacted, by whether their topic is."""
_TOPICS_A_STEP: Final = 500
"""The topics whose partitions one step searches."""


class Round:
    """The steps of a round and their counts. `unit_ms` is the target duration of one unit; unless `sync`,
    its writes become durable with the next synced unit."""

    def __init__(
        self,
        core: Core,
        *,
        unit_ms: int,
        sync: bool,
        first_id: int | None = None,
        on_progress: Progress = silent,
    ) -> None:
        self._store = core.store
        self._coordinator = core.coordinator
        self._clock = core.clock
        self._config = core.config
        self._unit_ns = unit_ms * 1_000_000
        self._sync = sync
        self.first_id = first_id
        """The first producer id to check; after the round, the first of the next round. None: all ids."""
        self._report = on_progress
        self._done: Counter[str] = Counter()

    def steps(self) -> Iterator[None]:
        """Run everything that is due, and yield after each step."""
        for part in _PARTS:
            yield from part(self)

    def report(self) -> HousekeepingReport:
        return HousekeepingReport(**self._done)

    def take_snapshots(self) -> Steps[None]:
        """Take a producer-state snapshot of every partition that has grown since its last."""
        with self._store.read() as connection:
            grown = producer_rows.grown(connection)
        now_ms = self._clock.time_ms()
        yield from self._for_each(
            grown, lambda unit, id_: producer_rows.take(unit, id_, now_ms), "snapshots"
        )

    # -- units and reads ------------------------------------------------------------------------

    def _write(self, work: Callable[[Unit], T]) -> T:
        return self._store.write(work, sync=self._sync)

    def _alarm(self) -> Callable[[], bool]:
        """Return a function that returns whether `unit_ms` have passed since this call."""
        end = monotonic_ns(self._clock) + self._unit_ns
        return lambda: monotonic_ns(self._clock) >= end

    def _for_each(
        self, due: Sequence[K], work: Callable[[Unit, K], int], counted: str | None = None
    ) -> Steps[list[K]]:
        """Call `work` for each item, with few items in a unit so that other writers get their turn. Adds
        the results to the count `counted`; returns the items whose result is not 0."""
        at, worked_on = 0, list[K]()
        while at < len(due):

            def some(unit: Unit, first: int = at) -> list[int]:
                is_over, counts = self._alarm(), list[int]()
                for key in due[first : first + STEPS_PER_UNIT]:
                    counts.append(work(unit, key))
                    if is_over():
                        break
                return counts

            counts = self._write(some)
            worked_on += [key for key, count in zip(due[at:], counts, strict=False) if count]
            at += len(counts)
            if counted is not None:
                self._done[counted] += sum(counts)
            yield
        return worked_on

    def _search(self, condition: str) -> Steps[list[int]]:
        """Return the ids of the partitions that meet an SQL condition. Each step reads one page of
        partitions on a snapshot of its own, without the writer's lock."""
        found: list[int] = []
        after: int | None = 0
        while after is not None:
            with self._store.read() as connection:
                some, after = partition_rows.page(connection, after, condition)
            found += [partition.partition_id for partition in some]
            yield
        return found

    def _by_config(self) -> Iterator[tuple[TopicConfig, list[int]]]:
        """The settings that topics have, with the numbers of up to _TOPICS_A_STEP of their topics."""
        with self._store.read() as connection:
            found = partition_rows.topics_by_config(connection, self._config)
        for config, numbers in found.items():
            for first in range(0, len(numbers), _TOPICS_A_STEP):
                yield config, numbers[first : first + _TOPICS_A_STEP]

    # -- the parts ------------------------------------------------------------------------------

    def _forget_groups(self) -> Steps[None]:
        """Expire groups without members. Members expire later in a round, so a group that loses its last
        member still exists until the next round."""
        now_ms = self._clock.time_ms()
        with self._store.read() as connection:
            idle = group_offsets.idle_groups(connection)
        yield from self._for_each(
            idle, lambda unit, group_id: group_offsets.forget_idle(unit, group_id, now_ms)
        )

    def _run_due(self) -> Steps[None]:
        """Run the due time-outs and expirations that any write also runs."""
        self._done.update(self._coordinator.run_due())
        yield

    def _move_log_starts(self) -> Steps[None]:
        now = self._clock.time_ms()

        def move(unit: Unit, partition_id: int) -> int:
            partition = partition_rows.find_by_id(unit, partition_id)
            if partition is None:
                return 0
            config = partition_rows.config(unit, partition.topic_id, self._config)
            target = retention.due_log_start(unit, partition, config, now)
            if target is None:
                return 0
            offset, reason = target
            retention.move_log_start(unit, partition, offset, reason, now)
            return offset - partition.log_start_offset

        moving: list[int] = []
        for config, numbers in self._by_config():
            if (condition := retention.condition(config, now)) is not None:
                with self._store.read() as connection:
                    moving += [
                        partition.partition_id
                        for partition in partition_rows.of_topics(
                            connection, numbers, f"{_READABLE} AND {condition[0]}", condition[1]
                        )
                        if retention.due_log_start(connection, partition, config, now) is not None
                    ]
                yield
        while moving:  # One event deletes a limited number of records.
            moving = yield from self._for_each(moving, move, "deleted_records")
        reach(Failpoint.RETENTION_MOVED)
        cut = yield from self._search(f"log_start_offset > 0 AND {retention.INDEX_BELOW}")
        yield from self._for_each(
            cut, lambda unit, partition_id: retention.cut_index(unit, partition_id, now)
        )

    def _delete_rows(self) -> Steps[None]:
        below = yield from self._search(f"log_start_offset > 0 AND {retention.ROWS_BELOW}")
        with self._store.read() as connection:
            orphans = retention.orphans(connection)
        yield from retention.delete_in_parts(
            functools.partial(self._store.write, sync=False), [*below, *orphans]
        )

    def _compact(self) -> Steps[None]:
        now = self._clock.time_ms()
        compacted: list[Partition] = []
        due: set[int] = set()
        for config, numbers in self._by_config():
            with self._store.read() as connection:
                some = partition_rows.of_topics(connection, numbers, _COMPACTED[config.compact], ())
                due.update(
                    partition.partition_id
                    for partition in some
                    if compaction.is_due(connection, partition, config, now)
                )
            compacted += some
            yield
        sizes = [partition.log_end_offset - partition.log_start_offset for partition in compacted]
        done, total = 0, sum(sizes)
        for (partition_id, *_), size in zip(compacted, sizes, strict=True):
            self._report(done, total)

            def clean(unit: Unit, partition_id: int = partition_id) -> int:
                partition = partition_rows.find_by_id(unit, partition_id)
                if partition is None:
                    return 0
                config = partition_rows.config(unit, partition.topic_id, self._config)
                return compaction.clean(unit, partition, config, self._clock.time_ms())

            if partition_id in due:
                self._done["compacted_records"] += self._write(clean)
                yield
            done += size
        self._report(total, total)

    def _forget_producer_ids(self) -> Steps[None]:
        """Forget the transactional ids of old producer ids that have no records any more."""
        now_ms = self._clock.time_ms()
        first: int | None = self.first_id or 0
        pages = 0
        while first is not None and (self.first_id is None or pages < _PAGES_OF_IDS):
            with self._store.read() as connection:
                ids, first = producer_ids.left_over(connection, first)
            if ids:
                self._write(functools.partial(producer_ids.forget, ids=ids, now_ms=now_ms))
            pages += 1
            yield
        self.first_id = first or 0

    def _forget_what_was_done_once(self) -> Steps[None]:
        now_ms = self._clock.time_ms()
        before_ms = now_ms - self._config.idempotency_retention_ms
        while self._config.idempotency_retention_ms >= 0:
            with self._store.read() as connection:
                if not once.is_due(connection, before_ms):
                    return
            keys, sinks = self._store.write(
                lambda unit: once.expire(unit, before_ms, now_ms), sync=False
            )
            self._done.update(expired_idempotency_keys=keys, expired_sinks=sinks)
            yield

    def _trim_history(self) -> Steps[None]:
        """Advance the baseline in commits without a sync. A power cut removes only the last commits, and
        each has both the baseline and the deletion of events."""
        now_ms = self._clock.time_ms()
        while True:
            with self._store.read() as connection:
                if not history.is_due(connection, self._config, now_ms):
                    return
            self._done["trimmed_events"] += self._store.write(
                lambda unit: history.advance(unit, self._config, now_ms), sync=False
            )
            yield

    def _free_pages(self) -> Steps[None]:
        with self._store.read() as connection:
            is_due = space.surplus(connection) > 0
        while is_due:
            freed = self._store.write(lambda unit: space.give_back(unit, self._alarm()), sync=False)
            self._done["freed_bytes"] += freed
            is_due = freed > 0
            yield


_PARTS: Final[tuple[Callable[[Round], Steps[None]], ...]] = (
    Round._forget_groups,
    Round._run_due,
    Round._move_log_starts,
    Round._delete_rows,
    Round._forget_producer_ids,
    Round._forget_what_was_done_once,
    Round._compact,
    Round.take_snapshots,
    Round._trim_history,
    Round._free_pages,
)
"""The parts of a round. The last parts return the pages that earlier parts have freed."""


_UNIT_MS: Final = 2
"""The target duration of one unit of background housekeeping, for which other writers wait."""
_UNIT_ON_DEMAND_MS: Final = 20
_AFTER_A_WRITE_NS: Final = 50_000_000
"""The time limit of the steps after one write. After a program's first write, which may be its last, all of
it is used."""
_NS_A_ROW: Final = 3_000
"""The cost of deleting a row, so that a program that writes many rows also deletes many."""


def housekeeping(core: Core, *, on_progress: Progress | None = None) -> HousekeepingReport:
    """Run everything that is due: time-outs, expirations, retention, compaction.

    `on_progress(done, total)` counts records of compacted topics. The work takes many commits: if the
    callback raises, what is done so far stays done.
    """
    core.store.check_open()
    core.store.begin_round(core.clock.time_ms(), 0)

    def work(report: Progress) -> HousekeepingReport:
        whole = Round(core, unit_ms=_UNIT_ON_DEMAND_MS, sync=True, on_progress=report)
        for _ in whole.steps():
            pass
        _tell_of(core, whole)
        return whole.report()

    return report_progress(on_progress, work)


def take_snapshot(core: Core) -> list[SnapshotInfo]:
    """Store a snapshot of the producer state of every partition; returns the newest snapshot of each."""
    core.store.write(lambda _: None, sync=False)  # Raises an error if the file is open read-only.
    snapshot_all(core, sync=True)
    with core.store.read() as connection:
        return producer_rows.newest(connection)


def snapshot_all(core: Core, *, sync: bool) -> None:
    """Take a producer-state snapshot of every partition that has grown since its last."""
    for _ in Round(core, unit_ms=_UNIT_ON_DEMAND_MS, sync=sync).take_snapshots():
        pass


def _tell_of(core: Core, whole: Round) -> None:
    report = whole.report()
    done = {name: getattr(report, name) for name in catalog.HOUSEKEPT.fields[1:]}
    if any(done.values()):
        catalog.HOUSEKEPT.say(
            file=core.store.path,
            counts=", ".join(f"{n} {name.replace('_', ' ')}" for name, n in done.items() if n),
            **done,
        )


class Housekeeper:
    """Runs rounds after the writes of one database object."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._looked_ms = self._look_at_ms = 0
        """When a round was last checked for, and when to check again. The lock file stores the start of
        the last one."""
        self._steps: Iterator[None] | None = None
        """The steps of the current round."""
        self._whole: Round | None = None
        """The current or last round."""
        self._rested_ns: int | None = None
        self._took_ns = 0
        self._rows_before = 0

    def run_when_due(self) -> None:
        """After a write, run the next steps of the current round, or the first ones of a new round if the
        interval has passed. Does nothing while another thread is running steps.

        A failure only ends the round (the write is committed already); a later round continues.
        """
        now_ms = self._core.clock.time_ms()
        # If the clock was set back, `_looked_ms` is in the future, so the interval counts as over.
        if self._steps is None and self._looked_ms <= now_ms < self._look_at_ms:
            return
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._steps is not None or self._begins_round():
                self._take_steps()
        except Exception as error:
            self._steps = None
            if is_of_a_signal(error):
                raise
            catalog.HOUSEKEEPING_LATER.say(file=self._core.store.path, cause=error, error=error)
        finally:
            self._lock.release()

    def _begins_round(self) -> bool:
        """Begin a round if the interval has passed and no other process has. Returns whether it did."""
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
        """Run one step, or more after a write of many rows. Does nothing until as much time has passed as
        the last steps took: so housekeeping takes at most half of the time."""
        assert self._steps is not None
        store, clock = self._core.store, self._core.clock
        began, allowance = monotonic_ns(clock), _AFTER_A_WRITE_NS
        if self._rested_ns is not None:
            if began - self._rested_ns < self._took_ns:
                return
            allowance = min(allowance, (store.timings.rows - self._rows_before) * _NS_A_ROW)
        try:
            for _ in self._steps:
                if monotonic_ns(clock) - began >= allowance:
                    return
            self._steps = None
            if self._whole is not None:
                _tell_of(self._core, self._whole)
        finally:
            self._rested_ns, self._rows_before = monotonic_ns(clock), store.timings.rows
            self._took_ns = self._rested_ns - began
