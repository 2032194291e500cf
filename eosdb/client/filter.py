"""What a consumer leaves out of fetched records: control records, and aborted data under read_committed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from eosdb.model import AbortedTransaction, LogRecord


def visible(
    records: Sequence[LogRecord], aborted_transactions: Iterable[AbortedTransaction]
) -> list[LogRecord]:
    """The data records a reader may see, in order (Kafka: CompletedFetch.nextFetchedRecord).

    An aborted transaction's producer is filtered from the transaction's first offset to its ABORT
    marker; records outside of transactions never are.
    """
    queue = deque(sorted(aborted_transactions, key=lambda aborted: aborted.first_offset))
    if not queue:
        return [record for record in records if record.control is None]
    producers: set[int] = set()
    kept: list[LogRecord] = []
    for record in records:
        while queue and queue[0].first_offset <= record.offset:
            producers.add(queue.popleft().producer_id)
        if record.control is not None:
            if record.control == "ABORT":
                producers.discard(record.producer_id)
        elif not (record.is_transactional and record.producer_id in producers):
            kept.append(record)
    return kept
