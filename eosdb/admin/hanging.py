"""Decides which open transactions hang, by pure functions over the state of partition and coordinator.

Kafka's tool queries brokers and coordinator one after the other and therefore trusts only old
transactions. Here both states are in one snapshot of one file, so a mismatch is proof, however young the
transaction is.
"""

from __future__ import annotations

from typing import NamedTuple

from eosdb.coordinator.transactions.decisions import TransactionMetadata
from eosdb.model.reports import HangingReason, OpenTransaction
from eosdb.model.values import TopicPartition, TransactionState


class Open(NamedTuple):
    """A producer's open transaction, as the partition stores it."""

    tp: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp: int
    began_ms: int


def judge(
    found: Open, known: TransactionMetadata | None, current_epoch: int, now_ms: int
) -> HangingReason | None:
    """Return why the transaction hangs; None if it will end."""
    if known is None or known.producer_id != found.producer_id:
        return HangingReason.UNKNOWN
    if known.state.is_decided:
        if found.tp not in known.partitions:
            return HangingReason.NOT_ITS_PARTITION
        refused = found.coordinator_epoch > current_epoch
        return HangingReason.REFUSED if refused else None
    if known.state is not TransactionState.ONGOING:
        return HangingReason.COMPLETED
    if known.producer_epoch != found.producer_epoch:
        return HangingReason.ANOTHER_EPOCH
    if found.tp not in known.partitions:
        return HangingReason.NOT_ITS_PARTITION
    overdue = known.start_time_ms + known.timeout_ms < now_ms
    return HangingReason.OVERDUE if overdue else None


def report(
    found: Open, known: TransactionMetadata | None, current_epoch: int, now_ms: int
) -> OpenTransaction:
    """Combine the states of partition and coordinator into one report."""
    reason = judge(found, known, current_epoch, now_ms)
    ends_itself = known is not None and reason in (None, HangingReason.OVERDUE)
    ongoing = known is not None and known.state is TransactionState.ONGOING
    return OpenTransaction(
        topic=found.tp.topic,
        partition=found.tp.partition,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        coordinator_epoch=found.coordinator_epoch,
        start_offset=found.start_offset,
        last_timestamp=found.last_timestamp,
        transactional_id=None if known is None else known.transactional_id,
        state=None if known is None else known.state.label,
        start_time_ms=known.start_time_ms if known is not None and ends_itself else found.began_ms,
        deadline_ms=(
            known.start_time_ms + known.timeout_ms
            if known is not None and ends_itself and ongoing
            else -1
        ),
        hanging=reason,
    )
