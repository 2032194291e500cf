"""Decides which batches a partition accepts from a producer: pure functions over plain values.

The rules are those of Kafka's ProducerStateManager, ProducerAppendInfo and ProducerStateEntry, with one
addition. A duplicate of a batch older than the five retained ones is recognised as long as its rows are
in the log.

Inside eosdb a sequence is a *serial*: it keeps counting where Kafka's int32 wraps to 0, so that rows from
before and after a wrap are distinct.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from eosdb import errors
from eosdb.model.values import (
    CLASSIC,
    EPOCH_PER_TRANSACTION,
    NO_COORDINATOR_EPOCH,
    NO_OFFSET,
    NO_SEQUENCE,
    NO_TIMESTAMP,
)

RETAINED_BATCHES: Final = 5
"""Batches retained per producer and partition; the reason for at most five in flight."""
SEQUENCE_COUNT: Final = 2**31
"""After sequence 2147483647 comes 0."""


def sequence_of(serial: int) -> int:
    """Return the int32 sequence of a serial; -1 stays -1."""
    return serial if serial < 0 else serial % SEQUENCE_COUNT


def round_of(serial: int) -> int:
    """Return how often the sequence has wrapped before this serial."""
    return 0 if serial < 0 else serial // SEQUENCE_COUNT


def nearest_serial(sequence: int, expected: int) -> int:
    """Return the serial of `sequence` nearest to the next expected one (± 2**30)."""
    assert 0 <= sequence < SEQUENCE_COUNT, sequence
    half = SEQUENCE_COUNT // 2
    return expected + (sequence - expected + half) % SEQUENCE_COUNT - half


class BatchMetadata(NamedTuple):
    """A retained batch."""

    base_serial: int
    last_serial: int
    base_offset: int
    last_offset: int
    timestamp: int


class ProducerStateEntry(NamedTuple):
    """A partition's state of a producer (Kafka: ProducerStateEntry). A named tuple, because every append
    creates one; its order is the table's."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    last_timestamp: int = NO_TIMESTAMP
    last_append_time: int = NO_TIMESTAMP
    current_txn_first_offset: int = NO_OFFSET
    batches: tuple[BatchMetadata, ...] = ()

    @property
    def last_serial(self) -> int:
        return self.batches[-1].last_serial if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def after_append(
        self, epoch: int, batch: BatchMetadata, is_transactional: bool, now_ms: int
    ) -> ProducerStateEntry:
        kept = self.batches if epoch == self.producer_epoch else ()
        if batch.base_serial >= 0:
            kept = (*kept[1 - RETAINED_BATCHES :], batch)
        opens = is_transactional and self.current_txn_first_offset < 0
        first = batch.base_offset if opens else self.current_txn_first_offset
        # `tuple.__new__` takes half as long as the class, and this runs for every batch.
        return tuple.__new__(ProducerStateEntry, (
            self.producer_id, epoch, self.coordinator_epoch, batch.timestamp, now_ms, first, kept,
        ))  # fmt: skip

    def after_marker(self, epoch: int, coordinator_epoch: int, now_ms: int) -> ProducerStateEntry:
        """The entry after a marker; a higher epoch drops the batches."""
        kept = self.batches if epoch == self.producer_epoch else ()
        return tuple.__new__(ProducerStateEntry, (
            self.producer_id, epoch, coordinator_epoch, now_ms, now_ms, NO_OFFSET, kept,
        ))  # fmt: skip


class Incoming(Protocol):
    """A batch to be appended."""

    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def is_transactional(self) -> bool: ...


