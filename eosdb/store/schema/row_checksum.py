"""The checksum of a row, for tables without events and for tables that decide which records readers see.

Records have another checksum, which is cheaper for many rows (`log.checksum`).
"""

from __future__ import annotations

from functools import cache
from zlib import crc32

from eosdb.native import accelerator


def row_checksum(*columns: object) -> int:
    """Return the CRC-32 of the row's other columns, in their order. NULL counts as the text `None`."""
    module = accelerator.rows()
    if module is not None:
        try:
            of_texts_and_numbers: int = module.row_checksum(*columns)
            return of_texts_and_numbers
        except (TypeError, ValueError, OverflowError):
            pass  # decisions/0060
    text = _template(len(columns)) % columns
    return crc32(text.encode("utf-8", "surrogatepass"))


def signed(number: int) -> int:
    """Return the number modulo 2**64, as SQLite stores it: for sums of checksums."""
    return (number + 2**63) % 2**64 - 2**63


@cache
def _template(count: int) -> str:
    """The format of a row of `count` columns: to fill it takes half the time of joining their texts."""
    return "\x1f".join(["%s"] * count)
