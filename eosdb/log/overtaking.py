"""Guards a partition against batches that overtake a rejected one (Kafka: VerificationStateEntry).

A partition accepts any first sequence of an unknown producer (KIP-360). Suppose that the first batch is
rejected because its partition is not part of the transaction. The next batch, already in flight, would
then become the first of the log once the partition has been added.

Therefore the lowest rejected sequence is stored until the partition knows the producer, and no batch may
begin above it. As in Kafka this state is in memory: a batch that could overtake is in flight to this
process, and dies with it.
"""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

from eosdb.log.producer_state import nearest_serial

_MOST: Final = 10_000
"""The most producers with stored attempts; the oldest is dropped first."""


class Tried(NamedTuple):
    """The attempts of an unknown producer."""

    producer_epoch: int
    lowest_sequence: int


def after_trying(before: Tried | None, producer_epoch: int, base_sequence: int) -> Tried:
    """Return the state after this attempt: a newer epoch resets it, an older one leaves it unchanged."""
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
        the file refuses the batch and every one behind it (decisions/0054)."""
        if self._tried:
            with self._lock:
                self._tried.pop((partition_id, producer_id), None)
