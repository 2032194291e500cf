"""How requests change a transactional id: pure decisions over its frozen metadata.

The rules are those of Kafka's TransactionCoordinator for transaction versions 1 and 2 (KIP-890), with two
differences. Fencing an open transaction and preparing its abort are one step. A fenced producer that
requests a new epoch cannot abort its successor's transaction.

Every function takes the current metadata (None for an unknown transactional id) and returns the metadata
to write; none reads a table or a clock. The decision (Prepare…) and the completion (Complete…) of an end
are separate states, perhaps in separate units.
"""

from __future__ import annotations

from typing import Final

from eosdb import errors
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
from eosdb.model.config import INT32_MAX
from eosdb.model.values import (
    CLASSIC,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    EPOCH_PER_TRANSACTION,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARE_EPOCH_FENCE,
    ProducerIdAndEpoch,
    TopicPartition,
    TransactionState,
)


def check_timeout(timeout_ms: int, max_timeout_ms: int) -> None:
    """Raise InvalidTransactionTimeoutError unless the time-out is from 1 ms to the maximum (Kafka:
    validateTransactionTimeoutMs)."""
    if not 0 < timeout_ms <= max_timeout_ms:
        raise errors.InvalidTransactionTimeoutError(
            f"transaction timeout: got {timeout_ms} ms, expected 1 to {max_timeout_ms} ms "
            "(transaction_max_timeout_ms)"
        )


def expected_or_none(producer_id: int, producer_epoch: int) -> ProducerIdAndEpoch | None:
    """The producer id and epoch that an InitProducerId request expects; None if it names neither
    (KafkaApis.handleInitProducerIdRequest). Raises InvalidRequestError if it names one of them."""
    if (producer_id == NO_PRODUCER_ID) != (producer_epoch == NO_PRODUCER_EPOCH):
        raise errors.InvalidRequestError(
            f"got producer id {producer_id} with epoch {producer_epoch}; "
            "expected the id and epoch of the current producer, or -1 for both"
        )
    if producer_id == NO_PRODUCER_ID:
        return None
    return ProducerIdAndEpoch(producer_id, producer_epoch)


def init_producer_id(
    current: TransactionMetadata | None,
    transactional_id: str,
    timeout_ms: int,
    expected: ProducerIdAndEpoch | None,
    fresh_producer_id: int | None,
    now_ms: int,
) -> TransactionMetadata:
    """Give a producer an id and epoch that no other holds (TransactionCoordinator.handleInitProducerId).

    A request with the replaced pair (producer id and epoch) is a repeat and gets the same result again. A
    new producer id is given again only once. A fencing abort also replaces a pair: the fenced producer
    gets the fencing epoch until another producer initialises the id (KAFKA-19367). An unknown id is
    initialised with any expected pair (KIP-360).

    Returns PrepareAbort if a transaction was open: the caller completes the abort, and the client retries.
    Raises ProducerFencedError for an expected pair that is not current, and changes nothing; Kafka would
    abort an open transaction. Raises ConcurrentTransactionsError while a transaction is ending, and
    FreshProducerIdNeededError.
    """
    assert timeout_ms > 0, timeout_ms
    if current is None:
        return TransactionMetadata(
            transactional_id,
            producer_id=fresh(fresh_producer_id),
            producer_epoch=0,
            last_producer_epoch=NO_PRODUCER_EPOCH,
            previous_producer_id=NO_PRODUCER_ID,
            state=EMPTY,
            timeout_ms=timeout_ms,
            start_time_ms=NO_TIMESTAMP,
            last_update_time_ms=now_ms,
        )
    if expected is not None and not _may_be_known(current, expected):
        raise stale_producer(errors.ProducerFencedError, current, expected)
    if current.state.is_decided:
        raise ending(errors.ConcurrentTransactionsError, current)
    if current.state is ONGOING:
        if expected is not None and expected != current.producer:
            raise stale_producer(errors.ProducerFencedError, current, expected)
        return fence(current, now_ms)
    given, last_epoch = _next_pair(current, expected, fresh_producer_id)
    return transition(
        current,
        state=EMPTY,
        producer_id=given.producer_id,
        producer_epoch=given.producer_epoch,
        last_producer_epoch=last_epoch,
        previous_producer_id=current.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        transaction_version=CLASSIC,
        timeout_ms=timeout_ms,
        start_time_ms=NO_TIMESTAMP,
        last_update_time_ms=now_ms,
    )


