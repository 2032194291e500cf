"""Housekeeping: what time alone makes due, on the injectable clock.

Time-outs and expirations are also done by any write that finds one due (see the coordinator). Retention,
compaction and snapshots run here, on demand and every log.retention.check.interval.ms. Readers look for
what is due; units then do it, each a bounded part, however many partitions, groups and ids there are.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from eosdb.broker.handler import Core
from eosdb.config import TopicConfig
from eosdb.coordinator.groups import offsets as group_offsets
from eosdb.errors import EosdbError
from eosdb.failpoints import Failpoint, reach
from eosdb.log import compaction, once, partition_rows, retention, snapshots
from eosdb.log.partition_rows import IsDue, Partition
from eosdb.maintenance import history
from eosdb.model.values import HousekeepingReport
from eosdb.progress import Progress, report_progress
from eosdb.store.writing.unit import STEPS_PER_UNIT, Unit

K = TypeVar("K")


class Housekeeper:
    """Runs housekeeping for one database object."""

    def __init__(self, core: Core) -> None:
        self._store = core.store
        self._coordinator = core.coordinator
        self._clock = core.clock
        self._config = core.config
        self._lock = threading.Lock()
        self._next_ms = self._clock.time_ms() + self._config.log_retention_check_interval_ms

    def run(self, on_progress: Progress | None = None) -> HousekeepingReport:
        """Do everything that is due now; `on_progress` counts records in compacted partitions."""
        return report_progress(on_progress, self._run)

    def _run(self, report: Progress) -> HousekeepingReport:
        self._next_ms = self._clock.time_ms() + self._config.log_retention_check_interval_ms
        self._forget_groups()
        due = self._coordinator.run_due()
        moved = self._move_log_starts()
        reach(Failpoint.RETENTION_MOVED)
        self._delete_rows()
        keys, sinks = self._forget_what_was_done_once()
        return HousekeepingReport(
            recovered_transactions=due.recovered,
            aborted_transactions=due.aborted,
            expired_transactional_ids=due.transactional_ids,
            expired_producers=due.producers,
            expired_offsets=due.offsets,
            changed_groups=due.groups,
            deleted_records=moved,
            compacted_records=self._compact(report),
            snapshots=self.take_snapshots(),
            expired_idempotency_keys=keys,
            expired_sinks=sinks,
            trimmed_events=self._trim_history(),
        )

    def run_when_due(self) -> None:
        """Run if the interval has passed and no other thread is running it.

        A failure is left to the next interval: the calling request has been committed already.
        """
        if self._clock.time_ms() >= self._next_ms and self._lock.acquire(blocking=False):
            try:
                with contextlib.suppress(EosdbError):
                    self.run()
            finally:
                self._lock.release()

    def take_snapshots(self, *, sync: bool = False) -> int:
        """Take a producer-state snapshot of every partition that has grown since its last. Returns how
        many."""
        with self._store.read() as connection:
            grown = snapshots.grown(connection)
        now_ms = self._clock.time_ms()
        return self._for_each(
            grown, lambda unit, partition_id: snapshots.take(unit, partition_id, now_ms), sync=sync
        )

    def _forget_what_was_done_once(self) -> tuple[int, int]:
        """How many idempotency keys, and how many sinks."""
        now_ms, keys, sinks = self._clock.time_ms(), 0, 0
        before_ms = now_ms - self._config.idempotency_retention_ms
        while self._config.idempotency_retention_ms >= 0:
            with self._store.read() as connection:
                if not once.is_due(connection, before_ms):
                    break
            of_unit = self._store.write(
                lambda unit: once.expire(unit, before_ms, now_ms), sync=False
            )
            keys, sinks = keys + of_unit[0], sinks + of_unit[1]
        return keys, sinks

    def _trim_history(self) -> int:
        """Not synced: a power cut takes commits from the end, each with its baseline and its events."""
        now_ms, trimmed = self._clock.time_ms(), 0
        while True:
            with self._store.read() as connection:
                if not history.is_due(connection, self._config, now_ms):
                    return trimmed
            trimmed += self._store.write(
                lambda unit: history.advance(unit, self._config, now_ms), sync=False
            )

    def _for_each(
        self, due: Sequence[K], work: Callable[[Unit, K], int], *, sync: bool = True
    ) -> int:
        """The sum of what `work` returns; each unit does some of them, since others want their turn.

        What is due was found on a snapshot, so `work` checks again.
        """
        done = 0
        for first in range(0, len(due), STEPS_PER_UNIT):
            some = due[first : first + STEPS_PER_UNIT]
            done += self._store.write(
                lambda unit, some=some: sum([work(unit, key) for key in some]),  # type: ignore[misc]
                sync=sync,
            )
        return done

    def _due(self, condition: str, is_due: IsDue) -> list[Partition]:
        """The partitions that are due, among those that meet an SQL condition: page by page, each on a
        snapshot of its own, without the writer's lock."""
        found: list[Partition] = []
        configs: dict[int, TopicConfig] = {}
        after: int | None = 0
        while after is not None:
            with self._store.read() as connection:
                some, after = partition_rows.page(connection, after, condition)
                for partition in some:
                    config = configs.get(partition.topic_id)
                    if config is None:
                        config = configs[partition.topic_id] = partition_rows.read_config(
                            connection, partition.topic_id, self._config
                        )
                    if is_due(connection, partition, config):
                        found.append(partition)
        return found

    def _forget_groups(self) -> None:
        """Before members expire, so that a group that loses its last one now is seen empty once."""
        now_ms = self._clock.time_ms()
        with self._store.read() as connection:
            idle = group_offsets.idle_groups(connection)
        self._for_each(
            idle,
            lambda unit, group_id: group_offsets.forget_idle(unit, group_id, now_ms),
            sync=False,
        )

    def _move_log_starts(self) -> int:
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

        due = self._due(
            "log_end_offset > log_start_offset",
            lambda connection, partition, config: (
                retention.due_log_start(connection, partition, config, now) is not None
            ),
        )
        return self._for_each([partition.partition_id for partition in due], move)

    def _delete_rows(self) -> None:
        below = self._due(
            "log_start_offset > 0",
            lambda connection, partition, _: retention.has_rows_below(connection, partition),
        )
        with self._store.read() as connection:
            orphans = retention.orphans(connection)
        retention.delete_all_rows(
            functools.partial(self._store.write, sync=False),
            [*(partition.partition_id for partition in below), *orphans],
        )

    def _compact(self, report: Progress) -> int:
        now = self._clock.time_ms()
        due = {
            partition.partition_id
            for partition in self._due(
                "log_end_offset > log_start_offset",
                lambda connection, partition, config: compaction.is_due(
                    connection, partition, config, now
                ),
            )
        }

        compacted = self._due(
            "log_end_offset > log_start_offset", lambda _, __, config: config.compact
        )
        sizes = [partition.log_end_offset - partition.log_start_offset for partition in compacted]
        removed, done, total = 0, 0, sum(sizes)
        for (partition_id, *_), size in zip(compacted, sizes, strict=True):
            report(done, total)

            def clean(unit: Unit, partition_id: int = partition_id) -> int:
                partition = partition_rows.find_by_id(unit, partition_id)
                if partition is None:
                    return 0
                config = partition_rows.config(unit, partition.topic_id, self._config)
                return compaction.clean(unit, partition, config, self._clock.time_ms())

            if partition_id in due:
                removed += self._store.write(clean)
            done += size
        report(total, total)
        return removed
