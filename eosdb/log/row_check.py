"""Whether rows that were read are those that were written, none altered and none missing: what a fetch
looks at before it hands them out.

The rows are tuples that begin alike (`PLACES`), control records among them. What is in front of a
damaged record is handed out; the next fetch begins at it, and raises.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final

from eosdb.errors import CorruptRecordError
from eosdb.log import checksum
from eosdb.log.batch import headers_from_text
from eosdb.log.partitions import Partition
from eosdb.model import Header

OFFSET, KEY, VALUE, HEADERS, CONTENT = 0, 3, 4, 5, 7
"""Where a row has its offset and its content, and what `log.checksum` says of the content."""
_OFFSET: Final = itemgetter(OFFSET)


def checked(
    partition: Partition, rows: list[tuple[Any, ...]], offset: int, next_offset: int
) -> tuple[list[tuple[Any, ...]], int]:
    """The rows of [offset, next_offset), or those in front of the first one that is altered or missing;
    with them, where to go on.

    Below the clean offset compaction may have removed some. Raises CorruptRecordError when it is the very
    first one.
    """
    altered = None
    if rows:
        _, _, _, keys, values, texts, _, sums, *_ = zip(*rows, strict=True)
        altered = checksum.first_altered(keys, values, texts, sums, _old(partition, rows))
    first_whole = max(offset, partition.clean_offset)
    if altered is not None:
        if altered == 0:
            # Where nothing may be missing the place is known, whatever the row says of itself.
            raise damaged(partition, offset if offset == first_whole else rows[0][OFFSET])
        rows = rows[:altered]
        next_offset = rows[-1][OFFSET] + 1
    begin = 0 if offset == first_whole else bisect_left(rows, first_whole, key=_OFFSET)
    if len(rows) - begin == max(next_offset - first_whole, 0):
        return rows, next_offset
    missing = _first_missing(rows[begin:], first_whole)
    if missing == offset:
        raise damaged(partition, missing, "is missing")
    return rows[: begin + missing - first_whole], missing


def _old(partition: Partition, rows: Sequence[tuple[Any, ...]]) -> int:
    """How many of the rows may be from before there were checksums."""
    if partition.checked_from < 0:
        return len(rows)
    if rows[0][OFFSET] >= partition.checked_from:
        return 0
    return bisect_left(rows, partition.checked_from, key=_OFFSET)


def _first_missing(rows: Sequence[tuple[Any, ...]], offset: int) -> int:
    """Which offset from `offset` on none of the rows has."""
    for row in rows:
        if row[OFFSET] != offset:
            break
        offset += 1
    return offset


def damaged(
    partition: Partition, offset: int, how: str = "does not fit its checksum"
) -> CorruptRecordError:
    return CorruptRecordError(
        f"{partition.topic_partition}: the record at offset {offset} {how}, so the file is damaged; to go "
        f"on without it, seek to {offset + 1}; `eosdb verify` tells what else is damaged, and a backup "
        "brings it back"
    )


def headers(partition: Partition, offset: int, text: str | None) -> tuple[Header, ...]:
    """What stands in the column. Raises CorruptRecordError, for who does not check reads anything."""
    try:
        return () if text is None else headers_from_text(text)
    except (TypeError, ValueError) as error:
        raise damaged(partition, offset, f"has headers that are none ({error})") from error
