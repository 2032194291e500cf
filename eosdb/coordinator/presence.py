"""Locks that show whether the process of a group member or of an open transaction's owner is alive.

When a process dies, the kernel releases its locks on the lock file. A member holds its lock from before it
joins until it has left. The next check removes a dead member, long before its session ends. Static members,
and clients over the wire, have sessions but no lock.

The owner of a transactional id (in the form that `with_owner` makes) holds a lock from before a
transaction begins until it has ended. The next write aborts a dead owner's open transaction. For a living
owner, running or stopped, only the time-out counts.
"""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
import weakref
from collections.abc import Callable, Iterator
from typing import Final

from eosdb.coordinator.groups import rows
from eosdb.coordinator.transactions import rows as transaction_rows
from eosdb.coordinator.transactions.state import TransactionMetadata
from eosdb.model.clock import Clock
from eosdb.model.protocol.consumer_protocol import EPOCHS, has_owner, owner_lock
from eosdb.model.values import TransactionState
from eosdb.store.store import Store
from eosdb.store.writing.unit import Unit

LOOK_EVERY_MS: Final = 200
"""How often a database object checks for dead members while it writes or its members wait."""
_MEMBERS_AT: Final = 2**61
"""The first lock number of members, beyond those of transactions."""
_NUMBERS: Final = 2**52
"""Members draw from this many numbers, which JSON represents exactly."""


class HeldPresence:
    """The lock of a group member or of a transactional id's owner. It is released by `end`, the garbage
    collector, closing the database, or the end of the process."""

    def __init__(self, number: int, end: Callable[[], None], look: Callable[[], None]) -> None:
        self.number: Final = number
        """The `owner_lock` with which a member joins."""
        self.look: Final = look
        """Removes members and aborts transactions of dead processes, at most every 200 ms. Raises the
        errors of a write."""
        self.end: Final = weakref.finalize(self, end)
        """Releases the lock. May be repeated."""
        self.end.atexit = False


# decisions/0034: kernel locks show at once that a process died. A process that hangs is noticed when its
# session or transaction times out.
class Presences:
    """Holds the locks of this object's members and owners, and finds dead members and owners. Threads may
    share it."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._next_look_ms = 0
        self._own_ids = set[str]()
        """Transactional ids that this object owns; checking them needs no system call."""

    def begin(self, look: Callable[[], None], transactional_id: str | None) -> HeldPresence:
        """Take the lock of a member or, with an id, the locks of its owner for all epochs of the id. Raises
        DatabaseLockedError, StorageError and ReadOnlyDatabaseError."""
        locks, own_ids = self._store.owner_locks(), self._own_ids
        if transactional_id is not None:
            first = owner_lock(transactional_id, 0)
            assert first + EPOCHS <= _MEMBERS_AT, first
            locks.hold(first, EPOCHS)
            own_ids.add(transactional_id)

            def end() -> None:
                own_ids.discard(transactional_id)
                locks.release(first, EPOCHS)

            return HeldPresence(first, end, look)
        # Random, because a dead member would count as alive if another member reused its number.
        number = 1 + secrets.randbelow(_NUMBERS - 1)
        locks.hold(_MEMBERS_AT + number)
        return HeldPresence(number, lambda: locks.release(_MEMBERS_AT + number), look)

    @contextlib.contextmanager
    def owning(self, transactional_id: str, producer_epoch: int) -> Iterator[None]:
        """Hold the owner's lock of the id in this epoch during the `with` block. Enter the block before the
        transaction begins: the next write of any process aborts an open transaction without an owner.
        Raises DatabaseLockedError, StorageError and ReadOnlyDatabaseError."""
        locks, number = self._store.owner_locks(), owner_lock(transactional_id, producer_epoch)
        assert 0 <= number < _MEMBERS_AT, number
        locks.hold(number)
        try:
            yield
        finally:
            locks.release(number)

    def is_there(self, number: int) -> bool:
        """Whether the member holds the lock of this number. True if unknown."""
        return self._store.is_owned(_MEMBERS_AT + number)

    def is_look_due(self) -> bool:
        return self._clock.monotonic_ms() >= self._next_look_ms

    def has_dead(self, source: Unit | sqlite3.Connection) -> bool:
        """Whether the process of a member, or of an open transaction's owner, has died. If none has, the
        next check is due 200 ms from now."""
        now = self._clock.monotonic_ms()
        if any(self._dead(source)) or self.first_orphan(source) is not None:
            return True
        self._next_look_ms = now + LOOK_EVERY_MS
        return False

    def dead(self, source: Unit | sqlite3.Connection) -> dict[str, set[str]]:
        """The dead members by group."""
        dead: dict[str, set[str]] = {}
        for group_id, member_id in self._dead(source):
            dead.setdefault(group_id, set()).add(member_id)
        return dead

    def first_orphan(self, source: Unit | sqlite3.Connection) -> str | None:
        """The id of an open transaction whose owner is dead; None if there is none."""
        for name, number in transaction_rows.owned(source).items():
            if self._is_dead(name, number):
                return name
        return None

    def is_orphan(self, current: TransactionMetadata) -> bool:
        name = current.transactional_id
        if current.state is not TransactionState.ONGOING or not has_owner(name):
            return False
        return self._is_dead(name, owner_lock(name, current.producer_epoch))

    def _is_dead(self, transactional_id: str, number: int) -> bool:
        """Whether nobody holds the lock. An owner takes it before its transaction begins, and the
        transaction was read before this check, so there is no race."""
        return transactional_id not in self._own_ids and not self._store.is_owned(number)

    def _dead(self, source: Unit | sqlite3.Connection) -> Iterator[tuple[str, str]]:
        """The groups and ids of dead members. A member takes its lock before it joins, and was read
        before this check, so there is no race."""
        return (
            (group_id, member_id)
            for group_id, members in rows.stored_members(source)
            for member_id, number in rows.owner_locks(members)
            if not self.is_there(number)
        )
