"""Scheduled records: how a record is stored in its topic until it is due.

The record waits in partition -1, with its due time as its timestamp. An added last header has the partition
that was chosen when it was sent, and the caller's timestamp.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from eosdb.model.config import INT64_MAX
from eosdb.model.values import SCHEDULED, Header, Record

HEADER: Final = "__eosdb.scheduled"
_PLACE: Final = re.compile(rb"(\d{1,9})(?:,(\d{1,19}))?\Z")


def as_waiting(
    headers: Sequence[Header], timestamp: int | None, partition: int, due: int
) -> tuple[tuple[Header, ...], int, int]:
    """Return the headers, timestamp and partition with which a scheduled record is stored."""
    place = f"{partition}" if timestamp is None else f"{partition},{timestamp}"
    return (*headers, (HEADER, place.encode())), due, SCHEDULED


def delivered(
    key: bytes | None, value: bytes | None, headers: Sequence[Header]
) -> tuple[int, Record]:
    """Return the target partition of a waiting record, and the record as it was sent. Without the added
    header, or with another text in it, the target is partition 0: no header may stop the writers."""
    if not headers or headers[-1][0] != HEADER:
        return 0, Record(key, value, headers)
    found = _PLACE.match(headers[-1][1] or b"")
    given = min(int(found[2]), INT64_MAX) if found and found[2] else None
    return int(found[1]) if found else 0, Record(key, value, headers[:-1], given)
