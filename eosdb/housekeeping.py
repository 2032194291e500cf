"""Housekeeping: what time alone makes due, on the injectable clock.

Time-outs and expirations are also done by any write that finds one due (see the coordinator).
Retention, compaction and snapshots run here, on demand and every log.retention.check.interval.ms.
"""

from __future__ import annotations

import contextlib
import threading

from eosdb.clock import Clock
from eosdb.config import BrokerConfig
from eosdb.coordinator import group_offsets
from eosdb.coordinator.coordinator import TransactionCoordinator
from eosdb.errors import EosdbError
from eosdb.failpoints import Failpoint, reach
from eosdb.log import compaction, partitions, retention, snapshots
from eosdb.model import HousekeepingReport
from eosdb.progress import Progress, carried
from eosdb.store.store import Store
from eosdb.store.unit import Unit


class Housekeeper:
    """Runs housekeeping for one database object."""

    def __init__(
        self, store: Store, coordinator: TransactionCoordinator, clock: Clock, config: BrokerConfig
    ) -> None:
        self._store = store
        self._coordinator = coordinator
        self._clock = clock
        self._config = config
        self._lock = threading.Lock()
        self._next_ms = clock.time_ms() + config.log_retention_check_interval_ms

    def run(self, on_progress: Progress | None = None) -> HousekeepingReport:
        """Everything that is due, now; `on_progress` is told of records in compacted partitions."""
        return carried(on_progress, self._run)

    def _run(self, tell: Progress) -> HousekeepingReport:
        self._next_ms = self._clock.time_ms() + self._config.log_retention_check_interval_ms
        self._forget_groups()
        due = self._coordinator.run_due()
        moved = self._move_log_starts()
        reach(Failpoint.RETENTION_MOVED)
        self._delete_rows()
        return HousekeepingReport(
            recovered_transactions=due.recovered,
            aborted_transactions=due.aborted,
            expired_transactional_ids=due.transactional_ids,
            expired_producers=due.producers,
            expired_offsets=due.offsets,
            changed_groups=due.groups,
            deleted_records=moved,
            compacted_records=self._compact(tell),
            snapshots=self._store.write(
                lambda unit: snapshots.take(unit, self._clock.time_ms()), sync=False
            ),
        )

    def run_when_due(self) -> None:
        """Run if the interval has passed and no other thread is at it.

        What fails is left to the next interval: whoever comes by has had his own request committed.
        """
        if self._clock.time_ms() >= self._next_ms and self._lock.acquire(blocking=False):
            try:
                with contextlib.suppress(EosdbError):
                    self.run()
            finally:
                self._lock.release()

    def _forget_groups(self) -> None:
        """Before members expire, so that a group that loses its last one now is seen empty once."""
        now_ms = self._clock.time_ms()
        while self._store.write(lambda unit: group_offsets.forget_groups(unit, now_ms), sync=False):
            pass

    def _move_log_starts(self) -> int:
        def move(unit: Unit) -> int:
            now, moved = self._clock.time_ms(), 0
            for partition_id in partitions.ids(unit):
                partition = partitions.by_id(unit, partition_id)
                config = partitions.config(unit, partition.topic_id, self._config)
                target = retention.due_log_start(unit, partition, config, now)
                if target is not None:
                    offset, reason = target
                    retention.move_log_start(unit, partition, offset, reason, now)
                    moved += offset - partition.log_start_offset
            return moved

        return self._store.write(move)

    def _delete_rows(self) -> None:
        while self._store.write(retention.delete_rows, sync=False):
            pass

    def _compact(self, tell: Progress) -> int:
        sizes = self._store.write(self._compacted_partitions, sync=False)
        removed, done, total = 0, 0, sum(sizes.values())
        for partition_id, size in sizes.items():
            tell(done, total)

            def clean(unit: Unit, partition_id: int = partition_id) -> int:
                if partition_id not in partitions.ids(unit):
                    return 0
                partition = partitions.by_id(unit, partition_id)
                config = partitions.config(unit, partition.topic_id, self._config)
                if not config.compact:
                    return 0
                return compaction.clean(unit, partition, config, self._clock.time_ms())

            removed += self._store.write(clean)
            done += size
        tell(total, total)
        return removed

    def _compacted_partitions(self, unit: Unit) -> dict[int, int]:
        """How many offsets each partition of a compacted topic has."""
        found = {}
        for partition_id in partitions.ids(unit):
            partition = partitions.by_id(unit, partition_id)
            if partitions.config(unit, partition.topic_id, self._config).compact:
                found[partition_id] = partition.log_end_offset - partition.log_start_offset
        return found
