"""Due work that no write has done yet: members with an ended session or a dead process, transactions past
their time-out or without their owner. Readers show groups as the next write will leave them, and name the
due work; they find it by the same functions as a write.
"""

from __future__ import annotations

import sqlite3
from functools import cache, partial
from typing import Final

from eosdb.coordinator.groups import departures
from eosdb.coordinator.groups import rows as group_rows
from eosdb.coordinator.groups.rows import AnyGroup
from eosdb.coordinator.presence import Presences
from eosdb.coordinator.transactions import decisions
from eosdb.coordinator.transactions.state import TransactionMetadata
from eosdb.log import topics

_NOBODY: Final = frozenset[str]()


# decisions/0076: readers show groups as the next write leaves them.
class Foresight:
    """The due work in one snapshot, at one time."""

    def __init__(self, connection: sqlite3.Connection, presences: Presences, now_ms: int) -> None:
        self.now_ms: Final = now_ms
        self._names = cache(partial(topics.by_number, connection))
        self._presences = presences
        # As in a write, this check for dead processes runs at most every 200 ms.
        self._dead = presences.dead(connection) if presences.is_look_due() else {}
        self._ended = group_rows.ended_sessions(connection, now_ms)

    def group(self, stored: AnyGroup) -> AnyGroup:
        """The group after the due work of the next write."""
        return self._foreseen(stored)[0]

    def of_group(self, stored: AnyGroup) -> tuple[str, ...]:
        """A sentence for each member that the next write removes from the group."""
        return tuple(
            f"{gone.member_id}: {gone.cause}; the next write to the file removes it"
            for gone in self._foreseen(stored)[1]
        )

    def _foreseen(self, stored: AnyGroup) -> tuple[AnyGroup, tuple[departures.Removed, ...]]:
        gone = {
            "process_died": self._dead.get(stored.group_id, _NOBODY),
            "session_ended": self._ended.get(stored.group_id, _NOBODY),
        }
        return departures.foreseen(stored, gone, self._names, self.now_ms)

    def is_orphan(self, stored: TransactionMetadata) -> bool:
        return self._presences.is_orphan(stored)

    def of_transaction(self, stored: TransactionMetadata) -> str:
        """The effect of the next write on the transaction; empty if nothing is due."""
        if stored.state.is_decided:
            return "it is decided; the next write to the file completes it"
        if decisions.is_timed_out(stored, self.now_ms):
            return "it is older than its timeout; the next write to the file aborts it"
        if self.is_orphan(stored):
            return "its owner has died; the next write to the file aborts it"
        return ""