def _next_pair(
    current: TransactionMetadata, expected: ProducerIdAndEpoch | None, fresh_producer_id: int | None
) -> tuple[ProducerIdAndEpoch, int]:
    """The next pair while no transaction is open, and the epoch that it replaces (-1 if no repeat can be
    recognised). Raises ProducerFencedError."""
    replaced = ProducerIdAndEpoch(current.previous_producer_id, current.last_producer_epoch)
    # The last epoch only fences, and no client gets it. The client with the epoch before it continues with
    # a new producer id; another client gets that id's next epoch, as in Kafka.
    fenced_at_the_end = current.producer_epoch > LAST_CLIENT_EPOCH and expected == replaced
    if expected is None or expected == current.producer or fenced_at_the_end:
        last_epoch = NO_PRODUCER_EPOCH if expected is None else expected.producer_epoch
        if current.producer_epoch >= LAST_CLIENT_EPOCH:
            skips = current.producer_epoch > LAST_CLIENT_EPOCH and expected is None
            return ProducerIdAndEpoch(fresh(fresh_producer_id), int(skips)), last_epoch
        return ProducerIdAndEpoch(current.producer_id, current.producer_epoch + 1), last_epoch
    if expected == replaced:
        # If the producer id was replaced too, the replaced epoch belonged to the old id.
        rotated = current.previous_producer_id != current.producer_id
        return current.producer, NO_PRODUCER_EPOCH if rotated else current.last_producer_epoch
    raise stale_producer(errors.ProducerFencedError, current, expected)


def add_to_transaction(
    current: TransactionMetadata | None,
    producer_id: int,
    producer_epoch: int,
    partitions: frozenset[TopicPartition],
    groups: frozenset[str],
    now_ms: int,
    *,
    stale: type[errors.ApiError] = errors.ProducerFencedError,
) -> TransactionMetadata | None:
    """The transaction with these partitions and groups (handleAddPartitionsToTransaction). The first
    addition begins it. Returns None if it has all of them already. Raises InvalidProducerIdMappingError,
    ConcurrentTransactionsError while the previous transaction is ending, and the error `stale` for another
    epoch. `stale` is InvalidProducerEpochError if a produce request adds the partition."""
    current = held_by(current, producer_id, producer_epoch, stale)
    if current.state.is_decided:
        raise ending(errors.ConcurrentTransactionsError, current)
    ongoing = current.state is ONGOING
    if ongoing and partitions <= current.partitions and groups <= current.groups:
        return None
    return transition(
        current,
        state=ONGOING,
        partitions=current.partitions | partitions,
        groups=current.groups | groups,
        next_producer_id=NO_PRODUCER_ID,
        transaction_version=CLASSIC,
        start_time_ms=current.start_time_ms if ongoing else now_ms,
        last_update_time_ms=now_ms,
    )


def prolong(
    current: TransactionMetadata | None,
    producer_id: int,
    producer_epoch: int,
    timeout_ms: int,
    now_ms: int,
) -> TransactionMetadata | None:
    """The open transaction with its deadline `timeout_ms` from now, at most 24 days after its start; not
    in Kafka. Returns None if no transaction is open, or more than half of that time is left. Raises
    InvalidProducerIdMappingError and ProducerFencedError."""
    assert timeout_ms > 0, timeout_ms
    current = held_by(current, producer_id, producer_epoch, errors.ProducerFencedError)
    left_ms = current.start_time_ms + current.timeout_ms - now_ms
    if current.state is not ONGOING or left_ms > timeout_ms // 2:
        return None
    longer_ms = min(now_ms - current.start_time_ms + timeout_ms, INT32_MAX)
    if longer_ms <= current.timeout_ms:
        return None
    return transition(current, timeout_ms=longer_ms, last_update_time_ms=now_ms)


