"""Queries of the page on the documented views: records with their outcome, a page at a time, and the
transactional ids used last."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from eosdb.database import Database
from eosdb.model.damage import parsed, reads
from eosdb.model.values import TopicPartition

PAGE: Final = 50
SEARCHED: Final = 20_000
"""How many offsets one search for records of a fate covers."""
FATES: Final = ("committed", "aborted", "open", "plain", "marker")
_COLUMNS: Final = (
    '"offset", timestamp, timestamp_type, key, value, headers, producer_id, producer_epoch, '
    "sequence, transactional_id, is_transactional, control, status"
)
# The status is expensive to compute, so the window bounds the number of rows.
_RECORDS: Final = (
    f"SELECT {_COLUMNS} FROM all_records WHERE topic = ? AND partition = ? "
    'AND "offset" >= ? AND "offset" < ?'
)
_WHERE: Final = {
    "marker": " AND control IS NOT NULL",
    "plain": " AND NOT is_transactional",
    **{
        fate: f" AND is_transactional AND control IS NULL AND status = '{fate}'"
        for fate in ("committed", "aborted", "open")
    },
}


_TRANSACTIONS: Final = (
    "SELECT transactional_id, producer_id, producer_epoch, state, last_update_time "
    "FROM transactions ORDER BY last_update_time DESC LIMIT ?"
)


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A stored record or marker."""

    offset: int
    timestamp: int
    timestamp_type: str
    key: object
    value: object
    headers: tuple[tuple[str, object], ...]
    producer_id: int
    producer_epoch: int
    sequence: int
    transactional_id: str | None
    control: str | None
    fate: str
    """One of FATES: "plain" is not in a transaction, "marker" ends one."""


@dataclass(frozen=True, slots=True)
class RecordPage:
    """Records in [start, end), newest first; older ones exist if `start` is above the log start."""

    records: tuple[StoredRecord, ...]
    start: int
    end: int


def page(
    db: Database, tp: TopicPartition, first: int, last: int, *, fate: str, newest: bool
) -> RecordPage:
    """Return up to PAGE records with offsets in [first, last): the newest of them, or the oldest.

    Raises TopicAuthorizationFailedError.
    """
    db.broker.fetch(tp, last, max_records=1)  # The view does not check authorization.
    if fate:
        first, last = (
            (max(first, last - SEARCHED), last) if newest else (first, min(last, first + SEARCHED))
        )
    order = "DESC" if newest else "ASC"
    rows = db.query(
        f'{_RECORDS}{_WHERE.get(fate, "")} ORDER BY "offset" {order} LIMIT {PAGE}',
        (*tp, first, last),
    ).rows
    stored = sorted((_record(row) for row in rows), key=lambda record: -record.offset)
    if len(stored) == PAGE:
        first, last = (stored[-1].offset, last) if newest else (first, stored[0].offset + 1)
    return RecordPage(tuple(stored), first, last)


def record_at(db: Database, tp: TopicPartition, offset: int) -> StoredRecord | None:
    """Return the record at this offset, or None. Raises TopicAuthorizationFailedError."""
    stored = page(db, tp, offset, offset + 1, fate="", newest=True).records
    return stored[0] if stored else None


def latest_transactions(db: Database, count: int) -> list[tuple[Any, ...]]:
    """Return transactional id, producer id, epoch, state and time of the last change, latest first."""
    return [tuple(row) for row in db.query(_TRANSACTIONS, (count,)).rows]


@reads("records")
def _record(row: tuple[Any, ...]) -> StoredRecord:
    (offset, timestamp, timestamp_type, key, value, headers, producer_id, epoch, sequence, name,
     is_transactional, control, status) = row  # fmt: skip
    fate = "marker" if control else status if is_transactional else "plain"
    return StoredRecord(
        offset, timestamp, timestamp_type, key, value, tuple(_headers(headers)), producer_id, epoch,
        sequence, name, control, fate,
    )  # fmt: skip


def _headers(stored: object) -> Iterator[tuple[str, object]]:
    for name, value in parsed(str(stored)) if stored else ():
        yield name, None if value is None else base64.b64decode(value)
