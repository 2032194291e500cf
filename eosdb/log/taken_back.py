"""The filter of read_committed: leaves out records of aborted transactions."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from eosdb.model.damage import reads
from eosdb.model.fetched import AbortedTransaction


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