def begun_again(current: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """The open transaction with its start time set to now; not in Kafka."""
    return transition(current, start_time_ms=now_ms, last_update_time_ms=now_ms)


def is_timed_out(current: TransactionMetadata, now_ms: int) -> bool:
    """Whether the transaction is open past its deadline (timedOutTransactions)."""
    deadline_ms = current.start_time_ms + current.timeout_ms
    return current.state is ONGOING and deadline_ms < now_ms


def fence(current: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """The open transaction in state PrepareAbort. Its higher epoch fences the producer (Kafka:
    prepareFenceProducerEpoch); the replaced pair is kept, to recognise the producer's requests."""
    fenced = transition(
        current,
        state=PREPARE_EPOCH_FENCE,
        producer_epoch=current.producer_epoch + 1,
        last_producer_epoch=current.producer_epoch,
        previous_producer_id=current.producer_id,
    )
    return transition(fenced, state=PREPARE_ABORT, last_update_time_ms=now_ms)


def verify(
    current: TransactionMetadata | None,
    producer_id: int,
    producer_epoch: int,
    wanted: TopicPartition | str,
) -> None:
    """Check that the open transaction contains the partition or the group id (KIP-890 part 1). The errors
    are those of Kafka's handleVerifyPartitionsInTransaction, as AddPartitionsToTxnManager maps them for
    produce requests: InvalidProducerIdMappingError, InvalidProducerEpochError, InvalidTxnStateError, and
    NotEnoughReplicasError while the transaction is ending."""
    current = held_by(current, producer_id, producer_epoch, errors.InvalidProducerEpochError)
    if current.state.is_decided:
        raise ending(errors.NotEnoughReplicasError, current)
    added = wanted in current.partitions or wanted in current.groups
    if current.state is not ONGOING or not added:
        is_group = isinstance(wanted, str)
        what = f"group {wanted!r}" if is_group else f"partition {wanted}"
        request = "add_offsets_to_txn" if is_group else "add_partitions_to_txn"
        raise errors.InvalidTxnStateError(
            f"{named(current)}: {what} is not in an open transaction, the state is "
            f"{current.state.label}; call {request} first"
        )


def _may_be_known(current: TransactionMetadata, expected: ProducerIdAndEpoch) -> bool:
    """Whether the producer id is current, or the previous one with its last epoch (isValidProducerId)."""
    return expected.producer_id == current.producer_id or (
        expected.producer_id == current.previous_producer_id
        and expected.producer_epoch >= LAST_CLIENT_EPOCH
    )


_ENDS: Final = {
    True: (PREPARE_COMMIT, COMPLETE_COMMIT),
    False: (PREPARE_ABORT, COMPLETE_ABORT),
}
"""By `committed`: the states after the decision and after the completion."""


# decisions/0007: under transaction version 2, ending a transaction also bumps the producer epoch.
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
    """The decided transaction, in a Prepare… state (TransactionCoordinator.endTransaction); None if it
    has already ended this way.

    In version 1 a request is a repeat if the state is the requested one. In version 2 the decision raises
    the epoch, and a request with the previous epoch is a repeat, or the abort of a fenced producer.
    Version 2 accepts an abort without a transaction, because the producer cannot know whether its appends
    have arrived.

    Raises InvalidProducerIdMappingError, ProducerFencedError, ConcurrentTransactionsError while the
    transaction is ending this way, and InvalidTxnStateError if nothing is open or the decision was the
    opposite. Raises FreshProducerIdNeededError if this end uses up the epochs.
    """
    assert version in (CLASSIC, EPOCH_PER_TRANSACTION), version
    prepare, done = _ENDS[committed]
    if current is not None and _repeats_end(current, producer_id, producer_epoch, version):
        if current.state is prepare:
            raise ending(errors.ConcurrentTransactionsError, current)
        if current.state is not done:
            raise errors.InvalidTxnStateError(
                f"{named(current)}: got {'commit' if committed else 'abort'}, but the transaction is in "
                f"state {current.state.label}: its producer ended it the other way, it timed out, or "
                "another producer asked for the id; that outcome stands"
            )
        return None
    current = held_by(current, producer_id, producer_epoch, errors.ProducerFencedError)
    if current.transaction_version == EPOCH_PER_TRANSACTION and current.state.is_decided:
        raise stale_producer(
            errors.ProducerFencedError, current, ProducerIdAndEpoch(producer_id, producer_epoch)
        )
    if current.state is ONGOING:
        return _decided(current, prepare, now_ms, version, fresh_producer_id)
    if current.state is prepare:
        raise ending(errors.ConcurrentTransactionsError, current)
    if version == CLASSIC and current.state is done:
        return None
    if version == EPOCH_PER_TRANSACTION and not committed and current.state.may_expire:
        return _decided(current, prepare, now_ms, version, fresh_producer_id)
    raise _nothing_to_end(current, committed)


def _repeats_end(
    current: TransactionMetadata, producer_id: int, producer_epoch: int, version: int
) -> bool:
    """Whether the last version 2 end, or the last fence, has replaced this pair. A fence with the highest
    epoch cannot be repeated, because no client gets that epoch."""
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
    start = current.start_time_ms if current.state is ONGOING else now_ms
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


def _nothing_to_end(current: TransactionMetadata, committed: bool) -> errors.ApiError:
    _, done = _ENDS[committed]
    if not (current.state.may_expire or current.state.is_decided):
        raise IllegalTransitionError(
            f"{named(current)}: {current.state.label} is never a stored state"
        )
    return errors.InvalidTxnStateError(
        f"{named(current)}: got {'commit' if committed else 'abort'} in state {current.state.label}, "
        f"expected Ongoing or {done.label}; begin a transaction by adding partitions or offsets"
    )


def complete(current: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """The transaction after all its markers (TransactionMetadata.prepareComplete). Keeps the start time
    and clears partitions and groups. If the end used up the epochs, the next producer id takes over with
    epoch 0."""
    _, done = _ENDS[current.state is PREPARE_COMMIT]
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
