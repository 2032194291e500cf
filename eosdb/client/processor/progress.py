"""A partition's progress: which of its records are complete, and its form as a committed offset.

Records may complete out of order. The committed offset is that of the lowest unfinished record, and its
metadata names the other unfinished ones (eosdb/model/finished.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from eosdb.model import finished
from eosdb.model.values import OffsetAndMetadata


class ProcessorProgress:
    """The records of one partition that this copy has read."""

    __slots__ = ("_done", "_end", "_left", "_unfinished", "_unread")

    def __init__(self, committed: OffsetAndMetadata | None = None) -> None:
        end, self._left = finished.read(committed or OffsetAndMetadata(0))
        self._done = range(committed.offset if committed else 0, end)
        """The range with records of earlier transactions, and the offsets that these left unfinished."""
        self._unread: Sequence[int] = self._left
        self._unfinished: dict[int, None] = {}
        """The offsets that were taken and are not complete, in order."""
        self._end = self._done.stop
        """The offset after the highest complete record. Below, all that are not taken need nothing."""

    def was_complete(self, offset: int) -> bool:
        """Whether a transaction has completed this record, which the committed offset has not passed."""
        return offset in self._done and offset not in self._left

    def take(self, offsets: Sequence[int]) -> None:
        assert not self._unfinished or next(reversed(self._unfinished)) < offsets[0], offsets
        self._unfinished.update(dict.fromkeys(offsets))
        if self._unread:
            # Up to the last new offset, every record is taken now, or has been deleted.
            self._unread = [unread for unread in self._unread if unread > offsets[-1]]

    def complete(self, offsets: Sequence[int]) -> None:
        assert self._unfinished.keys() >= {*offsets}, offsets
        for offset in offsets:
            del self._unfinished[offset]
        self.pass_by(offsets[-1])

    def pass_by(self, offset: int) -> None:
        """Note that the records up to this offset which are not taken need nothing."""
        assert offset >= 0, offset
        self._end = max(self._end, offset + 1)

    def lowest(self) -> int | None:
        """The lowest offset that was taken and is not complete."""
        return next(iter(self._unfinished), None)

    @property
    def unfinished(self) -> int:
        return len(self._unfinished)

    def as_offset(self) -> OffsetAndMetadata:
        below = [each for each in (*self._unfinished, *self._unread) if each < self._end]
        lowest = below[0] if below else self._end
        return OffsetAndMetadata(lowest, finished.text(self._end, below))


def is_complete(committed: OffsetAndMetadata, offset: int) -> bool:
    """Whether the record is complete according to a committed offset of its partition."""
    return offset < committed.offset or ProcessorProgress(committed).was_complete(offset)
