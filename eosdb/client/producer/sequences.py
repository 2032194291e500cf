"""A producer's sequences in one partition: assigned, acknowledged and unresolved.

Kafka: TxnPartitionEntry and the sequence half of TransactionManager. Numbers here are *serials*: they
keep counting where the wire's int32 wraps to 0.
"""

from __future__ import annotations

from typing import Final

from eosdb.client.producer.accumulator import ProducerBatch
from eosdb.model.values import ProducerIdAndEpoch

_KNOWN_FOR_MS: Final = 10_000
"""After a response, the partition is assumed to know the producer for this time; far below any sensible
producer.id.expiration.ms."""


class PartitionProgress:
    """One partition's sequences under one producer id and epoch."""

    __slots__ = (
        "_known_ms",
        "acknowledged",
        "identity",
        "in_doubt",
        "next_serial",
        "unacknowledged",
    )

    def __init__(self) -> None:
        self.identity: ProducerIdAndEpoch | None = None
        self.next_serial = 0
        self.acknowledged = 0
        """The serial after the last acknowledged serial."""
        self.unacknowledged: list[ProducerBatch] = []
        """Batches with a sequence and no definite response, in the order of their sequences."""
        self.in_doubt = False
        """Whether a batch was given up that may be stored."""
        self._known_ms: int | None = None
        """The last response that shows that the partition knows this identity."""

    @property
    def is_unresolved(self) -> bool:
        """Whether some assigned sequences are neither acknowledged nor those of a pending batch."""
        first = self.unacknowledged[0].serial if self.unacknowledged else self.next_serial
        return self.acknowledged < first

    def admits_new(
        self,
        identity: ProducerIdAndEpoch,
        max_in_flight: int,
        now_ms: int,
        *,
        in_order: bool = False,
    ) -> bool:
        """Whether one more batch may get a sequence now. Any number may be in flight if no request can
        overtake another (`in_order`), otherwise at most `max_in_flight`. The first batch must then be
        alone: a partition that does not know the producer accepts any sequence as its first."""
        if not self.unacknowledged:
            return not (self.is_unresolved and self.identity == identity)
        return (
            self.identity == identity
            and not self.is_unresolved
            and (in_order or (self._is_known(now_ms) and len(self.unacknowledged) < max_in_flight))
        )

    def _is_known(self, now_ms: int) -> bool:
        return self._known_ms is not None and now_ms - self._known_ms < _KNOWN_FOR_MS

    def assign(self, batch: ProducerBatch, identity: ProducerIdAndEpoch) -> None:
        if self.identity != identity:
            self.start_over(identity)
        serial, unacknowledged = self.next_serial, self.unacknowledged
        after = serial + len(batch.records)
        # No call from here on: a signal could come between (decisions/0018).
        batch.identity, batch.serial = identity, serial
        self.next_serial = after
        unacknowledged += (batch,)

    def start_over(self, identity: ProducerIdAndEpoch) -> None:
        """Restart at sequence 0 under a new identity."""
        self.identity = identity
        self.next_serial = self.acknowledged = 0
        self.in_doubt = False
        self._known_ms = None

    def take_back(self, batch: ProducerBatch) -> None:
        """Take back the last sequences from a batch that was not sent."""
        self.drop(batch)
        self.next_serial = batch.serial
        batch.identity, batch.serial = None, -1

    def rewrite(self, identity: ProducerIdAndEpoch) -> None:
        """Assign new sequences under a new identity to all unacknowledged batches, in order."""
        batches, self.unacknowledged = self.unacknowledged, []
        self.start_over(identity)
        for batch in batches:
            self.assign(batch, identity)

    def is_first(self, batch: ProducerBatch) -> bool:
        return bool(self.unacknowledged) and self.unacknowledged[0] is batch

    def acknowledge(self, batch: ProducerBatch, now_ms: int) -> None:
        """Mark the batch as stored, and with it all earlier sequences."""
        if batch.identity == self.identity:
            self.acknowledged = max(self.acknowledged, batch.next_serial)
            self._known_ms = now_ms
        self.drop(batch)

    def drop(self, batch: ProducerBatch) -> None:
        if batch in self.unacknowledged:
            self.unacknowledged.remove(batch)

    def restore(self, batch: ProducerBatch) -> None:
        """Return the batch to its place among the unacknowledged ones."""
        if batch not in self.unacknowledged and batch.identity == self.identity:
            self.unacknowledged.append(batch)
            self.unacknowledged.sort(key=lambda waiting: waiting.serial)

    def replace(self, batch: ProducerBatch, parts: tuple[ProducerBatch, ProducerBatch]) -> None:
        """Replace a batch by its two halves."""
        at = self.unacknowledged.index(batch)
        self.unacknowledged[at : at + 1] = parts
