"""The usual next change of a transactional id: an event omits the fields that have the usual value
(`events.lean`).

An event that begins a transaction always has the producer id and epoch, so SQL finds them in few steps
from a later event. A decision always has the fields that identify a fence, except a version 2 end by the
producer itself.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from eosdb.coordinator.transactions.state import TransactionMetadata
from eosdb.events.encoding import NAMED
from eosdb.events.kinds import TransactionStateChanged
from eosdb.model.values import (
    CLASSIC,
    EPOCH_PER_TRANSACTION,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TopicPartition,
    TransactionState,
)

T = TypeVar("T", str, TopicPartition)
_USUALLY_FROM: Final[dict[TransactionState, TransactionState]] = {
    TransactionState.PREPARE_COMMIT: TransactionState.ONGOING,
    TransactionState.PREPARE_ABORT: TransactionState.ONGOING,
    TransactionState.COMPLETE_COMMIT: TransactionState.PREPARE_COMMIT,
    TransactionState.COMPLETE_ABORT: TransactionState.PREPARE_ABORT,
}


def expected(
    before: TransactionMetadata | None,
    to_state: TransactionState,
    transaction_version: int,
    timestamp: int,
) -> TransactionStateChanged | None:
    """The usual event from this value (None: the id is unknown) to the state; None if no change is usual.
    `transaction_version` matters for decisions only."""
    if to_state is TransactionState.EMPTY:
        return _INITIALIZED
    if before is None:
        return None
    begins = before.state.may_expire
    producer_id: Any = NAMED if begins else before.producer_id
    producer_epoch: Any = NAMED if begins else before.producer_epoch
    last_producer_epoch: Any = before.last_producer_epoch
    previous_producer_id = before.previous_producer_id
    timeout_ms: Any = before.timeout_ms
    start_time_ms: Any = timestamp if begins else before.start_time_ms
    partitions: tuple[TopicPartition, ...] = ()
    groups: tuple[str, ...] = ()
    if not (begins or to_state.is_complete):
        partitions = in_order(before.partitions)
        groups = in_order(before.groups) if before.groups else ()
    usual_version = CLASSIC
    usually_from = _USUALLY_FROM.get(to_state, NAMED)
    if to_state is TransactionState.ONGOING:
        usually_from = TransactionState.COMPLETE_COMMIT if begins else TransactionState.ONGOING
    elif to_state.is_complete:
        usual_version = before.transaction_version
    else:
        usual_version = EPOCH_PER_TRANSACTION
        if transaction_version == CLASSIC:
            producer_epoch = last_producer_epoch = timeout_ms = start_time_ms = NAMED
        else:
            previous_producer_id, last_producer_epoch = before.producer_id, before.producer_epoch
            if not begins:
                producer_epoch += 1
    return TransactionStateChanged(
        timestamp, "", producer_id, producer_epoch, last_producer_epoch, previous_producer_id,
        usually_from, TransactionState.ONGOING, timeout_ms, start_time_ms,
        partitions, groups,
        NO_PRODUCER_ID, usual_version,
    )  # fmt: skip


def in_order(joined: frozenset[T]) -> tuple[T, ...]:
    """Sort the partitions or groups as in events."""
    return tuple(sorted(joined)) if len(joined) > 1 else tuple(joined)


_INITIALIZED: Final = TransactionStateChanged(
    0, "", NAMED, NAMED, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, None, TransactionState.ONGOING, NAMED,
    NO_TIMESTAMP, (), (), NO_PRODUCER_ID, CLASSIC,
)  # fmt: skip
