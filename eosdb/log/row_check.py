"""Whether the rows that were read are those that were written, none altered and none missing: what a
fetch checks before it returns them.

Records before a damaged one are returned; the next fetch begins at it, and raises.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final

from eosdb.errors import CorruptRecordError
from eosdb.log import checksum
from eosdb.log.batch import headers_from_text
from eosdb.log.partition_rows import Partition
from eosdb.log.record_rows import CONTENT, FETCHED
from eosdb.model.values import Header

_MANY: Final = 50
"""Taking out fewer than one in so many leaves most of a list in one piece."""


def without_markers(
    rows: list[tuple[Any, ...]], markers: Sequence[int] = checksum.MARKERS
) -> list[tuple[Any, ...]]:
    """The rows without control records."""
    sums = [row[CONTENT] for row in rows]
    count = sum(map(sums.count, markers))
    if count == 0:
        return rows
    if count > len(rows) / _MANY:
        return [row for row in rows if row[CONTENT] not in markers]
    left = rows.copy()
    for marker in markers:
        place = -1
        for _ in range(sums.count(marker)):  # From one to the next it runs in C.
            place = sums.index(marker, place + 1)
            del left[place], sums[place]
            place -= 1
    return left


def are_whole(
    partition: Partition,
    columns: Sequence[Sequence[Any]],
    count: int,
    offset: int,
    next_offset: int,
) -> bool:
    """A quick check that all is well with [offset, next_offset), of which there are so many rows; the
    columns are those without control records that have checksums. `checked` looks closer."""
    if offset < partition.clean_offset or count != next_offset - offset or not columns:
        return False
    _, _, _, keys, values, texts, sums, *_ = columns
    return checksum.first_altered(keys, values, texts, sums) is None


def checked(
    partition: Partition, columns: Sequence[Sequence[Any]], offset: int, next_offset: int
) -> tuple[int, int]:
    """How many of the rows of [offset, next_offset), given as columns, precede the first one that is
    altered or missing, and where to go on.

    Below the clean offset compaction may have removed some. Raises CorruptRecordError when it is the very
    first one.
    """
    offsets, _, _, keys, values, texts, sums, *_ = columns if columns else ((),) * len(FETCHED)
    count, first_whole = len(offsets), max(offset, partition.clean_offset)
    altered = checksum.first_altered(keys, values, texts, sums, _old(partition, offsets))
    if altered is not None:
        if altered == 0:
            # Where nothing may be missing the offset is known, whatever the row says.
            raise damaged(partition, offset if offset == first_whole else offsets[0])
        count, next_offset = altered, offsets[altered - 1] + 1
    begin = 0 if offset == first_whole else bisect_left(offsets, first_whole, 0, count)
    if count - begin == max(next_offset - first_whole, 0):
        return count, next_offset
    missing = first_whole
    while begin < count and offsets[begin] == missing:
        begin, missing = begin + 1, missing + 1
    if missing == offset:
        raise damaged(partition, missing, "is missing")
    return begin, missing


def _old(partition: Partition, offsets: Sequence[int]) -> int:
    """How many of the rows may be from before there were checksums."""
    if partition.checked_from < 0:
        return len(offsets)
    if not offsets or offsets[0] >= partition.checked_from:
        return 0
    return bisect_left(offsets, partition.checked_from)


def damaged(
    partition: Partition, offset: int, how: str = "does not fit its checksum"
) -> CorruptRecordError:
    return CorruptRecordError(
        f"{partition.topic_partition}: the record at offset {offset} {how}, so the file is damaged; to go "
        f"on without it, seek to {offset + 1}; `eosdb verify` shows what else is damaged, and a backup "
        "brings it back"
    )


def headers(partition: Partition, offset: int, text: str | None) -> tuple[Header, ...]:
    """What the column holds. Raises CorruptRecordError, for without checks it may be anything."""
    try:
        return () if text is None else headers_from_text(text)
    except (TypeError, ValueError) as error:
        raise damaged(partition, offset, f"has invalid headers ({error})") from error
