"""Decides which open transactions hang, by pure functions over the state of partition and coordinator.

Kafka's tool queries brokers and coordinator one after the other and therefore trusts only old
transactions. Here both states are in one snapshot of one file, so a mismatch is proof, however young the
transaction is.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from eosdb.coordinator.transactions.decisions import is_timed_out
from eosdb.coordinator.transactions.state import TransactionMetadata
from eosdb.model.reports import HangingReason, OpenTransaction
from eosdb.model.values import TopicPartition, TransactionState

DUE: Final = frozenset((HangingReason.OVERDUE, HangingReason.OWNER_DIED))
"""Why the next write aborts a transaction."""


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
    opened: Open,
    metadata: TransactionMetadata | None,
    current_epoch: int,
    now_ms: int,
    *,
    is_orphan: bool = False,
) -> HangingReason | None:
    """Return why the transaction hangs; None if it will end."""
    if metadata is None or metadata.producer_id != opened.producer_id:
        return HangingReason.UNKNOWN
    if metadata.state.is_decided:
        if opened.tp not in metadata.partitions:
            return HangingReason.NOT_ITS_PARTITION
        refused = opened.coordinator_epoch > current_epoch
        return HangingReason.REFUSED if refused else None
    if metadata.state is not TransactionState.ONGOING:
        return HangingReason.COMPLETED
    if metadata.producer_epoch != opened.producer_epoch:
        return HangingReason.ANOTHER_EPOCH
    if opened.tp not in metadata.partitions:
        return HangingReason.NOT_ITS_PARTITION
    if is_timed_out(metadata, now_ms):
        return HangingReason.OVERDUE
    return HangingReason.OWNER_DIED if is_orphan else None


def report(
    opened: Open,
    metadata: TransactionMetadata | None,
    current_epoch: int,
    now_ms: int,
    *,
    is_orphan: bool = False,
) -> OpenTransaction:
    """Combine the states of partition and coordinator into one report."""
    reason = judge(opened, metadata, current_epoch, now_ms, is_orphan=is_orphan)
    ends_itself = metadata is not None and (reason is None or reason in DUE)
    ongoing = metadata is not None and metadata.state is TransactionState.ONGOING
    return OpenTransaction(
        topic=opened.tp.topic,
        partition=opened.tp.partition,
        producer_id=opened.producer_id,
        producer_epoch=opened.producer_epoch,
        coordinator_epoch=opened.coordinator_epoch,
        start_offset=opened.start_offset,
        last_timestamp=opened.last_timestamp,
        transactional_id=None if metadata is None else metadata.transactional_id,
        state=None if metadata is None else metadata.state.label,
        start_time_ms=metadata.start_time_ms
        if metadata is not None and ends_itself
        else opened.began_ms,
        deadline_ms=(
            metadata.start_time_ms + metadata.timeout_ms
            if metadata is not None and ends_itself and ongoing
            else -1
        ),
        hanging=reason,
    )
