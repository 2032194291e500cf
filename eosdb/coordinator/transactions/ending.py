"""How a transaction ends: pure decisions over the frozen metadata of its transactional id.

The decision (Prepare…) and the completion (Complete…) are separate states, perhaps in separate units. The
rules are those of Kafka's TransactionCoordinator.endTransaction and of KIP-890.
"""

from __future__ import annotations

from typing import Final

from eosdb.coordinator.transactions.state import (
    LAST_CLIENT_EPOCH,
    IllegalTransitionError,
    TransactionMetadata,
    ending,
    fresh,
    held_by,
    named,
    stale_producer,
    transition,
)
from eosdb.errors import (
    ApiError,
    ConcurrentTransactionsError,
    InvalidTxnStateError,
    ProducerFencedError,
)
from eosdb.model.values import (
    CLASSIC,
    EPOCH_PER_TRANSACTION,
    NO_PRODUCER_ID,
    ProducerIdAndEpoch,
    TransactionState,
)

_ENDS: Final = {
    True: (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT),
    False: (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT),
}
"""By `committed`: the states after the decision and after the completion."""


# decisions/0007: under version 2 the end of a transaction raises the epoch.
def end_needs_new_producer_id(current: TransactionMetadata | None, version: int) -> bool:
    """Whether `end` may use up the last epoch and need a fresh producer id for the next transaction."""
    return (
        version == EPOCH_PER_TRANSACTION
        and current is not None
        and not current.state.is_decided
        and current.producer_epoch >= LAST_CLIENT_EPOCH
    )


def end(
    current: TransactionMetadata | None,
    producer_id: int,
    producer_epoch: int,
    committed: bool,
    now_ms: int,
    *,
    version: int = CLASSIC,
    fresh_producer_id: int | None = None,
) -> TransactionMetadata | None:
    """The transaction as decided, Prepare… (TransactionCoordinator.endTransaction); None if it has
    already ended this way.

    In version 1 the state shows a repeated request, whichever version ended the transaction. In version 2
    the decision raises the epoch, and the epoch before shows a repeat, or the abort of a fenced producer.
    Version 2 accepts an abort without a transaction, because the producer cannot know whether its appends
    have arrived.

    Raises InvalidProducerIdMappingError, ProducerFencedError, ConcurrentTransactionsError while the
    transaction is ending this way, and InvalidTxnStateError if nothing is open or the decision was the
    opposite.
    """
    prepare, done = _ENDS[committed]
    if current is not None and _repeats_end(current, producer_id, producer_epoch, version):
        if current.state is prepare:
            raise ending(ConcurrentTransactionsError, current)
        if current.state is not done:
            raise _decided_otherwise(current, committed)
        return None
    current = held_by(current, producer_id, producer_epoch, ProducerFencedError)
    if current.transaction_version == EPOCH_PER_TRANSACTION and current.state.is_decided:
        raise stale_producer(
            ProducerFencedError, current, ProducerIdAndEpoch(producer_id, producer_epoch)
        )
    if current.state is TransactionState.ONGOING:
        return _decided(current, prepare, now_ms, version, fresh_producer_id)
    if current.state is prepare:
        raise ending(ConcurrentTransactionsError, current)
    if version == CLASSIC and current.state is done:
        return None
    if version == EPOCH_PER_TRANSACTION and not committed and current.state.may_expire:
        return _decided(current, prepare, now_ms, version, fresh_producer_id)
    raise _nothing_to_end(current, committed)


def _repeats_end(
    current: TransactionMetadata, producer_id: int, producer_epoch: int, version: int
) -> bool:
    """Whether the last version 2 end, or fence, has replaced this pair. A fence with the highest epoch
    cannot be repeated, since no client gets that epoch."""
    replaced = (current.previous_producer_id, current.last_producer_epoch)
    if version != EPOCH_PER_TRANSACTION or (producer_id, producer_epoch) != replaced:
        return False
    if current.transaction_version == EPOCH_PER_TRANSACTION:
        return True
    return current.state in _ENDS[False] and current.producer_epoch <= LAST_CLIENT_EPOCH


def _decided(
    current: TransactionMetadata,
    prepare: TransactionState,
    now_ms: int,
    version: int,
    fresh_producer_id: int | None,
) -> TransactionMetadata:
    start = current.start_time_ms if current.state is TransactionState.ONGOING else now_ms
    if version == CLASSIC:
        return transition(current, state=prepare, start_time_ms=start, last_update_time_ms=now_ms)
    used_up = current.producer_epoch >= LAST_CLIENT_EPOCH
    return transition(
        current,
        state=prepare,
        producer_epoch=current.producer_epoch + 1,
        last_producer_epoch=current.producer_epoch,
        previous_producer_id=current.producer_id,
        next_producer_id=fresh(fresh_producer_id) if used_up else NO_PRODUCER_ID,
        transaction_version=version,
        start_time_ms=start,
        last_update_time_ms=now_ms,
    )


def _decided_otherwise(current: TransactionMetadata, committed: bool) -> ApiError:
    return InvalidTxnStateError(
        f"{named(current)}: got {'commit' if committed else 'abort'}, but the transaction is in state "
        f"{current.state.label}: its producer ended it the other way, it timed out, or another producer "
        "asked for the id; that outcome stands"
    )


def _nothing_to_end(current: TransactionMetadata, committed: bool) -> ApiError:
    _, done = _ENDS[committed]
    if not (current.state.may_expire or current.state.is_decided):
        raise IllegalTransitionError(
            f"{named(current)}: {current.state.label} is never a stored state"
        )
    return InvalidTxnStateError(
        f"{named(current)}: got {'commit' if committed else 'abort'} in state {current.state.label}, "
        f"expected Ongoing or {done.label}; begin a transaction by adding partitions or offsets"
    )


def complete(current: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """The transaction after all its markers (TransactionMetadata.prepareComplete). Keeps the start time
    and clears partitions and groups. If the end used up the epochs, the next producer id takes over with
    epoch 0."""
    _, done = _ENDS[current.state is TransactionState.PREPARE_COMMIT]
    rotates = current.next_producer_id != NO_PRODUCER_ID
    return transition(
        current,
        state=done,
        producer_id=current.next_producer_id if rotates else current.producer_id,
        producer_epoch=0 if rotates else current.producer_epoch,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
        groups=frozenset(),
        last_update_time_ms=now_ms,
    )
