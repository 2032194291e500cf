"""What the accelerator has read of a range (`eosdb_rows`), as Arrow's arrays, which share its memory."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

_NUMBERS: Final = (
    "offset", "timestamp", "timestamp_type", "producer_id", "producer_epoch", "sequence",
)  # fmt: skip
_PARTS: Final = ("key", "value", "headers")
_HEAD: Final = struct.Struct("=12q")
"""The number of rows, the size, where the numbers begin, and for each part where its three buffers begin
(`_rows.c: head`)."""


def arrays(arrow: Any, cells: bytes, names: Sequence[str]) -> list[Any]:
    """Return these columns by the module pyarrow: numbers as int64, all others as binary."""
    buffer = arrow.py_buffer(cells)
    rows, _, numbers, *parts = _HEAD.unpack_from(cells)

    def array(name: str) -> Any:
        if name in _NUMBERS:
            begin = numbers + 8 * rows * _NUMBERS.index(name)
            return arrow.Array.from_buffers(
                arrow.int64(), rows, [None, buffer.slice(begin, 8 * rows)]
            )
        at = 3 * _PARTS.index(name)
        return arrow.Array.from_buffers(
            arrow.binary(), rows, [buffer.slice(begin) for begin in parts[at : at + 3]]
        )

    return [array(name) for name in names]
