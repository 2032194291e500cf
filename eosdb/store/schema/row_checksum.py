"""The checksum of a row, in tables that hold no events or that decide which records readers see.

Records have another checksum, which is cheaper for many rows (`log.checksum`).
"""

from __future__ import annotations

from functools import cache
from zlib import crc32

from eosdb.native import accelerator


def row_checksum(*columns: object) -> int:
    """Return the CRC-32 of a row's columns (without the checksum). NULL counts as the text `None`."""
    module = accelerator.rows()
    if module is not None:
        try:
            of_texts_and_numbers: int = module.row_checksum(*columns)
            return of_texts_and_numbers
        except (TypeError, ValueError, OverflowError):
            pass  # decisions/0060: the code below handles all other values.
    text = _template(len(columns)) % columns
    return crc32(text.encode("utf-8", "surrogatepass"))


def signed(number: int) -> int:
    """Return a sum of checksums modulo 2**64 as a signed integer, which SQLite can store."""
    return (number + 2**63) % 2**64 - 2**63


@cache
def _template(count: int) -> str:
    """Return a format string for `count` columns, which is twice as fast as joining their texts."""
    return "\x1f".join(["%s"] * count)
