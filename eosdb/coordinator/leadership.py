"""Leadership of the coordinator partition, and the second step of every decided transaction.

Each database object that is elected gets a higher coordinator epoch. The thread that decided a
transaction completes it or, if its process has died, the first process that notices.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

from eosdb.coordinator.groups import rows as group_rows
from eosdb.coordinator.transactions import decisions
from eosdb.coordinator.transactions import rows as transaction_rows
from eosdb.coordinator.transactions.state import TransactionMetadata
from eosdb.errors import ApiError, EosdbError, TransactionCoordinatorFencedError, in_doubt
from eosdb.model.clock import Clock
from eosdb.model.failpoints import Failpoint, ends_in_steps, reach
from eosdb.model.notices import catalog
from eosdb.model.values import ProducerIdAndEpoch
from eosdb.store.store import Store
from eosdb.store.writing.unit import Unit


class Decision(NamedTuple):
    """The recorded state of a transaction, and the coordinator epoch under which it was recorded."""

    metadata: TransactionMetadata
    coordinator_epoch: int

    @property
    def is_incomplete(self) -> bool:
        """Whether the unit recorded only Prepare…; then a later unit writes the markers."""
        return self.metadata.state.is_decided

    @property
    def producer(self) -> ProducerIdAndEpoch:
        """The producer id and epoch to use once the transaction is complete."""
        decided = self.metadata
        return (decisions.complete(decided, 0) if self.is_incomplete else decided).producer


Decide: TypeAlias = Callable[[Unit], Decision | None]
Run: TypeAlias = Callable[[Decide], Decision | None]


class Leadership:
    """Elects this object as the coordinator and completes decided transactions. Threads may share it."""

    def __init__(self, store: Store, clock: Clock, partitions_at_once: int) -> None:
        self._store = store
        self._clock = clock
        self._partitions_at_once = partitions_at_once
        self._elected = False
        self._lock = threading.Lock()
        self._completing: set[str] = set()
        """Ids whose transaction a thread of this object has decided and will complete."""
        self._refused: set[str] = set()
        """Ids that cannot be completed: a partition has seen a newer coordinator."""

    def ensure_elected(self) -> None:
        """Become the coordinator with a new coordinator epoch, if not elected before."""
        if not self._elected:
            self._recover_by(self.elect_and_complete)
            self._elected = True

    def recover(self) -> int:
        """Complete decided transactions that no thread of this object is completing. Returns how many.
        The election and the completions are one unit. So a process that resumes late finds its
        transaction complete, or cannot write its markers."""

        return self._recover_by(
            lambda unit: self.elect_and_complete(unit) if self.foreign_decided(unit) else 0
        )

    def _recover_by(self, function: Callable[[Unit], int]) -> int:
        completed = self._store.write(function, sync=False)
        if completed:
            catalog.RECOVERED.say(file=self._store.path, transactions=completed)
        return completed

    def decide(self, transactional_id: str, decide: Decide, run: Run) -> Decision | None:
        """Pass the first step, which calls `decide`, to `run`, which runs it in a unit. From just before
        the commit this thread has to complete the transaction, unless `run` raises."""

        def first_step(unit: Unit) -> Decision | None:
            if decided:  # The store runs the unit a second time; undo the first.
                decided.clear()
                self._finish(transactional_id)
            decision = decide(unit)
            if decision is None or not decision.is_incomplete:
                return decision
            if (completed := self.completed_at_once(unit, decision)) is not None:
                return completed
            with self._lock:
                decided.append(decision)
                if not is_left:
                    self._completing.add(transactional_id)
            return decision

        decided: list[Decision] = []
        is_left = False
        try:
            return run(first_step)
        except BaseException:
            is_left = True  # Another thread may still run the unit, and sees this.
            if decided:
                self._finish(transactional_id)
            raise

    def completed_at_once(self, unit: Unit, decision: Decision) -> Decision | None:
        """Run the second step in the unit of the first. Returns None if it needs another unit: for too many
        partitions, a partition that has seen a newer coordinator, or a failpoint between the steps."""
        assert decision.is_incomplete, decision
        # decisions/0021: if there are few markers, the commit of the decision also stores them.
        decided, epoch = decision.metadata, decision.coordinator_epoch
        if len(decided.partitions) > self._partitions_at_once or ends_in_steps():
            return None
        try:
            completed = unit.part(
                lambda unit: transaction_rows.write_markers_and_complete(
                    unit, decided, epoch, self._clock.time_ms()
                )
            )
        except TransactionCoordinatorFencedError:
            return None
        assert completed is not None
        return Decision(completed, epoch)

    def try_again(self, transactional_id: str) -> None:
        """Allow another attempt at the completion, because a client has repeated its request."""
        if self._refused:
            with self._lock:
                self._refused.discard(transactional_id)

    def _finish(self, transactional_id: str) -> None:
        with self._lock:
            self._completing.discard(transactional_id)

    def complete(self, decision: Decision) -> None:
        """The second step: write markers and Complete… under the coordinator epoch of the first step. This
        needs no fsync: after a power loss the next process completes the transaction again. An error of
        the file (a full disk, a lock held too long) is not raised, because the decision stands and the
        next writer completes the transaction."""
        assert decision.is_incomplete, decision
        reach(Failpoint.END_TXN_DECIDED)
        transactional_id = decision.metadata.transactional_id
        try:
            self._store.write(
                lambda unit: transaction_rows.write_markers_and_complete(
                    unit, decision.metadata, decision.coordinator_epoch, self._clock.time_ms()
                ),
                sync=False,
            )
        except TransactionCoordinatorFencedError as error:
            self._refuse(transactional_id)
            in_doubt(error)  # The commit or abort is decided; the newer coordinator completes it.
            raise
        except EosdbError as error:
            if isinstance(error, ApiError):
                raise
        finally:
            self._finish(transactional_id)

    def foreign_decided(self, unit: Unit) -> frozenset[str]:
        """Ids of decided transactions that no thread of this object is completing."""
        decided = transaction_rows.decided_ids(unit)
        return decided - self._completing - self._refused if decided else decided

    def _refuse(self, transactional_id: str) -> None:
        with self._lock:
            self._refused.add(transactional_id)

    def elect_and_complete(self, unit: Unit, above: int = 0) -> int:
        """Take a new coordinator epoch, higher than `above`, and complete all decided transactions. Returns
        how many."""
        now, completed = self._clock.time_ms(), 0
        epoch = transaction_rows.elect(unit, now, above)
        group_rows.begin_sessions(unit, now)
        for transactional_id in sorted(transaction_rows.decided_ids(unit) - self._refused):
            decided = transaction_rows.load(unit, transactional_id)
            assert decided is not None
            complete = partial(
                transaction_rows.write_markers_and_complete,
                decided=decided, coordinator_epoch=epoch, now_ms=now,
            )  # fmt: skip
            try:
                unit.part(complete)
                completed += 1
            except TransactionCoordinatorFencedError:
                self._refuse(transactional_id)
        return completed
