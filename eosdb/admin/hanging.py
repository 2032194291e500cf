"""Decides which open transactions hang, by pure functions over the state of partition and coordinator.

Kafka's tool queries brokers and coordinator one after the other, so it trusts only old transactions. Here
both states come from one snapshot of one file, so a difference proves that even a young transaction hangs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from eosdb.coordinator.transactions.decisions import is_timed_out
from eosdb.coordinator.transactions.state import TransactionMetadata
from eosdb.model.reports import HangingReason, OpenTransaction
from eosdb.model.values import TransactionState

DUE: Final = frozenset((HangingReason.OVERDUE, HangingReason.OWNER_DIED))
"""The reasons for which the next write aborts a transaction."""


def judge(
    opened: OpenTransaction,
    metadata: TransactionMetadata | None,
    current_epoch: int,
    now_ms: int,
    *,
    is_orphan: bool = False,
) -> HangingReason | None:
    """Return why the transaction hangs; None if it will end. `opened` is its state in the partition,
    `metadata` its state at the coordinator."""
    if metadata is None or metadata.producer_id != opened.producer_id:
        return HangingReason.UNKNOWN
    is_its_partition = opened.topic_partition in metadata.partitions
    if metadata.state.is_decided:
        if not is_its_partition:
            return HangingReason.NOT_ITS_PARTITION
        refused = opened.coordinator_epoch > current_epoch
        return HangingReason.REFUSED if refused else None
    if metadata.state is not TransactionState.ONGOING:
        return HangingReason.COMPLETED
    if metadata.producer_epoch != opened.producer_epoch:
        return HangingReason.ANOTHER_EPOCH
    if not is_its_partition:
        return HangingReason.NOT_ITS_PARTITION
    if is_timed_out(metadata, now_ms):
        return HangingReason.OVERDUE
    return HangingReason.OWNER_DIED if is_orphan else None


def judged(
    opened: OpenTransaction, metadata: TransactionMetadata | None, reason: HangingReason | None
) -> OpenTransaction:
    """Add the coordinator's state, and the judgement, to the partition's."""
    if metadata is None:
        return replace(opened, hanging=reason)
    known = replace(
        opened,
        transactional_id=metadata.transactional_id,
        state=metadata.state.label,
        hanging=reason,
    )
    if reason is not None and reason not in DUE:
        return known
    start_ms, is_ongoing = metadata.start_time_ms, metadata.state is TransactionState.ONGOING
    deadline_ms = start_ms + metadata.timeout_ms if is_ongoing else -1
    return replace(known, start_time_ms=start_ms, deadline_ms=deadline_ms)
