"""Results of a fetch: stored records with all their fields, by record and by column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from eosdb.model.values import Header


class LogRecord(NamedTuple):
    """A record as it is stored; `control` is None, "COMMIT" or "ABORT"."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    producer_id: int
    producer_epoch: int
    sequence: int
    is_transactional: bool
    control: str | None


class AbortedTransaction(NamedTuple):
    """An entry of the transaction index (Kafka: AbortedTxn)."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class RecordFields:
    """The fields of records that every reader gets, column by column."""

    offsets: Sequence[int]
    timestamps: Sequence[int]
    timestamp_types: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[tuple[Header, ...]]
    """Empty if no record has headers."""


@dataclass(frozen=True, slots=True)
class FetchedColumns(RecordFields):
    """Stored records from an offset on, column by column, including control records and aborted data."""

    producer_ids: Sequence[int]
    producer_epochs: Sequence[int]
    sequences: Sequence[int]
    are_transactional: Sequence[int]
    controls: Sequence[str | None]
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: Sequence[AbortedTransaction]
    next_offset: int
    batches: bytearray | None = None
    """The same records as Kafka's record batches, if the accelerator has read them; the columns are then
    empty. Their checksums are 0, and the last ones may be missing for want of space."""


@dataclass(frozen=True, slots=True)
class FetchResult:
    """Stored records from an offset on, including control records and aborted data."""

    records: Sequence[LogRecord]
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: Sequence[AbortedTransaction]
    next_offset: int


@dataclass(frozen=True, slots=True)
class FetchedData(RecordFields):
    """The stored records that a reader gets from an offset on, column by column: no control records and,
    under read_committed, no aborted data."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    next_offset: int
    cells: bytes | None = field(default=None, repr=False, compare=False)
    """The same records as the accelerator has read them (`eosdb.native.cells`), if it has."""
