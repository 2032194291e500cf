"""Leadership of the coordinator partition, and the second step of every decided transaction.

Each database object that is elected gets a higher coordinator epoch. A decided transaction is completed
by the thread that decided it; one that a dead process left, by the first process that notices.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from eosdb.coordinator.groups import rows as group_rows
from eosdb.coordinator.transactions import rows as transaction_rows
from eosdb.coordinator.transactions.state import TransactionMetadata
from eosdb.errors import ApiError, EosdbError, TransactionCoordinatorFencedError
from eosdb.model.clock import Clock
from eosdb.model.failpoints import Failpoint, ends_in_steps, reach
from eosdb.model.notices import catalog
from eosdb.store.store import Store
from eosdb.store.writing.unit import Unit


class End(Enum):
    """How far the end of a transaction has come in the unit that decides it."""

    NONE = "none"
    """Nothing was ended."""
    DECIDED = "decided"
    """The markers are to be written in a unit that follows."""
    COMPLETED = "completed"
    """The markers and Complete… are in the same unit."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What was recorded, and under which coordinator epoch."""

    metadata: TransactionMetadata
    coordinator_epoch: int
    end: End


class Leadership:
    """One per coordinator. Threads may share it."""

    def __init__(self, store: Store, clock: Clock, partitions_at_once: int) -> None:
        self._store = store
        self._clock = clock
        self._partitions_at_once = partitions_at_once
        self._elected = False
        self._lock = threading.Lock()
        self._completing: set[str] = set()
        """Decided by a thread of ours that is about to complete them."""
        self._refused: set[str] = set()
        """Decided, but a partition has seen a newer coordinator: nobody can complete them."""

    def ensure_elected(self) -> None:
        """Become the coordinator, with a new coordinator epoch, unless this object already is."""
        if not self._elected:
            completed = self._store.write(self._elect_and_complete, sync=False)
            self._elected = True
            self._tell_of_recovered(completed)

    def recover(self) -> int:
        """Complete decided transactions that no thread of ours is completing. Returns how many.

        Taking over coordination and completing them is one unit, so a process that decided one and wakes
        up late finds it complete, or cannot write its markers.
        """

        def take_over(unit: Unit) -> int:
            if not self.foreign_decided(unit):
                return 0
            return self._elect_and_complete(unit)

        completed = self._store.write(take_over, sync=False)
        self._tell_of_recovered(completed)
        return completed

    def _tell_of_recovered(self, completed: int) -> None:
        if completed:
            catalog.RECOVERED.say(file=self._store.path, transactions=completed)

    @contextlib.contextmanager
    def deciding(
        self, transactional_id: str, decide: Callable[[Unit], Decision | None]
    ) -> Iterator[Callable[[Unit], Decision | None]]:
        """The first step, to be run in a unit in the block. What it decides is this thread's to complete,
        from just before the commit; not if the block raises."""

        def first_step(unit: Unit) -> Decision | None:
            if decided:  # The unit is being run again.
                decided.clear()
                self._finish(transactional_id)
            decision = decide(unit)
            if decision is None or decision.end is not End.DECIDED:
                return decision
            if (completed := self._completed_at_once(unit, decision)) is not None:
                return completed
            with self._lock:
                self._completing.add(transactional_id)
                decided.append(decision)
            return decision

        decided: list[Decision] = []
        try:
            yield first_step
        except BaseException:
            if decided:
                self._finish(transactional_id)
            raise

    def _completed_at_once(self, unit: Unit, decision: Decision) -> Decision | None:
        """The second step in the unit of the first. None when it must wait: there are too many partitions,
        one of them has seen a newer coordinator, or a test wants to look in between."""
        # decisions/0021: one commit where it fits.
        decided, epoch = decision.metadata, decision.coordinator_epoch
        if len(decided.partitions) > self._partitions_at_once or ends_in_steps():
            return None
        try:
            with unit.savepoint():
                completed = transaction_rows.write_markers_and_complete(
                    unit, decided, epoch, self._clock.time_ms()
                )
        except TransactionCoordinatorFencedError:
            return None
        assert completed is not None
        return Decision(completed, epoch, End.COMPLETED)

    def try_again(self, transactional_id: str) -> None:
        """It was requested again: perhaps it can be completed now."""
        if self._refused:
            with self._lock:
                self._refused.discard(transactional_id)

    def _finish(self, transactional_id: str) -> None:
        with self._lock:
            self._completing.discard(transactional_id)

    def complete(self, decision: Decision) -> None:
        """The second step: markers and Complete…, under the epoch of the first.

        Not synced: after a power loss the next process to find it decided completes it again. So does the
        next writer when it cannot be done here (a full disk, a long write elsewhere): the decision
        stands, and no error may say otherwise.
        """
        reach(Failpoint.END_TXN_DECIDED)
        transactional_id = decision.metadata.transactional_id
        try:
            self._store.write(
                lambda unit: transaction_rows.write_markers_and_complete(
                    unit, decision.metadata, decision.coordinator_epoch, self._clock.time_ms()
                ),
                sync=False,
            )
        except TransactionCoordinatorFencedError:
            self._refuse(transactional_id)
            raise
        except EosdbError as error:
            if isinstance(error, ApiError):
                raise
        finally:
            self._finish(transactional_id)

    def foreign_decided(self, unit: Unit) -> frozenset[str]:
        """Decided transactions that no thread of ours is completing."""
        decided = transaction_rows.decided_ids(unit)
        return decided - self._completing - self._refused if decided else decided

    def _refuse(self, transactional_id: str) -> None:
        with self._lock:
            self._refused.add(transactional_id)

    def _elect_and_complete(self, unit: Unit) -> int:
        """Take a new epoch, and complete everything decided under it. Returns how many."""
        now, completed = self._clock.time_ms(), 0
        epoch = transaction_rows.elect(unit, now)
        group_rows.begin_sessions(unit, now)
        for transactional_id in sorted(transaction_rows.decided_ids(unit) - self._refused):
            try:
                with unit.savepoint():
                    decided = transaction_rows.load(unit, transactional_id)
                    assert decided is not None
                    transaction_rows.write_markers_and_complete(unit, decided, epoch, now)
                completed += 1
            except TransactionCoordinatorFencedError:
                self._refuse(transactional_id)
        return completed
