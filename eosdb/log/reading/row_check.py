"""Checks that the rows of a fetch are the requested ones, unaltered: none changed, missing or duplicated.

A value that eosdb never writes is an error even if its checksum fits. Records before a damaged one are
returned; the next fetch begins at the damaged one and raises.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import lt
from types import NoneType
from typing import Any, Final

from eosdb.errors import CorruptRecordError
from eosdb.log import checksum
from eosdb.log.batch import headers_from_text
from eosdb.log.partition_rows import Partition
from eosdb.model.config import INT32_MAX, INT64_MAX
from eosdb.model.fetched import StoredRows
from eosdb.model.validation import INT16_MAX
from eosdb.model.values import Header

BOUNDS: Final = {
    "offset": (0, INT64_MAX),
    "timestamp": (0, INT64_MAX),
    "timestamp_type": (0, 1),
    "producer_id": (-1, INT64_MAX),
    "producer_epoch": (-1, INT16_MAX),
    "sequence": (-1, INT32_MAX),
    "is_transactional": (0, 1),
}
"""The least and the greatest number that eosdb writes (`_rows.c: are_written` has the same)."""
_TYPES: Final = {
    **dict.fromkeys(BOUNDS, frozenset({int})),
    **dict.fromkeys(("key", "value"), frozenset({bytes, NoneType})),
    **dict.fromkeys(("headers", "control"), frozenset({str, NoneType})),
}
_CONTROLS: Final = frozenset({None, "COMMIT", "ABORT"})


def first_strange(columns: Sequence[Sequence[Any]], names: Sequence[str]) -> tuple[int, str] | None:
    """Return the index and column of the first value that eosdb never writes; None without one."""
    found = None
    for name, column in zip(names, columns, strict=bool(columns)):
        if not _are_written(name, column):
            place = next(i for i, cell in enumerate(column) if not _are_written(name, (cell,)))
            found = min(found or (place, name), (place, name))
    return found


def _are_written(name: str, column: Sequence[Any]) -> bool:
    if not column:
        return True
    least, most = BOUNDS.get(name, (0, 0))
    return _TYPES[name].issuperset(map(type, column)) and (
        _CONTROLS.issuperset(column)
        if name == "control"
        else name not in BOUNDS or least <= min(column) <= max(column) <= most
    )


# decisions/0058: a valid checksum does not show that a record is the requested one; its offset must fit.
def sound(partition: Partition, offsets: Sequence[Any], start: int, end: int) -> int:
    """Return how many leading offsets can be the rows of [start, end): each once, in order, and without
    gaps above the clean offset."""
    assert start <= end, (start, end)
    first_whole, count = max(start, partition.clean_offset), len(offsets)
    if count <= end - start and None not in offsets:
        if list(offsets) == list(range(start, start + count)):
            return count
        if all(map(lt, offsets, offsets[1:])) and start <= offsets[0] and offsets[-1] < end:
            thinned = bisect_left(offsets, first_whole)
            if list(offsets[thinned:]) == list(range(first_whole, first_whole + count - thinned)):
                return count
    last = start - 1
    for place, offset in enumerate(offsets):
        if offset is None or not last < offset < end or offset > max(last + 1, first_whole):
            return place
        last = offset
    return count


def checked(
    partition: Partition,
    rows: StoredRows,
    contents: Sequence[int],
    offset: int,
    end: int,
    *,
    exhausted: bool,
) -> tuple[int, int]:
    """Check the rows of [offset, end) against their content sums. Return how many rows precede the first
    altered, missing or wrong row, and the offset to continue from. `exhausted` says that these are all
    rows of the range. Below the clean offset compaction may have removed records. Raises
    CorruptRecordError if the first row is bad."""
    offsets = rows.offset
    count = sound(partition, offsets, offset, end)
    altered = checksum.first_altered(
        rows.key[:count], rows.value[:count], rows.headers[:count], contents[:count]
    )
    if altered is not None:
        if altered == 0:
            raise damaged(partition, offsets[0])
        return altered, offsets[altered - 1] + 1
    next_offset = offsets[count - 1] + 1 if count else offset
    if count == len(offsets) and not exhausted:
        return count, next_offset
    at = offsets[count] if count < len(offsets) else next_offset
    is_another = count < len(offsets) and not (at is not None and next_offset <= at < end)
    if not is_another:  # Below the clean offset compaction may leave gaps; skip this one.
        next_offset = max(next_offset, min(partition.clean_offset, end))
    if next_offset == offset < end:
        raise damaged(partition, offset, "cannot be found" if is_another else "is missing")
    assert offset < next_offset <= end, next_offset
    return count, next_offset


def damaged(
    partition: Partition, offset: int, how: str = "does not fit its checksum"
) -> CorruptRecordError:
    return CorruptRecordError(
        f"{partition.topic_partition}: the record at offset {offset} {how}, so the file is damaged; to go "
        f"on without it, seek to {offset + 1}; `eosdb verify` shows what else is damaged, and a backup "
        "restores it"
    )


def headers(partition: Partition, rows: StoredRows) -> Sequence[tuple[Header, ...]]:
    """Decode each record's headers; empty if no record has any. Raises CorruptRecordError: without checks
    the column may hold anything."""
    if rows.headers.count(None) == len(rows.headers):
        return ()
    decoded: list[tuple[Header, ...]] = []
    for offset, text in zip(rows.offset, rows.headers, strict=True):
        try:
            decoded.append(() if text is None else headers_from_text(text))
        except (TypeError, ValueError, AttributeError) as error:
            raise damaged(partition, offset, f"has invalid headers ({error})") from error
    return decoded
