"""The transaction index: the offsets of aborted data (Kafka: TransactionIndex, AbortedTxn).

An altered or missing entry would expose aborted data, so readers check the index. Each row has a checksum
and refers to the previous entry; the partition refers to the last one.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Any, Final

from eosdb.errors import CorruptDatabaseError
from eosdb.log.checksum import RANGE
from eosdb.log.partition_rows import Partition
from eosdb.model.damage import reads
from eosdb.model.fetched import AbortedTransaction
from eosdb.store.schema.row_checksum import row_checksum
from eosdb.store.writing.table import Table
from eosdb.store.writing.unit import Folding

_INDEX: Final = Table(
    "transaction_index",
    "partition_id producer_id first_offset last_offset last_stable_offset previous_offset checksum",
    "partition_id last_offset",
)
_AT_OR_AFTER: Final = "partition_id = ? AND last_offset >= ? ORDER BY last_offset"
_FROM: Final = _INDEX.where(_AT_OR_AFTER)
_NEXT: Final = _INDEX.where(f"{_AT_OR_AFTER} LIMIT 1")
_DELETE_BELOW: Final = _INDEX.deletion("partition_id = ? AND last_offset < ?")
_PRODUCERS: Final = (
    f'SELECT producer_id + 0, "offset", is_transactional + 0 {RANGE} AND control IS NULL '
    'AND +partition_id = asked ORDER BY "offset"'
)
"""`+ 0` converts a value to a number as the record's checksum does: an empty blob counts as 0."""


def search(
    entries: Iterable[AbortedTransaction], fetch_offset: int, upper_bound: int
) -> Iterator[AbortedTransaction]:
    """Return the aborted transactions that overlap [fetch_offset, upper_bound). `entries` are ordered by
    their last offset. The search ends at the first entry whose last stable offset reaches the upper
    bound: later ones began after it (TransactionIndex.collectAbortedTxns)."""
    for entry in entries:
        if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound:
            yield entry
        if entry.last_stable_offset >= upper_bound:
            return


def collect(
    connection: sqlite3.Connection, partition: Partition, fetch_offset: int, upper_bound: int
) -> list[AbortedTransaction]:
    """`search` over the stored index. Raises CorruptDatabaseError."""
    rows = connection.execute(_FROM, (partition.partition_id, fetch_offset))
    return list(search(linked(rows, partition, fetch_offset), fetch_offset, upper_bound))


def taken_back_in(
    connection: sqlite3.Connection,
    partition: Partition,
    start: int,
    end: int,
    seen: Iterable[int] | None,
) -> Set[int]:
    """Return the offsets in [start, end) that belong to aborted transactions. `seen` are the offsets of
    the read and checked data, in order. This look-up uses another index and must find the same offsets.
    Raises CorruptDatabaseError."""
    aborted = collect(connection, partition, start, end)
    if not aborted:
        return frozenset()
    low = max(start, min(entry.first_offset for entry in aborted))
    high = min(end, max(entry.last_offset for entry in aborted))
    rows = connection.execute(_PRODUCERS, (partition.partition_id, low, high)).fetchall()
    if seen is not None:
        expected = list(seen)
        stored = expected[bisect_left(expected, low) : bisect_left(expected, high)]
        if stored != [offset for _, offset, _ in rows]:
            raise _damaged(partition, f"the records index has wrong entries for {low} to {high}")
    return taken_back(((at, producer) for producer, at, added in rows if added), aborted)


def linked(
    rows: Iterable[tuple[Any, ...]], partition: Partition, fetch_offset: int
) -> Iterator[AbortedTransaction]:
    """Yield the entries from `fetch_offset` on. Each must refer to the previous one: raises
    CorruptDatabaseError for an altered or missing entry."""
    last = None
    for _, *columns, previous, checksum in rows:
        numbers = (partition.partition_id, *columns, previous)
        if row_checksum(*numbers) != checksum or set(map(type, numbers)) != {int}:
            raise _damaged(
                partition, f"the entry that ends at {columns[2]} does not fit its checksum"
            )
        entry = AbortedTransaction._make(columns)
        if previous >= fetch_offset if last is None else previous != last:
            raise _damaged(partition, f"the entry that ends at {previous} is missing")
        last = entry.last_offset
        yield entry
    newest = partition.last_aborted_offset
    if newest >= fetch_offset if last is None else newest != last:
        raise _damaged(partition, f"the entry that ends at {newest} is missing")


def _damaged(partition: Partition, what: str) -> CorruptDatabaseError:
    return CorruptDatabaseError(
        f"transaction_index: {partition.topic_partition}: {what}, so aborted records cannot be told from "
        "committed ones; `eosdb inspect rebuild` restores it from the events, `eosdb verify` shows what "
        "else is damaged"
    )


def add(unit: Folding, partition_id: int, entry: AbortedTransaction, previous_offset: int) -> None:
    """Projection only: add an entry after the one that ends at `previous_offset` (-1: none)."""
    unit.insert(_INDEX.rows, (partition_id, *entry, previous_offset))


def forget_below(unit: Folding, partition_id: int, log_start_offset: int) -> None:
    """Projection only: delete entries whose marker is below the log start."""
    unit.execute(_DELETE_BELOW, (partition_id, log_start_offset))


def forget(unit: Folding, partition_id: int, last_offsets: Sequence[int], newest: int) -> int:
    """Projection only: delete the entries that end at these offsets, and relink the others. `newest` is
    the last offset of the last entry. Returns the last offset of the last entry that remains."""
    for last_offset in last_offsets:
        found = unit.execute(_INDEX.at_key, (partition_id, last_offset)).fetchone()
        if found is None:
            continue
        previous = found[-2]
        unit.execute(_INDEX.delete, (partition_id, last_offset))
        row = unit.execute(_NEXT, (partition_id, last_offset)).fetchone()
        if row is None:
            newest = previous
            continue
        _, *entry, _, _ = row
        unit.execute(_INDEX.delete, (partition_id, entry[2]))
        add(unit, partition_id, AbortedTransaction._make(entry), previous)
    return newest


@reads("records")
def taken_back(
    transactional: Iterable[tuple[int, int]], aborted_transactions: Iterable[AbortedTransaction]
) -> set[int]:
    """Return the offsets that read_committed omits among these transactional records, given in order as
    pairs of offset and producer id (Kafka: CompletedFetch.nextFetchedRecord). The producer of an aborted
    transaction is filtered from the transaction's first offset to its ABORT marker."""
    by_producer: dict[int, list[int]] = {}
    for offset, producer_id in transactional:
        by_producer.setdefault(producer_id, []).append(offset)
    gone: set[int] = set()
    for aborted in aborted_transactions:
        offsets = by_producer.get(aborted.producer_id, [])
        start = bisect_left(offsets, aborted.first_offset)
        gone.update(offsets[start : bisect_left(offsets, aborted.last_offset, start)])
    return gone
