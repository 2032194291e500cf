"""The checksum of a row, for tables whose rows come from no event and tables that decide what a reader
sees.

Records have another checksum, which costs less for many rows at once (`log.checksum`).
"""

from __future__ import annotations

from zlib import crc32


def row_checksum(*columns: object) -> int:
    """Return the CRC-32 of the row's other columns, in their order. NULL counts as the text `None`."""
    return crc32("\x1f".join(map(str, columns)).encode("utf-8", "surrogatepass"))
