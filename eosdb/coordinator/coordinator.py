"""The transaction coordinator: Kafka's transaction requests, each in durable units, and expirations.

Every write of the broker goes through `write`, which first does the due work: time-outs, expirations, and
transactions that a dead process has decided. Due work has units of its own, so it is committed even if
the request is refused.

A clock that jumps forward ends transactions and sessions early, as in Kafka. If it goes back later, start
times from in between are in the future, and those transactions and sessions would time out days late. So
due work sets such start times to the current time. Living owners are not affected.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from eosdb import errors
from eosdb.coordinator import new_life
from eosdb.coordinator.due import Due
from eosdb.coordinator.foresight import Foresight
from eosdb.coordinator.groups import offsets as group_offsets
from eosdb.coordinator.groups import rows as group_rows
from eosdb.coordinator.groups.decisions import Group
from eosdb.coordinator.groups.departures import Removed
from eosdb.coordinator.groups.rows import AnyGroup
from eosdb.coordinator.leadership import Decision, Leadership
from eosdb.coordinator.presence import Presences
from eosdb.coordinator.transactions import decisions
from eosdb.coordinator.transactions import rows as transaction_rows
from eosdb.coordinator.transactions.decisions import begun_again
from eosdb.coordinator.transactions.producer_ids import ProducerIdManager
from eosdb.coordinator.transactions.state import FreshProducerIdNeededError, TransactionMetadata
from eosdb.log import producer_rows, scheduled
from eosdb.model.clock import Clock
from eosdb.model.config import BrokerConfig
from eosdb.model.failpoints import Failpoint, reach
from eosdb.model.notices import catalog
from eosdb.model.protocol.consumer_protocol import has_owner
from eosdb.model.protocol.members import NO_DEADLINE
from eosdb.model.requests import EndTxn
from eosdb.model.threads import Fate
from eosdb.model.values import ProducerIdAndEpoch, TransactionState
from eosdb.store.schema import file_id
from eosdb.store.store import Store
from eosdb.store.writing.unit import STEPS_PER_UNIT, Unit
from eosdb.system import birth

_TOLERANCE_MS: Final = 60_000
"""Tolerated difference: the clocks of two processes never agree exactly."""
# A start time in the future shows that the clock was set back. An index gives the transaction with the
# latest deadline: if its start time is not in the future, no other one is far in the future.
_TRANSACTION: Final = (
    "SELECT transactional_id, start_time FROM transactional_ids "
    f"WHERE state {transaction_rows.IS_ONGOING} ORDER BY start_time + timeout_ms DESC LIMIT 1"
)
_REBALANCE: Final = (
    "SELECT group_id, deadline FROM groups WHERE deadline >= 0 ORDER BY deadline DESC LIMIT 1"
)
_SESSION: Final = "SELECT group_id, expires FROM group_sessions ORDER BY expires DESC LIMIT 1"

Source = Unit | sqlite3.Connection


def begin_again(unit: Unit, now_ms: int) -> int:
    """Set start times in the future to now. Returns how many; STEPS_PER_UNIT if more may be left."""
    count = 0
    while count < STEPS_PER_UNIT and (name := _transaction(unit, now_ms)) is not None:
        current = transaction_rows.load(unit, name)
        assert current is not None
        transaction_rows.record(unit, current, begun_again(current, now_ms), now_ms)
        count += 1
    while count < STEPS_PER_UNIT and (name := _group(unit, now_ms)) is not None:
        group = group_rows.load(unit, name) or Group(name)
        if group.deadline_ms > now_ms + _longest(group):
            before, group = group, _with_deadlines(group, now_ms)
            group_rows.record(unit, before, group, now_ms)
        group_rows.begin_sessions_again(unit, group, now_ms)
        count += 1
    unit.memos[Due].time_ms = None
    return count


def _transaction(source: Source, now_ms: int) -> str | None:
    row = source.execute(_TRANSACTION).fetchone()
    return str(row[0]) if row is not None and row[1] > now_ms + _TOLERANCE_MS else None


def _group(source: Source, now_ms: int) -> str | None:
    """The group with the latest deadline or session end, if no deadline that begins now is that late."""
    for query in (_REBALANCE, _SESSION):
        row = source.execute(query).fetchone()
        if row is not None and row[1] > now_ms + _TOLERANCE_MS:
            name, ends_ms = str(row[0]), int(row[1])
            group = group_rows.load(source, name) or Group(name)
            # A rebalance extends the session of a waiting member.
            sessions = max((m.session_timeout_ms for m in group.members), default=0)
            if ends_ms > now_ms + _TOLERANCE_MS + _longest(group) + sessions:
                return name
    return None


def _with_deadlines(group: AnyGroup, now_ms: int) -> AnyGroup:
    """The group with its rebalance deadline or revocation deadlines counted from now."""
    if isinstance(group, Group):
        return replace(group, deadline_ms=now_ms + _longest(group))
    members = (
        member._replace(revoke_by_ms=now_ms + member.rebalance_timeout_ms)
        for member in group.members
        if member.revoke_by_ms != NO_DEADLINE
    )
    return group.with_members(members)


def _longest(group: AnyGroup) -> int:
    return max((member.rebalance_timeout_ms for member in group.members), default=0)


T = TypeVar("T")
_MINUTE_MS: Final = 60_000
_BOUNDS: Final = (
    transaction_rows.NEXT_TIMEOUT,
    group_rows.NEXT_SESSION_END,
    group_rows.NEXT_DEADLINE,
    scheduled.NEXT_DUE,
    transaction_rows.OLDEST_IDLE,
    producer_rows.OLDEST_IDLE,
    group_offsets.OLDEST,
)
_NEXT: Final = f"SELECT ({'), ('.join(_BOUNDS)})"
"""The times from which each kind of due work counts."""
_HOLDING: Final = (
    transaction_rows.NEXT_TIMEOUT,
    scheduled.NEXT_DUE,
    transaction_rows.OLDEST_DECIDED,
)
_NEXT_FOR_READERS: Final = f"SELECT ({'), ('.join(_HOLDING)})"
_DECIDED_MS: Final = 10_000
"""A transaction that was decided this long ago, and is not complete, has lost its process."""


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
            due.time_ms, due.computed_ms = _next_due(unit, self._config, now), now
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
        found = connection.execute(_NEXT_FOR_READERS).fetchone()
        limits = (1, 0, _DECIDED_MS)
        times = [
            time + limit for time, limit in zip(found, limits, strict=True) if time is not None
        ]
        return min(times, default=None)

    def run_due(self) -> Counter[str]:
        """Complete transactions that dead processes decided, abort transactions past their time-out or
        without their owner, deliver scheduled records, and remove expired rows. Returns counts for the
        HousekeepingReport."""
        while self._store.write(lambda unit: begin_again(unit, self._clock.time_ms()), sync=False):
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
                lambda unit: _remove(unit, self._config, now, self.presences.dead(unit)), sync=False
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
            return _next_due(connection, self._config, self._clock.time_ms())

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


def _remove(
    unit: Unit, config: BrokerConfig, now_ms: int, dead: Mapping[str, Collection[str]]
) -> tuple[dict[str, int], list[Removed]]:
    """Remove expired rows, and the `dead` members by group. Returns counts, all 0 when nothing is left,
    and the removed members."""
    unit.memos[Due].time_ms = None
    ids_ms, producers_ms, offsets_ms = _expirations(config)
    removed = {
        "expired_transactional_ids": transaction_rows.expire(unit, now_ms, ids_ms),
        "expired_producers": producer_rows.expire(unit, now_ms, producers_ms),
        "expired_offsets": group_offsets.expire(unit, now_ms, offsets_ms),
    }
    changed, members = group_rows.expire_members(unit, now_ms, dead)
    return removed | {"changed_groups": changed}, members


def _expirations(config: BrokerConfig) -> tuple[int, int, int]:
    """After how long (ms) transactional ids, producers and offsets expire."""
    return (
        config.transactional_id_expiration_ms,
        config.producer_id_expiration_ms,
        config.offsets_retention_minutes * _MINUTE_MS,
    )


def _next_due(source: Source, config: BrokerConfig, now_ms: int) -> int:
    if _transaction(source, now_ms) is not None or _group(source, now_ms) is not None:
        return now_ms  # Start times in the future must be set to now.
    expirations = _expirations(config)
    limits = (1, 1, 1, 0, *expirations)
    found: tuple[int | None, ...] = source.execute(_NEXT).fetchone()
    times = [time + limit for time, limit in zip(found, limits, strict=True) if time is not None]
    # Expirations that begin later are due after this time. Other new due times lower the bound (`Due.by`).
    return min([now_ms + min(expirations), *times])
