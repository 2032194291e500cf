"""What the coordinator tells about transactions: DescribeTransactions and ListTransactions
(KIP-664)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

from eosdb.coordinator import transactions as stored
from eosdb.coordinator.coordinator import partition_for
from eosdb.errors import TransactionalIdNotFoundError
from eosdb.model import GROUP_METADATA_TOPIC, TransactionDescription, TransactionListing


def describe(connection: sqlite3.Connection, transactional_id: str) -> TransactionDescription:
    """Raises TransactionalIdNotFoundError."""
    found = stored.read(connection, transactional_id)
    if found is None:
        raise TransactionalIdNotFoundError(f"there is no transactional id {transactional_id!r}")
    return TransactionDescription(
        transactional_id,
        partition_for(transactional_id),
        found.state.label,
        found.producer_id,
        found.producer_epoch,
        found.timeout_ms,
        found.start_time_ms,
        frozenset(tp for tp in found.partitions if tp.topic != GROUP_METADATA_TOPIC),
    )


def transactions(
    connection: sqlite3.Connection,
    states: Sequence[str],
    producer_ids: Sequence[int],
    started_before: int,
) -> Iterator[TransactionListing]:
    """Transactions that meet every filter, by id; `started_before` -1: whenever they began."""
    conditions, values = ["1"], list[object]()
    for column, wanted in (("state", states), ("producer_id", producer_ids)):
        if wanted:
            conditions.append(f"{column} IN ({', '.join('?' * len(wanted))})")
            values.extend(wanted)
    if started_before >= 0:
        conditions.append("start_time < ?")
        values.append(started_before)
    for found in stored.read_where(connection, " AND ".join(conditions), tuple(values)):
        yield TransactionListing(found.transactional_id, found.producer_id, found.state.label)


def coordinator_epoch(connection: sqlite3.Connection) -> int:
    """The epoch in office; 0 before the first election."""
    row = connection.execute(
        "SELECT value FROM counters WHERE name = ?", (stored.COORDINATOR_EPOCH,)
    ).fetchone()
    return 0 if row is None else int(row[0])
