"""The transaction coordinator: Kafka's requests about transactions, each in its durable units.

Every write of the broker comes through `write`, which first sees to what is due: transactions that
a dead process has decided and not completed, time-outs and expirations. What is due is done in
units of its own, so it stands even when the request that noticed it is refused.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from eosdb.clock import Clock
from eosdb.config import BrokerConfig
from eosdb.coordinator import group_offsets, groups, transaction, transaction_end, transactions
from eosdb.coordinator.due import MINUTE_MS, next_due
from eosdb.coordinator.due_bound import DUE
from eosdb.coordinator.producer_ids import ProducerIdManager
from eosdb.coordinator.transaction import FenceOngoing, TransactionMetadata
from eosdb.errors import (
    ConcurrentTransactionsError,
    TransactionCoordinatorFencedError,
)
from eosdb.events import OffsetCommit, TxnOffsetsCommitted
from eosdb.failpoints import Failpoint, reach
from eosdb.log import append, partitions, producers
from eosdb.log.producer_state import check_marker
from eosdb.model import ProducerIdAndEpoch, TopicPartition
from eosdb.store.store import Store
from eosdb.store.unit import Unit

T = TypeVar("T")


class _SomethingIsDueError(Exception):
    """Raised inside a unit to have it undone; never leaves `write`."""


@dataclass(slots=True)
class Expired:
    """What one round of due work did."""

    recovered: int = 0
    aborted: int = 0
    transactional_ids: int = 0
    producers: int = 0
    offsets: int = 0
    groups: int = 0


@dataclass(frozen=True, slots=True)
class _Decision:
    """What a first step recorded, and under which coordinator epoch."""

    metadata: TransactionMetadata
    coordinator_epoch: int
    completing: bool


class TransactionCoordinator:
    """One per database object. Threads may share it; several processes may have one each."""

    def __init__(self, store: Store, clock: Clock, config: BrokerConfig) -> None:
        self._store = store
        self._clock = clock
        self._config = config
        self._producer_ids = ProducerIdManager(store, clock, config.producer_id_block_size)
        self._elected = False
        self.after_write: Callable[[], None] = lambda: None
        """Called after every write; where housekeeping looks at its watch."""
        self._lock = threading.Lock()
        self._completing: set[str] = set()
        """Decided by a thread of ours that is about to complete them."""
        self._refused: set[str] = set()
        """Decided, but a partition has seen a newer coordinator: nobody can complete them."""

    # -- the door for every write ---------------------------------------------------------------

    def write(self, function: Callable[[Unit], T], *, sync: bool = True) -> T:
        """Run `function` in a unit, after what is due has been done."""

        def checked(unit: Unit) -> T:
            if self._foreign_decided(unit) or self._due_time(unit) <= self._clock.time_ms():
                raise _SomethingIsDueError
            return function(unit)

        while True:
            try:
                result = self._store.write(checked, sync=sync)
            except _SomethingIsDueError:
                self.run_due()
            else:
                self.after_write()
                return result

    def run_due(self) -> Expired:
        """Complete what dead processes decided, abort what timed out, forget what expired."""
        done = Expired(recovered=self.recover(), aborted=self._abort_timed_out())
        now = self._clock.time_ms()
        config = self._config

        def round_of_expiry(unit: Unit) -> tuple[int, int, int, int]:
            unit.memo.pop(DUE, None)
            return (
                transactions.expire(unit, now, config.transactional_id_expiration_ms),
                producers.expire(unit, now, config.producer_id_expiration_ms),
                group_offsets.expire(unit, now, config.offsets_retention_minutes * MINUTE_MS),
                groups.expire_members(unit, now),
            )

        while any(counts := self._store.write(round_of_expiry, sync=False)):
            done.transactional_ids += counts[0]
            done.producers += counts[1]
            done.offsets += counts[2]
            done.groups += counts[3]
        return done

    def recover(self) -> int:
        """Finish decided transactions that no thread of ours is finishing. Returns how many.

        Taking over coordination and finishing them is one unit, so whoever decided one and wakes up
        late finds it complete, or cannot write its markers.
        """

        def take_over(unit: Unit) -> int:
            if not self._foreign_decided(unit):
                return 0
            return self._elect_and_complete(unit)

        return self._store.write(take_over, sync=False)

    # -- requests -------------------------------------------------------------------------------

    def new_producer_id(self) -> int:
        """An id for a producer without transactional id."""
        return self._producer_ids.next()

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        authorize: Callable[[Unit], None],
    ) -> ProducerIdAndEpoch:
        """InitProducerId. An open transaction is fenced and aborted, then the caller is told to
        retry.

        Raises ConcurrentTransactionsError, ProducerFencedError and InvalidTransactionTimeoutError.
        """
        self.take_office()
        fresh: int | None = None
        while True:

            def decide(unit: Unit, fresh: int | None = fresh) -> _Decision | None:
                authorize(unit)
                transaction.check_timeout(timeout_ms, self._config.transaction_max_timeout_ms)
                current = transactions.load(unit, transactional_id)
                if fresh is None and transaction.needs_new_producer_id(current):
                    return None
                now = self._clock.time_ms()
                verdict = transaction.init_producer_id(
                    current, transactional_id, timeout_ms, expected, fresh, now
                )
                if isinstance(verdict, FenceOngoing):
                    decision = _Decision(verdict.prepared, transactions.epoch(unit), True)
                else:
                    decision = _Decision(verdict.metadata, transactions.epoch(unit), False)
                transactions.record(unit, current, decision.metadata, now)
                return decision

            decision = self._decide(transactional_id, decide)
            if decision is not None:
                break
            fresh = self._producer_ids.next()
        if decision.completing:
            self._complete(decision)
            raise ConcurrentTransactionsError(
                f"transactional id {transactional_id!r}: an earlier producer's transaction was open "
                "and has been aborted; call init_producer_id again"
            )
        metadata = decision.metadata
        return ProducerIdAndEpoch(metadata.producer_id, metadata.producer_epoch)

    def add_to_transaction(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        tps: frozenset[TopicPartition],
        groups: frozenset[str],
        authorize: Callable[[Unit], None],
    ) -> None:
        """AddPartitionsToTxn and AddOffsetsToTxn: all or nothing."""
        self.take_office()

        def add(unit: Unit) -> None:
            authorize(unit)
            for tp in sorted(tps):
                partitions.load(unit, tp)
            current = transactions.load(unit, transactional_id)
            now = self._clock.time_ms()
            after = transaction.add_to_transaction(
                current, producer_id, producer_epoch, tps, groups, now
            )
            if after is not None:
                transactions.record(unit, current, after, now)

        # What this opens counts only through the Prepare that ends it, and that is synced.
        self.write(add, sync=False)

    def txn_offset_commit(
        self,
        transactional_id: str,
        group_id: str,
        producer_id: int,
        producer_epoch: int,
        offsets: tuple[OffsetCommit, ...],
        check_group: Callable[[Unit], None],
        version: int,
        authorize: Callable[[Unit], None],
    ) -> None:
        """TxnOffsetCommit: the offsets are pending until the transaction ends."""
        self.take_office()

        def commit(unit: Unit) -> None:
            authorize(unit)
            now = self._clock.time_ms()
            identity = ProducerIdAndEpoch(producer_id, producer_epoch)
            transactions.join(unit, transactional_id, identity, version, now, group=group_id)
            check_group(unit)
            group_offsets.check_stored(unit, offsets, self._config)
            unit.record(
                TxnOffsetsCommitted(
                    timestamp=now,
                    transactional_id=transactional_id,
                    group_id=group_id,
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                    offsets=offsets,
                )
            )

        self.write(commit, sync=False)

    def end_txn(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        version: int,
        authorize: Callable[[Unit], None],
        with_decision: Callable[[Unit], None] = lambda _: None,
    ) -> ProducerIdAndEpoch:
        """EndTxn: decide durably, `with_decision` in the same unit, then write every marker and complete.
        Returns what to use next."""
        self.take_office()
        fresh: int | None = None
        while True:

            def decide(unit: Unit, fresh: int | None = fresh) -> _Decision | None:
                authorize(unit)
                current = transactions.load(unit, transactional_id)
                if fresh is None and transaction_end.end_needs_new_producer_id(current, version):
                    return None
                now = self._clock.time_ms()
                prepared = transaction_end.end(
                    current,
                    producer_id,
                    producer_epoch,
                    committed,
                    now,
                    version=version,
                    fresh_producer_id=fresh,
                )
                if prepared is not None:
                    with_decision(unit)
                    transactions.record(unit, current, prepared, now)
                    return _Decision(prepared, transactions.epoch(unit), completing=True)
                assert current is not None
                return _Decision(current, transactions.epoch(unit), completing=False)

            decision = self._decide(transactional_id, decide)
            if decision is not None:
                break
            fresh = self._producer_ids.next()
        if not decision.completing:
            return decision.metadata.producer
        self._complete(decision)
        return transaction_end.complete(decision.metadata, 0).producer

    def write_markers(
        self,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        tps: Sequence[TopicPartition],
        coordinator_epoch: int,
        version: int,
        authorize: Callable[[Unit], None],
    ) -> None:
        """WriteTxnMarkers: every partition is checked before the first marker is written."""

        def write(unit: Unit) -> None:
            authorize(unit)
            found = [partitions.load(unit, tp) for tp in tps]
            for partition in found:
                entry = producers.load(unit, partition.partition_id, producer_id)
                check_marker(entry, producer_epoch, coordinator_epoch, version)
            for partition in found:
                append.append_marker(
                    unit,
                    partition,
                    producer_id,
                    producer_epoch,
                    coordinator_epoch,
                    committed=committed,
                    transactional_id=None,
                    now_ms=self._clock.time_ms(),
                    transaction_version=version,
                )

        self.write(write)

    # -- the second step ------------------------------------------------------------------------

    def _decide(
        self, transactional_id: str, decide: Callable[[Unit], _Decision | None]
    ) -> _Decision | None:
        """The first step. While this thread is between the steps, no other of ours takes over."""
        with self._lock:
            self._completing.add(transactional_id)
            self._refused.discard(transactional_id)
        decision = None
        try:
            decision = self.write(decide)
            return decision
        finally:
            if decision is None or not decision.completing:
                self._finish(transactional_id)

    def _complete(self, decision: _Decision) -> None:
        """The second step: markers and Complete…, under the epoch of the first.

        Not synced: whoever finds it decided after a power loss completes it again.
        """
        reach(Failpoint.END_TXN_DECIDED)
        transactional_id = decision.metadata.transactional_id
        try:
            self._store.write(
                lambda unit: transactions.write_markers_and_complete(
                    unit, decision.metadata, decision.coordinator_epoch, self._clock.time_ms()
                ),
                sync=False,
            )
        except TransactionCoordinatorFencedError:
            self._refuse(transactional_id)
            raise
        finally:
            self._finish(transactional_id)

    def _finish(self, transactional_id: str) -> None:
        with self._lock:
            self._completing.discard(transactional_id)

    def _refuse(self, transactional_id: str) -> None:
        with self._lock:
            self._refused.add(transactional_id)

    def _foreign_decided(self, unit: Unit) -> frozenset[str]:
        decided = transactions.decided_ids(unit)
        return decided - self._completing - self._refused if decided else decided

    def _abort_timed_out(self) -> int:
        """Fence and abort every open transaction whose time is over. Returns how many."""
        aborted = 0
        while due := self._store.write(self._first_timed_out, sync=False):
            self.take_office()

            def decide(unit: Unit, transactional_id: str = due) -> _Decision | None:
                current = transactions.load(unit, transactional_id)
                now = self._clock.time_ms()
                if current is None or not transaction.is_timed_out(current, now):
                    return None
                prepared = transaction.abort_timed_out(current, now)
                transactions.record(unit, current, prepared, now)
                return _Decision(prepared, transactions.epoch(unit), completing=True)

            with self._lock:
                self._completing.add(due)
            decision = None
            try:
                decision = self._store.write(decide)
            finally:
                if decision is None:
                    self._finish(due)
            if decision is not None:
                aborted += 1
                with contextlib.suppress(TransactionCoordinatorFencedError):
                    self._complete(decision)
        return aborted

    def _first_timed_out(self, unit: Unit) -> str | None:
        return transactions.first_timed_out(unit, self._clock.time_ms())

    # -- the office -----------------------------------------------------------------------------

    def take_office(self) -> None:
        """Take over coordination with the first request that needs it."""
        if not self._elected:
            self._elect()

    def _elect(self) -> None:
        self._store.write(self._elect_and_complete, sync=False)
        self._elected = True

    def _elect_and_complete(self, unit: Unit) -> int:
        """A new epoch, and under it the completion of everything decided. Returns how many."""
        now, completed = self._clock.time_ms(), 0
        epoch = transactions.elect(unit, now)
        groups.begin_sessions(unit, now)
        for transactional_id in sorted(transactions.decided_ids(unit) - self._refused):
            try:
                with unit.savepoint():
                    decided = transactions.load(unit, transactional_id)
                    assert decided is not None
                    transactions.write_markers_and_complete(unit, decided, epoch, now)
                completed += 1
            except TransactionCoordinatorFencedError:
                self._refuse(transactional_id)
        return completed

    def _due_time(self, unit: Unit) -> int:
        """Before this time (ms) nothing is due: a bound, worked out anew when it has been
        reached."""
        due: int | None = unit.memo.get(DUE)
        if due is None or due <= self._clock.time_ms():
            due = next_due(unit, self._config, self._clock.time_ms())
            unit.memo[DUE] = due
        return due
