"""A partition's guard against batches that overtake a refused one (Kafka: VerificationStateEntry).

A partition takes any first sequence of a producer that it does not know (KIP-360). So where the first batch
is refused because its partition is not in the transaction, the batch behind it, which may have been on the
same connection already, would become the first of the log once the partition has been added. The lowest
sequence that was tried is remembered until the partition knows the producer, and nothing begins above it.

In memory, as in Kafka: what could overtake is on its way to this process, and does not outlive it.
"""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

from eosdb.log.producer_state import nearest_serial

_MOST: Final = 10_000
"""Producers that are remembered at once; the oldest is forgotten first."""


class Tried(NamedTuple):
    """What an unknown producer has tried so far."""

    producer_epoch: int
    lowest_sequence: int


def after_trying(before: Tried | None, producer_epoch: int, base_sequence: int) -> Tried:
    """What is remembered once this was tried: a newer epoch begins anew, an older one changes nothing."""
    if before is None or producer_epoch > before.producer_epoch:
        return Tried(producer_epoch, base_sequence)
    is_lower = nearest_serial(base_sequence, before.lowest_sequence) < before.lowest_sequence
    if producer_epoch == before.producer_epoch and is_lower:
        return Tried(producer_epoch, base_sequence)
    return before


def overtakes(tried: Tried | None, base_sequence: int) -> bool:
    """Whether something below it was tried, and is still to come."""
    if tried is None:
        return False
    return nearest_serial(base_sequence, tried.lowest_sequence) > tried.lowest_sequence


class Attempts:
    """What was tried, by partition and producer. Threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tried: dict[tuple[int, int], Tried] = {}

    def note(
        self, partition_id: int, producer_id: int, producer_epoch: int, base_sequence: int
    ) -> None:
        """A batch of a producer that the partition does not know, and whether it is taken is not known."""
        key = (partition_id, producer_id)
        with self._lock:
            self._tried[key] = after_trying(
                self._tried.pop(key, None), producer_epoch, base_sequence
            )
            if len(self._tried) > _MOST:
                del self._tried[next(iter(self._tried))]

    def lowest(self, partition_id: int, producer_id: int, base_sequence: int) -> int | None:
        """The sequence that has to come before this one; None if none has."""
        tried = self._tried.get((partition_id, producer_id))
        return tried.lowest_sequence if tried and overtakes(tried, base_sequence) else None

    def forget(self, partition_id: int, producer_id: int) -> None:
        """The partition knows the producer. Should the commit fail yet, the file has refused the batch, and
        nothing behind it is carried out (decisions/0054)."""
        if self._tried:
            with self._lock:
                self._tried.pop((partition_id, producer_id), None)
