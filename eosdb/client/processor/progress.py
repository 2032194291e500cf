"""A partition's progress: which of its records are complete, and its form as a committed offset.

Records may complete out of order: a batch skips retries of other groups at once. The committed offset is
that of the lowest unfinished record. Its metadata has the offset after the highest complete record, and the
distances of the other unfinished ones. `eosdb 40 2 5` at offset 30 says: 30, 32 and 37 are unfinished, all
others below 40 are complete.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final

from eosdb.model.values import OffsetAndMetadata

_METADATA: Final = re.compile(r"eosdb (\d+)((?: \d+)*)", re.ASCII)


class Progress:
    """The records of one partition that this copy has read."""

    __slots__ = ("_done", "_end", "_left", "_unfinished", "_unread")

    def __init__(self, committed: OffsetAndMetadata | None = None) -> None:
        self._done, self._left = done_and_left(committed)
        """The range with records of earlier transactions, and the offsets that these left unfinished."""
        self._unread: Sequence[int] = self._left
        self._unfinished: dict[int, None] = {}
        """The offsets that were taken and are not complete, in order."""
        self._end = self._done.stop
        """The offset after the highest complete record."""

    def was_complete(self, offset: int) -> bool:
        """Whether a transaction has completed this record, which the committed offset has not passed."""
        return offset in self._done and offset not in self._left

    def take(self, offsets: Sequence[int]) -> None:
        self._unfinished.update(dict.fromkeys(offsets))
        if self._unread:
            # Up to the last new offset, every record is taken now, or has been deleted.
            self._unread = [unread for unread in self._unread if unread > offsets[-1]]

    def complete(self, offsets: Sequence[int]) -> None:
        for offset in offsets:
            del self._unfinished[offset]
        self._end = max(self._end, offsets[-1] + 1)

    def lowest(self) -> int | None:
        """The lowest offset that was taken and is not complete."""
        return next(iter(self._unfinished), None)

    @property
    def unfinished(self) -> int:
        return len(self._unfinished)

    def as_offset(self) -> OffsetAndMetadata:
        below = [each for each in (*self._unfinished, *self._unread) if each < self._end]
        if not below:
            return OffsetAndMetadata(self._end)
        distances = "".join(f" {after - before}" for before, after in pairwise(below))
        return OffsetAndMetadata(below[0], f"eosdb {self._end}{distances}")


def is_complete(committed: OffsetAndMetadata, offset: int) -> bool:
    """Whether the record is complete according to a committed offset of its partition."""
    return offset < committed.offset or Progress(committed).was_complete(offset)


def done_and_left(committed: OffsetAndMetadata | None) -> tuple[range, list[int]]:
    found = committed and _METADATA.fullmatch(committed.metadata)
    if not committed or not found:
        return range(0), []
    left = list(accumulate(map(int, found[2].split()), initial=committed.offset))
    return range(committed.offset, int(found[1])), left
