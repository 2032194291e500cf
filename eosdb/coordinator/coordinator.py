"""The transaction coordinator: Kafka's transaction requests, each in durable units, and expirations.

Every write of the broker goes through `write`, which first does the due work: time-outs, expirations, and
transactions that a dead process has decided. Due work has units of its own, so it is committed even if
the request is refused.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from eosdb import errors
from eosdb.coordinator import due_work, new_life
from eosdb.coordinator.due import Due
from eosdb.coordinator.foresight import Foresight
from eosdb.coordinator.leadership import Decision, Leadership
from eosdb.coordinator.presence import Presences
from eosdb.coordinator.transactions import decisions
from eosdb.coordinator.transactions import rows as transaction_rows
from eosdb.coordinator.transactions.producer_ids import ProducerIdManager
from eosdb.coordinator.transactions.state import FreshProducerIdNeededError, TransactionMetadata
from eosdb.log import scheduled
from eosdb.model.clock import Clock
from eosdb.model.config import BrokerConfig
from eosdb.model.failpoints import Failpoint, reach
from eosdb.model.notices import catalog
from eosdb.model.protocol.consumer_protocol import has_owner
from eosdb.model.requests import EndTxn
from eosdb.model.threads import Fate
from eosdb.model.values import ProducerIdAndEpoch, TransactionState
from eosdb.store.schema import file_id
from eosdb.store.store import Store
from eosdb.store.writing.unit import Unit
from eosdb.system import birth

T = TypeVar("T")


class _WorkIsDueError(Exception):
    """Raised inside a unit to roll it back; never leaves `write`."""


class TransactionCoordinator:
    """Runs all writes of a database object, and the requests about transactions. Threads may share it.
    Other processes may have coordinators of the same file."""

    def __init__(self, store: Store, clock: Clock, config: BrokerConfig) -> None:
        self._store = store
        self._clock = clock
        self._config = config
        self._producer_ids = ProducerIdManager(store, clock, config.producer_id_block_size)
        self.presences: Final = Presences(store, clock)
        self.leadership: Final = Leadership(store, clock, config.transaction_unit_partitions)
        self.after_write: Callable[[], None] = lambda: None
        """Called after every write; housekeeping checks whether it is due."""

    # -- the entry point of every write ---------------------------------------------------------

    def write(
        self, function: Callable[[Unit], T], *, sync: bool = True, fate: Fate | None = None
    ) -> T:
        """Run `function` in a unit, after the due work."""

        def checked(unit: Unit) -> T:
            if self._is_work_due(unit, self._clock.time_ms()):
                raise _WorkIsDueError
            return function(unit)

        while True:
            try:
                result = self._store.write(checked, sync=sync, fate=fate)
            except _WorkIsDueError:
                self.run_due()
            else:
                self.after_write()
                return result

    def _is_work_due(self, unit: Unit, now: int) -> bool:
        due, presences = unit.memos[Due], self.presences
        if due.is_over(now):
            due.time_ms, due.computed_ms = due_work.next_due(unit, self._config, now), now
        return bool(
            self.leadership.foreign_decided(unit)
            or due.is_over(now)
            or presences.first_orphan(unit)
            or (presences.is_look_due() and presences.has_dead(unit))
        )

    def serve_readers(self) -> bool:
        """Do the due work that holds back readers (`next_for_readers`), for callers that have committed or
        only read. Returns whether any was due. A failure is not raised: the next write does the work."""
        with contextlib.suppress(errors.EosdbError):
            with self._store.read() as connection:
                due_ms = self.next_for_readers(connection)
            if due_ms is not None and due_ms <= self._clock.time_ms():
                self.do_what_is_due()
                return True
        return False

    def next_for_readers(self, connection: sqlite3.Connection) -> int | None:
        """When a scheduled record is delivered next, or a transaction of a dead producer ends; None for
        neither, or if the file is read-only."""
        if self._store.read_only:
            return None
        if self.presences.is_look_due() and self.presences.has_dead(connection):
            return 0
        return due_work.next_for_readers(connection)

    def run_due(self) -> Counter[str]:
        """Complete transactions that dead processes decided, abort transactions past their time-out or
        without their owner, deliver scheduled records, and remove expired rows. Returns counts for the
        HousekeepingReport."""
        while self._store.write(
            lambda unit: due_work.begin_again(unit, self._clock.time_ms()), sync=False
        ):
            pass
        done = Counter(
            recovered_transactions=self.leadership.recover(),
            aborted_transactions=self._abort_while(self._first_lost),
        )
        now = self._clock.time_ms()
        while self._store.write(
            lambda unit: scheduled.deliver(unit, self._config, now), sync=False
        ):
            pass
        while True:
            removed, members = self._store.write(
                lambda unit: due_work.remove(unit, self._config, now, self.presences.dead(unit)),
                sync=False,
            )
            if not any(removed.values()):
                return done
            done.update(removed)
            for member in members:
                catalog.MEMBER_REMOVED.say(**member._asdict(), cause=member.cause)

    def foresight(self, connection: sqlite3.Connection) -> Foresight:
        """The due work in the connection's snapshot, which the next write will do."""
        return Foresight(connection, self.presences, self._clock.time_ms())

    def next_due(self) -> int:
        """The time (ms) before which nothing is due in the current state of the file."""
        with self._store.read() as connection:
            if self.presences.has_dead(connection):
                return 0
            return due_work.next_due(connection, self._config, self._clock.time_ms())

    def do_what_is_due(self) -> None:
        """Do the due work that every write does first, for callers that do not write."""
        self.write(lambda _: None, sync=False)

    def look_for_the_dead(self) -> None:
        """Remove members and abort transactions of dead processes, for callers that wait and do not
        write. Does nothing if a caller or a write has checked in the last 200 ms."""
        if self.presences.is_look_due():
            with self._store.read() as connection:
                has_dead = self.presences.has_dead(connection)
            if has_dead:
                self.run_due()

    def recover(self) -> None:
        """Begin a new life if the file was copied, end the transactions of dead processes, and remove dead
        members; called at opening."""
        place = birth.identity(self._store.path)

        def origin(unit: Unit) -> tuple[str, str | None, int, int]:
            """The file's id, where it was last written, its last position, and the one that is known."""
            own_id, stored = file_id.with_place(unit)
            return own_id, stored, unit.last_position(), self._store.known_position(own_id)

        def settle(unit: Unit) -> bool:
            """Note place and position of a file that is no copy; return whether anything is left to do."""
            own_id, stored, last, known = origin(unit)
            if new_life.is_copy(stored, place, last, known):
                raise _WorkIsDueError
            if not known:
                self._store.note_position(last, own_id)
            if stored is None:
                file_id.settle(unit, place)
            return bool(self.leadership.foreign_decided(unit)) or self.presences.has_dead(unit)

        def begin(unit: Unit) -> int:
            own_id, stored, last, known = origin(unit)
            if not new_life.is_copy(stored, place, last, known):
                return 0  # Another process has begun it.
            life = new_life.begin(unit, self.leadership, self._clock.time_ms())
            file_id.settle(unit, place)
            self._store.note_position(unit.last_position(), own_id)
            reach(Failpoint.LIFE_BEGAN)
            return life

        # The check runs in a write unit, because a reader's connection would parse the schema again.
        try:
            left = self._store.write(settle, sync=False)
        except _WorkIsDueError:
            if life := self._store.write(begin):
                catalog.LIFE_BEGAN.say(file=self._store.path, life=life)
            left = self._store.write(settle, sync=False)
        if left:
            self.leadership.recover()
            self._abort_while(self.presences.first_orphan)
            self.look_for_the_dead()

    # -- requests -------------------------------------------------------------------------------

    def new_producer_id(self) -> int:
        """A new id for a producer without transactional id."""
        return self._producer_ids.next()

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        check: Callable[[Unit], None],
    ) -> ProducerIdAndEpoch:
        """InitProducerId, after `check` in the same unit. An open transaction is fenced and aborted, and
        the caller must retry. Raises ConcurrentTransactionsError, ProducerFencedError and
        InvalidTransactionTimeoutError."""

        def decide(unit: Unit, fresh: int | None) -> Decision:
            check(unit)
            decisions.check_timeout(timeout_ms, self._config.transaction_max_timeout_ms)
            current = transaction_rows.load(unit, transactional_id)
            now = self._clock.time_ms()
            after = decisions.init_producer_id(
                current, transactional_id, timeout_ms, expected, fresh, now
            )
            transaction_rows.record(unit, current, after, now)
            return Decision(after, transaction_rows.epoch(unit))

        after = self.decided(transactional_id, decide).metadata
        if after.state is TransactionState.EMPTY:
            return after.producer
        catalog.TRANSACTION_TAKEN_OVER.say(
            transactional_id=transactional_id,
            producer_id=after.producer_id,
            producer_epoch=after.producer_epoch,
        )
        raise errors.ConcurrentTransactionsError(
            f"transactional id {transactional_id!r}: an earlier producer's transaction was open "
            "and has been aborted; call init_producer_id again"
        )

    def end(self, unit: Unit, request: EndTxn, version: int, fresh: int | None = None) -> Decision:
        """The first step of EndTxn: record the decision. Raises FreshProducerIdNeededError."""
        current = transaction_rows.load(unit, request.transactional_id)
        now = self._clock.time_ms()
        prepared = decisions.end(
            current,
            request.producer_id,
            request.producer_epoch,
            bool(request.committed),
            now,
            version=version,
            fresh_producer_id=fresh,
        )
        epoch = transaction_rows.epoch(unit)
        if prepared is None:
            assert current is not None
            return Decision(current, epoch)
        transaction_rows.record(unit, current, prepared, now)
        return Decision(prepared, epoch)

    # -- the second step ------------------------------------------------------------------------

    def decided(
        self, transactional_id: str, decide: Callable[[Unit, int | None], Decision]
    ) -> Decision:
        """Run the first step, `decide`, durably in a unit, and the second step in the same unit or another.
        `decide` gets an unused producer id if it needs one. No other thread of this object completes
        the transaction in between."""
        self.leadership.ensure_elected()
        self.leadership.try_again(transactional_id)
        left: Iterator[int] | None = None

        def first_step(unit: Unit) -> Decision:
            nonlocal left
            left = None  # If the unit runs again, its first run allocated nothing.
            try:
                return decide(unit, None)
            except FreshProducerIdNeededError:
                fresh, left = self._producer_ids.within(unit)
                return decide(unit, fresh)

        decision = self.leadership.decide(transactional_id, first_step, self.write)
        if left is not None:
            self._producer_ids.left = left
        assert decision is not None
        if decision.is_incomplete:
            self.leadership.complete(decision)
        return decision

    def decided_at_once(self, unit: Unit, decision: Decision) -> Decision:
        """Run the second step in the unit of the first. Raises IllegalStateError if it does not fit."""
        if not decision.is_incomplete:
            return decision
        completed = self.leadership.completed_at_once(unit, decision)
        if completed is None:
            raise errors.IllegalStateError("EndTxn needs several units here; send it by itself")
        return completed

    def _abort_while(self, first: Callable[[Unit], str | None]) -> int:
        """Fence and abort the transactions that `first` returns one by one, if they have timed out or
        lost their owner. Returns how many."""
        aborted = 0
        while due := self._store.write(first, sync=False):
            self.leadership.ensure_elected()

            def decide(unit: Unit, transactional_id: str = due) -> Decision | None:
                current = transaction_rows.load(unit, transactional_id)
                now = self._clock.time_ms()
                if current is None or not (
                    decisions.is_timed_out(current, now) or self.presences.is_orphan(current)
                ):
                    return None
                prepared = decisions.fence(current, now)
                transaction_rows.record(unit, current, prepared, now)
                return Decision(prepared, transaction_rows.epoch(unit))

            decision = self.leadership.decide(due, decide, self._store.write)
            if decision is not None:
                aborted += 1
                with contextlib.suppress(errors.TransactionCoordinatorFencedError):
                    if decision.is_incomplete:
                        self.leadership.complete(decision)
                _tell_of_abort(decision.metadata, self._clock.time_ms())
        return aborted

    def _first_lost(self, unit: Unit) -> str | None:
        timed_out = transaction_rows.first_timed_out(unit, self._clock.time_ms())
        return timed_out or self.presences.first_orphan(unit)


def _tell_of_abort(lost: TransactionMetadata, now_ms: int) -> None:
    """Log that this transaction was aborted, and its producer fenced."""
    open_ms = max(now_ms - lost.start_time_ms, 0)  # The clock may have gone back since the start.
    is_orphan = has_owner(lost.transactional_id) and open_ms <= lost.timeout_ms
    notice = catalog.OWNER_DIED if is_orphan else catalog.TRANSACTION_TIMED_OUT
    notice.say(
        transactional_id=lost.transactional_id,
        producer_id=lost.producer_id,
        producer_epoch=lost.last_producer_epoch,
        open_ms=open_ms,
        timeout_ms=lost.timeout_ms,
    )
