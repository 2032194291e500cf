"""One producer's batches on one partition: entries, rows, and the decision with both at hand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from eosdb.errors import ApiError
from eosdb.log.producer_state import (
    Accept,
    BatchMetadata,
    Duplicate,
    Incoming,
    LookBehind,
    ProducerStateEntry,
    StoredRange,
    judge,
    judge_by_rows,
)

PRODUCER_ID = 7
EPOCH = 3
TOP = 2**31 - 1
"""The last sequence; after it comes 0."""


@dataclass(frozen=True, slots=True)
class Row:
    """A batch whose records are in the log."""

    base_serial: int
    count: int
    base_offset: int
    epoch: int = EPOCH

    @property
    def last_serial(self) -> int:
        return self.base_serial + self.count - 1

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.count - 1

    def metadata(self) -> BatchMetadata:
        return BatchMetadata(
            self.base_serial, self.last_serial, self.base_offset, self.last_offset, timestamp=0
        )


def entry(rows: Iterable[Row], **changes: Any) -> ProducerStateEntry:
    """What the partition remembers after these batches."""
    batches = tuple(row.metadata() for row in rows)
    return ProducerStateEntry(
        PRODUCER_ID, **{"producer_epoch": EPOCH, "batches": batches, **changes}
    )


@dataclass(frozen=True, slots=True)
class Batch:
    producer_epoch: int
    base_sequence: int
    count: int
    is_transactional: bool


def batch(
    sequence: int, count: int = 1, *, epoch: int = EPOCH, transactional: bool = False
) -> Incoming:
    return Batch(epoch, sequence, count, transactional)


def decide(
    known: ProducerStateEntry | None, incoming: Incoming, rows: Iterable[Row] = ()
) -> Accept | Duplicate:
    """The decision as the log takes it: rows are looked at only where the entry does not decide it."""
    rows = [row for row in rows if row.epoch == incoming.producer_epoch]
    newest = max((row.last_serial for row in rows), default=-1)
    if known is not None and known.producer_epoch == incoming.producer_epoch and known.batches:
        newest = -1
    verdict = judge(known, incoming, newest)
    if isinstance(verdict, LookBehind):
        first, last = verdict.base_serial, verdict.base_serial + incoming.count - 1
        stored = StoredRange()
        for row in rows:
            if row.base_serial == first:
                stored = StoredRange(
                    Duplicate(row.base_offset, row.last_offset), row.count, occupied=True
                )
                break
            if row.base_serial <= last and first <= row.last_serial:
                stored = StoredRange(occupied=True)
        verdict = judge_by_rows(PRODUCER_ID, incoming, verdict, stored)
    return verdict


def answer(known: ProducerStateEntry | None, incoming: Incoming, rows: Iterable[Row] = ()) -> str:
    """The decision in a word or two."""
    try:
        verdict = decide(known, incoming, rows)
    except ApiError as error:
        return error.name
    if isinstance(verdict, Duplicate):
        return f"stored at {verdict.base_offset} to {verdict.last_offset}"
    return f"new at {verdict.base_serial}"
