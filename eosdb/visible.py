"""What readers leave out of the data that they find: under read_committed, what transactions took back."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any, Final, TypeVar

from eosdb.model import AbortedTransaction

Row = TypeVar("Row", bound=tuple[Any, ...])
"""A `DataRow`, or one that has its offset and its producer id at the same places."""

_OFFSET: Final = itemgetter(0)
_PRODUCER_ID: Final = 6


def visible(rows: Sequence[Row], aborted_transactions: Iterable[AbortedTransaction]) -> list[Row]:
    """The rows a reader may see, in order (Kafka: CompletedFetch.nextFetchedRecord).

    An aborted transaction's producer is filtered from the transaction's first offset to its ABORT
    marker; records outside of transactions never are. What no aborted transaction lies across is not
    even looked at.
    """
    kept = list(rows)
    for aborted in aborted_transactions:
        start = bisect_left(kept, aborted.first_offset, key=_OFFSET)
        end = bisect_right(kept, aborted.last_offset, lo=start, key=_OFFSET)
        kept[start:end] = [
            row for row in kept[start:end] if row[_PRODUCER_ID] != aborted.producer_id
        ]
    return kept
