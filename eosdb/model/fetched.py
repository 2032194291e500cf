"""The result of reading a partition: a Block of stored records, the same type for all readers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import compress, repeat
from typing import Any, Final, NamedTuple

from eosdb.model.values import Header, PartitionOffsets
from eosdb.native.cells import Cells


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


class LeaderEpochs(NamedTuple):
    """The leader epochs of a partition (Kafka: LeaderEpochFileCache)."""

    current: int
    end_offset: int
    starts: tuple[tuple[int, int], ...] = ()
    """Each epoch with its first offset; without epoch 0, which begins at 0."""

    def at(self, offset: int) -> int:
        """The epoch of the record at the offset, or of the next record at the end."""
        if offset >= self.end_offset:
            return self.current
        return max((epoch for epoch, start in self.starts if start <= offset), default=0)

    def end_of(self, asked: int) -> tuple[int, int]:
        """The largest epoch up to `asked`, and the offset at which it ended; (-1, -1) for a later epoch
        than the present one (Kafka: endOffsetFor)."""
        if not 0 <= asked <= self.current:
            return -1, -1
        epoch = max((epoch for epoch, _ in self.starts if epoch <= asked), default=asked)
        ended = (start for later, start in self.starts if later > asked)
        return epoch, min(ended, default=self.end_offset)


class Want(Enum):
    """The parts of records that a reader wants."""

    SHOWN = "the data, with the columns that consumers get", True
    DATA = "the data, with all columns, and headers as they are stored", True
    CELLS = "the same, in the accelerator's form if it was used", True
    STORED = "all records, also markers and aborted data, with all columns", False
    BATCHES = "the same as Kafka's record batches, if the accelerator makes them", False

    def __init__(self, what: str, is_data: bool) -> None:
        self.what: Final = what
        self.is_data: Final = is_data


class StoredRows(NamedTuple):
    """Rows as columns, named like those of the table `records`. Columns not requested are empty."""

    timestamp: Sequence[int] = ()
    timestamp_type: Sequence[int] = ()
    key: Sequence[bytes | None] = ()
    value: Sequence[bytes | None] = ()
    headers: Sequence[Any] = ()
    """Decoded; empty if no record has any."""
    # decisions/0058: placed after unindexed columns, the offset is read from the row, not from an index.
    offset: Sequence[int] = ()
    producer_id: Sequence[int] = ()
    producer_epoch: Sequence[int] = ()
    sequence: Sequence[int] = ()
    is_transactional: Sequence[int] = ()
    control: Sequence[str | None] = ()

    def only(self, kept: Sequence[bool]) -> StoredRows:
        """Return the rows whose element in `kept` is true."""
        return StoredRows._make(tuple(compress(column, kept)) for column in self)


# decisions/0083: every way of reading returns a Block.
@dataclass(frozen=True, slots=True)
class Block:
    """The records of a partition from offset `start` to `stop` (exclusive), read in one snapshot."""

    start: int
    stop: int
    """The offset to continue from; compaction may have removed all records before it."""
    rows: StoredRows
    bounds: PartitionOffsets
    aborted: Sequence[AbortedTransaction] = ()
    """The aborted transactions, if `read_committed` has not filtered their records."""
    cells: Cells | None = field(default=None, repr=False, compare=False)
    """The data as the accelerator has read it. With `Want.CELLS` it replaces the rows."""
    batches: bytearray | None = None
    """The accelerator's output for `Want.BATCHES`, in place of rows. Its checksums are 0, and the last
    records may be missing for lack of space."""

    @property
    def size(self) -> int:
        """The number of records; unknown for batches."""
        return len(self.rows.offset) or (0 if self.cells is None else self.cells.size)

    def records(self) -> list[LogRecord]:
        """The records with all columns, as objects."""
        of = self.rows
        columns = (
            of.offset, of.timestamp, of.timestamp_type, of.key, of.value, of.headers or repeat(()),
            of.producer_id, of.producer_epoch, of.sequence, map(bool, of.is_transactional), of.control,
        )  # fmt: skip
        return list(map(LogRecord._make, zip(*columns, strict=False)))

    def columns(self, names: Sequence[str]) -> list[Sequence[Any]]:
        """Return the columns with these names."""
        return [getattr(self.rows, name) for name in names]

    def arrow(self, arrow: Any, names: Sequence[str]) -> list[Any]:
        """Return columns as arrays of the module `arrow`: numbers as int64, others as binary."""
        if self.cells is not None:
            return self.cells.arrays(arrow, names)
        binary = ("key", "value", "headers")
        return [
            arrow.array(column, arrow.binary() if name in binary else arrow.int64())
            for name, column in zip(names, self.columns(names), strict=True)
        ]


@dataclass(frozen=True, slots=True)
class FetchResult:
    """The answer to `fetch`: stored records, including control records and aborted data."""

    records: Sequence[LogRecord]
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: Sequence[AbortedTransaction]
    next_offset: int
