"""The transaction index: where aborted data lies (Kafka: TransactionIndex, AbortedTxn)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Final

from eosdb.model import AbortedTransaction
from eosdb.store.unit import Unit

_FROM: Final = (
    "SELECT producer_id, first_offset, last_offset, last_stable_offset FROM transaction_index "
    "WHERE partition_id = ? AND last_offset >= ? ORDER BY last_offset"
)


def search(
    entries: Iterable[AbortedTransaction], fetch_offset: int, upper_bound: int
) -> Iterator[AbortedTransaction]:
    """The aborted transactions that touch [fetch_offset, upper_bound).

    `entries` come in order of their last offset. The search ends at the first whose last stable
    offset reaches the upper bound: all that follow began later
    (TransactionIndex.collectAbortedTxns).
    """
    for entry in entries:
        if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound:
            yield entry
        if entry.last_stable_offset >= upper_bound:
            return


def collect(
    connection: sqlite3.Connection, partition_id: int, fetch_offset: int, upper_bound: int
) -> list[AbortedTransaction]:
    """`search` over the stored index."""
    rows = connection.execute(_FROM, (partition_id, fetch_offset))
    return list(search(map(AbortedTransaction._make, rows), fetch_offset, upper_bound))


def add(unit: Unit, partition_id: int, entry: AbortedTransaction) -> None:
    unit.insert(
        "transaction_index",
        "INSERT INTO transaction_index (partition_id, producer_id, first_offset, last_offset, "
        "last_stable_offset) VALUES (?, ?, ?, ?, ?)",
        (partition_id, *entry),
    )


def forget_below(unit: Unit, partition_id: int, log_start_offset: int) -> None:
    """Drop entries whose marker retention has passed."""
    unit.execute(
        "DELETE FROM transaction_index WHERE partition_id = ? AND last_offset < ?",
        (partition_id, log_start_offset),
    )
