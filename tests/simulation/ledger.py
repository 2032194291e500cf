"""The ledger of all sent records and their responses, which the checker compares with the log.

A value contains its origin, `producer|transaction|number`, so the checker identifies it without the engine.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from eosdb.model.values import ConsumerGroupMetadata, TopicPartition, TransactionToken


@dataclass(slots=True)
class TransactionRecord:
    """A transaction from its producer's point of view."""

    key: str
    token: TransactionToken
    group: str | None = None
    sent: dict[bytes, TopicPartition] = field(default_factory=dict)
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    answer: str = ""
    """`committed`, `aborted` or `never started` once the producer has that response."""


@dataclass(slots=True)
class Ledger:
    """All sent records, and all responses that promised something to their senders."""

    acknowledged: dict[bytes, tuple[TopicPartition, int]] = field(default_factory=dict)
    """Acknowledged records outside of transactions, and the places in their responses."""
    fresh_acknowledgements: list[bytes] = field(default_factory=list)
    transactions: dict[str, TransactionRecord] = field(default_factory=dict)
    fresh_answers: list[str] = field(default_factory=list)
    issued: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The highest issued epoch of each producer id, and its journal position."""
    retired: dict[int, int] = field(default_factory=dict)
    """The replaced producer ids, each with the journal position of its replacement."""
    holders: dict[str, int] = field(default_factory=dict)
    believed: dict[tuple[str, int], set[TopicPartition]] = field(default_factory=dict)
    """By member and its generation or epoch: all partitions that it ever owned in it. Their offsets may
    still be in flight."""
    beliefs: int = 0

    def acknowledge(self, value: bytes, tp: TopicPartition, offset: int) -> None:
        self.acknowledged[value] = (tp, offset)
        self.fresh_acknowledgements.append(value)

    def begin(self, key: str, token: TransactionToken) -> TransactionRecord:
        self.transactions[key] = record = TransactionRecord(key, token)
        return record

    def answered(self, record: TransactionRecord, answer: str) -> None:
        record.answer = answer
        self.fresh_answers.append(record.key)

    def believe(self, me: ConsumerGroupMetadata, owned: Collection[TopicPartition]) -> None:
        """Note the partitions that a member owns."""
        known = self.believed.setdefault((me.member_id, me.generation_id), set())
        self.beliefs += len(set(owned) - known)
        known.update(owned)

    def issue(
        self, transactional_id: str | None, producer_id: int, producer_epoch: int, position: int
    ) -> None:
        """Note an issued producer id and epoch, which fence lower epochs from now on."""
        if producer_epoch > self.issued.get(producer_id, (-1, 0))[0]:
            self.issued[producer_id] = (producer_epoch, position)
        if transactional_id is not None:
            before = self.holders.get(transactional_id)
            if before is not None and before != producer_id:
                self.retired[before] = position
            self.holders[transactional_id] = producer_id


def transaction_of(value: bytes) -> str | None:
    """The key of the value's transaction; None outside of transactions."""
    producer, transaction, _ = value.decode().rsplit("|", 2)
    return f"{producer}|{transaction}" if transaction != "-" else None