class Accept(NamedTuple):
    """Store the batch; its first record gets this serial number."""

    base_serial: int


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The batch is already stored at these offsets."""

    base_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class StoredRange:
    """What is stored of a range of serials: the batch that begins at the first serial, with its number of
    records, and whether any serial of the range is stored."""

    batch: Duplicate | None = None
    batch_count: int = 0
    occupied: bool = False


@dataclass(frozen=True, slots=True)
class LookBehind:
    """The retained batches do not decide: look up the rows with these serials, then call `judge_by_rows`.
    `expected` is the next serial; None if the producer is unknown and may begin anywhere."""

    base_serial: int
    expected: int | None = None


def used_before(
    entry: ProducerStateEntry | None, incoming: Incoming
) -> tuple[Duplicate | None, int]:
    """Return the retained batch whose sequence the first batch of a transaction has again, and the next
    serial of that sequence. Clients go back if they abort before an answer (librdkafka, kafkajs)."""
    if entry and incoming.is_transactional and incoming.producer_epoch == entry.producer_epoch:
        base = nearest_serial(incoming.base_sequence, entry.last_serial + 1)
        for batch in entry.batches if entry.current_txn_first_offset < 0 else ():
            if batch.base_serial <= base <= batch.last_serial:
                return Duplicate(batch.base_offset, batch.last_offset), base + SEQUENCE_COUNT
    return None, NO_SEQUENCE


def judge(
    entry: ProducerStateEntry | None,
    incoming: Incoming,
    newest_stored_serial: int = NO_SEQUENCE,
) -> Accept | Duplicate | LookBehind:
    """Decide whether a batch may be appended; `entry` is None for an unknown producer.

    `newest_stored_serial` is the newest serial of this producer and epoch in the log. It matters only for
    a producer that expired and came back. The checks are in Kafka's order: duplicate, epoch, sequence,
    transaction. Raises InvalidProducerEpochError for an older epoch, OutOfOrderSequenceNumberError, and
    InvalidTxnStateError for a non-transactional batch inside an open transaction.
    """
    assert incoming.count > 0, incoming.count
    assert incoming.base_sequence >= 0, incoming.base_sequence
    if entry is None:
        base = nearest_serial(incoming.base_sequence, newest_stored_serial + 1)
        return _start(max(base, incoming.base_sequence), newest_stored_serial)
    if incoming.producer_epoch < entry.producer_epoch:
        raise errors.InvalidProducerEpochError(
            f"producer {entry.producer_id}: got epoch {incoming.producer_epoch}, this partition has "
            f"seen {entry.producer_epoch}; if no newer producer has taken over, call init_producer_id "
            "again"
        )
    if incoming.producer_epoch > entry.producer_epoch:
        if incoming.base_sequence != 0:
            raise _out_of_order(entry, incoming, "0, the first of a new epoch")
        _check_transaction(entry, incoming)
        return _start(0, newest_stored_serial)
    if not entry.batches:
        if incoming.base_sequence != 0:
            raise _out_of_order(entry, incoming, "0, since this epoch has only a marker here")
        _check_transaction(entry, incoming)
        return _start(max(0, nearest_serial(0, newest_stored_serial + 1)), newest_stored_serial)
    expected = entry.last_serial + 1
    base = nearest_serial(incoming.base_sequence, expected)
    last = base + incoming.count - 1
    for batch in entry.batches:
        if batch.base_serial == base and batch.last_serial == last:
            return Duplicate(batch.base_offset, batch.last_offset)
    if base == expected:
        _check_transaction(entry, incoming)
        if base > newest_stored_serial:
            return Accept(base)
    if base < 0:  # Serials begin at 0, so no row has this one.
        raise _out_of_order(entry, incoming, str(sequence_of(expected)))
    return LookBehind(base, expected)


def is_ahead(entry: ProducerStateEntry, incoming: Incoming) -> bool:
    """Whether the batch comes after all batches of the entry, perhaps with others in between."""
    expected = entry.last_serial + 1
    is_later = nearest_serial(incoming.base_sequence, expected) >= expected
    return incoming.producer_epoch > entry.producer_epoch or is_later


def judge_by_rows(
    producer_id: int, incoming: Incoming, question: LookBehind, stored: StoredRange
) -> Accept | Duplicate:
    """Decide with the rows that have the batch's serials. Raises OutOfOrderSequenceNumberError if the
    batch is neither stored nor next. A sequence below all retained batches need not be stored: a
    producer may begin at any sequence (KIP-360), and clients treat DUPLICATE_SEQUENCE_NUMBER as success."""
    assert question.base_serial >= 0, question
    assert stored.occupied or stored.batch is None, stored
    if stored.batch is not None and stored.batch_count == incoming.count:
        return stored.batch
    if stored.occupied:
        raise errors.OutOfOrderSequenceNumberError(
            f"producer {producer_id}: some of the {incoming.count} sequences from "
            f"{incoming.base_sequence} on are stored in other batches; expected a new sequence or an "
            "exact repeat"
        )
    if question.expected is not None and question.base_serial != question.expected:
        raise errors.OutOfOrderSequenceNumberError(
            f"producer {producer_id}, epoch {incoming.producer_epoch}: got sequence "
            f"{incoming.base_sequence}, expected {sequence_of(question.expected)}, or a repeat "
            "of a stored batch"
        )
    return Accept(question.base_serial)


def check_marker(
    entry: ProducerStateEntry | None,
    producer_epoch: int,
    coordinator_epoch: int,
    transaction_version: int = CLASSIC,
) -> None:
    """Check that a marker may be written (ProducerAppendInfo.checkProducerEpoch, then the coordinator
    epoch). A version 2 marker has the epoch after its transaction's epoch. With the epoch of an open
    transaction it comes from an earlier end; without one it is a repeat, and accepted (KIP-1228). Raises
    InvalidProducerEpochError and TransactionCoordinatorFencedError."""
    assert producer_epoch >= 0, producer_epoch
    if entry is None:
        return
    is_open = entry.current_txn_first_offset >= 0
    lowest = entry.producer_epoch + (is_open and transaction_version >= EPOCH_PER_TRANSACTION)
    if producer_epoch < lowest:
        raise errors.InvalidProducerEpochError(
            f"producer {entry.producer_id}: got a marker of transaction version "
            f"{transaction_version} with epoch {producer_epoch}, this partition has seen "
            f"{entry.producer_epoch}, expected at least {lowest}"
        )
    if coordinator_epoch < entry.coordinator_epoch:
        raise errors.TransactionCoordinatorFencedError(
            f"producer {entry.producer_id}: got a marker of coordinator epoch {coordinator_epoch}, "
            f"this partition has seen {entry.coordinator_epoch}; a newer coordinator has taken over"
        )


def _start(base_serial: int, newest_stored_serial: int) -> Accept | LookBehind:
    """Decide on the first batch of a producer without retained batches: rows from before its expiration
    may be left."""
    assert base_serial >= 0, base_serial
    if newest_stored_serial < 0 or base_serial > newest_stored_serial:
        return Accept(base_serial)
    return LookBehind(base_serial)


def _check_transaction(entry: ProducerStateEntry, incoming: Incoming) -> None:
    if entry.current_txn_first_offset >= 0 and not incoming.is_transactional:
        raise errors.InvalidTxnStateError(
            f"producer {entry.producer_id} has a transaction open since offset "
            f"{entry.current_txn_first_offset}; end it before a batch outside of transactions"
        )


def _out_of_order(
    entry: ProducerStateEntry, incoming: Incoming, expected: str
) -> errors.OutOfOrderSequenceNumberError:
    return errors.OutOfOrderSequenceNumberError(
        f"producer {entry.producer_id}, epoch {incoming.producer_epoch}: got sequence "
        f"{incoming.base_sequence}, expected {expected}"
    )
