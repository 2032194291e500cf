"""No batch may overtake a rejected one (Kafka: VerificationStateEntry).

A partition accepts any first sequence of an unknown producer (KIP-360). If its first batch is rejected,
because the partition is not part of the transaction, the next batch, already in flight, would become the
first of the log. So the lowest rejected sequence is kept in memory, as in Kafka, until the partition knows
the producer, and no batch may begin above it. A batch that could overtake is in flight to this process, so
it is lost if the process ends.
"""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

from eosdb import errors
from eosdb.log import producer_rows
from eosdb.log.batch import PreparedBatch
from eosdb.log.producer_state import nearest_serial
from eosdb.store.writing.unit import Unit

_MOST: Final = 10_000
"""The most producers with stored attempts; the oldest is dropped first."""


class Tried(NamedTuple):
    """The attempts of a producer to append to a partition that does not know it."""

    producer_epoch: int
    lowest_sequence: int


def after_trying(before: Tried | None, producer_epoch: int, base_sequence: int) -> Tried:
    """Return the state after this attempt: a newer epoch resets it, an older one leaves it unchanged."""
    assert base_sequence >= 0, base_sequence
    if before is None or producer_epoch > before.producer_epoch:
        return Tried(producer_epoch, base_sequence)
    is_lower = nearest_serial(base_sequence, before.lowest_sequence) < before.lowest_sequence
    if producer_epoch == before.producer_epoch and is_lower:
        return Tried(producer_epoch, base_sequence)
    return before


def overtakes(tried: Tried | None, base_sequence: int) -> bool:
    """Whether a batch with a lower sequence has failed and awaits its retry."""
    if tried is None:
        return False
    return nearest_serial(base_sequence, tried.lowest_sequence) > tried.lowest_sequence


class Attempts:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tried: dict[tuple[int, int], Tried] = {}

    def note(
        self, partition_id: int, producer_id: int, producer_epoch: int, base_sequence: int
    ) -> None:
        """Note a batch of a producer that the partition does not know, before it is accepted or
        rejected."""
        key = (partition_id, producer_id)
        with self._lock:
            self._tried[key] = after_trying(
                self._tried.pop(key, None), producer_epoch, base_sequence
            )
            if len(self._tried) > _MOST:
                del self._tried[next(iter(self._tried))]

    def lowest(self, partition_id: int, producer_id: int, base_sequence: int) -> int | None:
        """Return the sequence that has to come before this one; None if there is none."""
        tried = self._tried.get((partition_id, producer_id))
        return tried.lowest_sequence if tried and overtakes(tried, base_sequence) else None

    def forget(self, partition_id: int, producer_id: int) -> None:
        """Drop the producer's attempts, because the partition knows it now. If the commit still fails,
        the file refuses the batch and all later ones (decisions/0054)."""
        if self._tried:
            with self._lock:
                self._tried.pop((partition_id, producer_id), None)


def note_attempt(unit: Unit, partition_id: int, batch: PreparedBatch, attempts: Attempts) -> None:
    """Note a batch that is about to join a transaction, in case it is rejected."""
    if producer_rows.load(unit, partition_id, batch.producer_id) is None:
        attempts.note(partition_id, batch.producer_id, batch.producer_epoch, batch.base_sequence)


def check_overtakes_nothing(
    unit: Unit, partition_id: int, batch: PreparedBatch, attempts: Attempts
) -> None:
    """Reject a first batch if a lower sequence was rejected and its retry is due. Raises
    OutOfOrderSequenceNumberError."""
    lowest = attempts.lowest(partition_id, batch.producer_id, batch.base_sequence)
    if lowest is not None and producer_rows.load(unit, partition_id, batch.producer_id) is None:
        raise errors.OutOfOrderSequenceNumberError(
            f"producer {batch.producer_id}, epoch {batch.producer_epoch}: got sequence "
            f"{batch.base_sequence}, expected {lowest}, which was rejected before"
        )
