"""Records as the accelerator (`eosdb_rows`) returns them: numbers, and buffers for Arrow arrays."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

_NUMBERS: Final = (
    "offset", "timestamp", "timestamp_type", "producer_id", "producer_epoch", "sequence",
)  # fmt: skip
_PARTS: Final = ("key", "value", "headers")
_HEAD: Final = struct.Struct("=12q")
"""The number of rows, the size, the start of the numbers, and for each part the starts of its three
buffers (`_rows.c: head`)."""


class Cells(NamedTuple):
    """The data records of an offset range in which no offset is missing."""

    data: bytes
    kept: Sequence[bool] | None = None
    """Marks the records to return; None for all."""

    @property
    def size(self) -> int:
        rows: int = _HEAD.unpack_from(self.data)[0]
        return rows if self.kept is None else sum(self.kept)

    @property
    def has_plain_headers(self) -> bool:
        """Whether the text of all headers is ASCII, as eosdb writes it."""
        return self.data[_HEAD.unpack_from(self.data)[-1] :].isascii()

    def numbers(self, name: str) -> memoryview[int]:
        rows, _, numbers, *_ = _HEAD.unpack_from(self.data)
        begin = numbers + 8 * rows * _NUMBERS.index(name)
        return memoryview(self.data)[begin : begin + 8 * rows].cast("q")

    def arrays(self, arrow: Any, names: Sequence[str]) -> list[Any]:
        """Return columns as arrays of the module `arrow`: numbers as int64, others as binary."""
        buffer = arrow.py_buffer(self.data)
        rows, _, numbers, *parts = _HEAD.unpack_from(self.data)
        kept = None if self.kept is None else arrow.array(self.kept, arrow.bool_())

        def array(name: str) -> Any:
            if name in _NUMBERS:
                begin = numbers + 8 * rows * _NUMBERS.index(name)
                buffers, kind = [None, buffer.slice(begin, 8 * rows)], arrow.int64()
            else:
                at = 3 * _PARTS.index(name)
                buffers = [buffer.slice(begin) for begin in parts[at : at + 3]]
                kind = arrow.binary()
            whole = arrow.Array.from_buffers(kind, rows, buffers)
            return whole if kept is None else whole.filter(kept)

        return [array(name) for name in names]
