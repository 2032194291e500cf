"""Who owns an open transaction, and whether its owner is dead (see `transactions.owned`).

A dead owner's transaction is aborted by the next write, and by whoever opens the file: at once, where a
time-out would keep readers waiting. A living owner, running or stopped, is only subject to the time-out.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager

from eosdb.coordinator.transactions import owned, rows
from eosdb.coordinator.transactions.state import TransactionMetadata
from eosdb.model.values import ProducerIdAndEpoch, TransactionState
from eosdb.store.store import Store
from eosdb.store.writing.unit import Unit


# decisions/0034: a lock that its owner's death releases says at once what a time-out says late.
class Owners:
    """One per coordinator. Threads may share it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def own(self, producer: ProducerIdAndEpoch) -> AbstractContextManager[None]:
        """Own the producer's transaction during the block. Enter it before the transaction begins: an open
        one without an owner is aborted by the next write of anybody.

        Raises DatabaseLockedError and StorageError.
        """
        return self._store.owning(owned.place(producer))

    def first_orphan(self, unit: Unit) -> str | None:
        """The id of an open transaction whose owner is dead; None if there is none."""
        found = rows.remembered_with_owners(unit)
        return next(self._orphans(found), None) if found else None

    def has_orphan(self, connection: sqlite3.Connection) -> bool:
        """Whether there is one, for a reader."""
        return any(self._orphans(rows.with_owners(connection)))

    def is_orphan(self, current: TransactionMetadata) -> bool:
        """Whether this transaction is one."""
        transactional_id = current.transactional_id
        if current.state is not TransactionState.ONGOING or not owned.has_owner(transactional_id):
            return False
        return any(self._orphans({transactional_id: current.producer}))

    def _orphans(self, found: Mapping[str, ProducerIdAndEpoch]) -> Iterator[str]:
        """The transaction was read before its lock is looked at, and the lock was taken before it began."""
        return (
            transactional_id
            for transactional_id, producer in found.items()
            if not self._store.is_owned(owned.place(producer))
        )
