"""Whether the process of a group's member, or of an open transaction, is still there: it holds a lock that
its death releases.

A member that lives in a process which has the file open holds a lock of the lock file from before it joins
until it has left. The kernel releases it when the process dies, so the next who looks removes the member
at once, where its session would keep its partitions waiting. Members without one – static ones, those that
come over the wire – are known by their sessions alone, as are those that live and do not answer.

A processor holds such a lock for its transactions, too, whose ids name it: what a dead one left open is
aborted in the round that removes it from its group.
"""

from __future__ import annotations

import secrets
import sqlite3
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from eosdb.coordinator.groups import rows
from eosdb.coordinator.transactions import rows as transaction_rows
from eosdb.coordinator.transactions.state import TransactionMetadata
from eosdb.model.clock import Clock
from eosdb.model.protocol.owned_ids import owner_of
from eosdb.model.values import TransactionState
from eosdb.store.store import Store
from eosdb.store.writing.unit import Unit

LOOK_EVERY_MS: Final = 200
"""How often a database object looks whether members have died, while it writes or its members wait."""
_PLACES_AT: Final = 2**61
"""Where the locks of members begin, beyond those of transactions."""
_NUMBERS: Final = 2**52
"""How many numbers there are: JSON's readers tell them all apart."""


class Presence:
    """That one member is there: begun before it joins, ended once it has left, at the latest when it is
    forgotten, its database is closed or its process dies."""

    def __init__(self, number: int, end: Callable[[], None], look: Callable[[], None]) -> None:
        self.number: Final = number
        """To join with."""
        self._look = look
        self._end = weakref.finalize(self, end)
        self._end.atexit = False

    def look(self) -> None:
        """Remove members whose processes have died, if there are any; looks every 200 ms at most.

        Raises the errors of a write.
        """
        self._look()

    def end(self) -> None:
        """The member has left; may be called twice."""
        self._end()


# decisions/0041: a process that dies is noticed, one that hangs has its session.
class Presences:
    """One per coordinator. Threads may share it."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._next_look_ms = 0
        self._known: Mapping[str, _Locked] = {}

    def begin(self, look: Callable[[], None]) -> Presence:
        """A new one. Raises DatabaseLockedError and StorageError where no lock can be had, and
        ReadOnlyDatabaseError."""
        locks = self._store.owner_locks()
        # Random: a number that was used before could keep a dead member of that number alive.
        number = 1 + secrets.randbelow(_NUMBERS - 1)
        locks.hold(_place(number))
        return Presence(number, lambda: locks.release(_place(number)), look)

    def is_there(self, number: int) -> bool:
        """Whether the presence of this number has neither ended nor died. A reader cannot know, and is
        told so."""
        return self._store.is_owned(_place(number))

    def is_look_due(self) -> bool:
        """Whether the last look was long enough ago."""
        return self._clock.monotonic_ms() >= self._next_look_ms

    def has_dead(self, source: Unit | sqlite3.Connection) -> bool:
        """Whether the process of a member or of an open transaction has died. Found that none has, the
        next look is due later."""
        now = self._clock.monotonic_ms()
        if any(self._dead(source)) or self.first_orphan(source) is not None:
            return True
        self._next_look_ms = now + LOOK_EVERY_MS
        return False

    def dead(self, source: Unit | sqlite3.Connection) -> dict[str, set[str]]:
        """By group: the members whose processes have died."""
        found: dict[str, set[str]] = {}
        for group_id, member_id in self._dead(source):
            found.setdefault(group_id, set()).add(member_id)
        return found

    def first_orphan(self, source: Unit | sqlite3.Connection) -> str | None:
        """The id of an open transaction whose id names a lock that nobody holds; None if there is none.

        The transaction was read before its lock is looked at, and the lock was taken before it began."""
        found = transaction_rows.with_locks(source)
        return next((name for name, number in found if not self.is_there(number)), None)

    def is_orphan(self, current: TransactionMetadata) -> bool:
        """Whether this transaction is one."""
        number = owner_of(current.transactional_id)
        if current.state is not TransactionState.ONGOING or number is None:
            return False
        return not self.is_there(number)

    def _dead(self, source: Unit | sqlite3.Connection) -> Iterator[tuple[str, str]]:
        """The member was read before its lock is looked at, and the lock was taken before it joined."""
        before, known = self._known, dict[str, _Locked]()
        for group_id, members in rows.stored_members(source):
            locked = before.get(group_id)
            if locked is None or locked.members != members:
                locked = _Locked(members)
            known[group_id] = locked
        self._known = known
        return (
            (group_id, member_id)
            for group_id, locked in known.items()
            for member_id, number in locked.numbers
            if not self.is_there(number)
        )


class _Locked:
    """The members of a group that have locks."""

    __slots__ = ("members", "numbers")

    def __init__(self, members: str) -> None:
        self.members: Final = members
        """As the group's row has them."""
        self.numbers: Final = rows.owner_locks(members)


def _place(number: int) -> int:
    return _PLACES_AT + number
