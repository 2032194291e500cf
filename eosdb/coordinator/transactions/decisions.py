"""What a request does to a transactional id: pure decisions over its frozen metadata.

The rules are those of Kafka's TransactionCoordinator for transaction versions 1 and 2 (KIP-890), with two
differences. Fencing an open transaction and preparing its abort are one step, so nothing can come in
between; and an outdated producer that asks for a new epoch cannot abort its successor's transaction.
Every function takes the current metadata (None: the transactional id is unknown) and returns what to
write; nothing here reads a table or a clock.
"""

from __future__ import annotations

from dataclasses import dataclass

from eosdb.coordinator.transactions.state import (
    LAST_CLIENT_EPOCH,
    LEGAL_PREVIOUS,
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
    InvalidProducerEpochError,
    InvalidRequestError,
    InvalidTransactionTimeoutError,
    InvalidTxnStateError,
    NotEnoughReplicasError,
    ProducerFencedError,
)
from eosdb.model.config import INT32_MAX
from eosdb.model.values import (
    CLASSIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    ProducerIdAndEpoch,
    TopicPartition,
    TransactionState,
)

__all__ = [
    "LEGAL_PREVIOUS",
    "FenceOngoing",
    "IllegalTransitionError",
    "Initialized",
    "TransactionMetadata",
    "abort_orphan",
    "abort_timed_out",
    "add_to_transaction",
    "check_timeout",
    "expected_or_none",
    "init_producer_id",
    "is_timed_out",
    "needs_new_producer_id",
    "prolong",
    "transition",
    "verify",
]


@dataclass(frozen=True, slots=True)
class Initialized:
    """Write `metadata` and answer with its producer id and epoch."""

    metadata: TransactionMetadata


@dataclass(frozen=True, slots=True)
class FenceOngoing:
    """Write `prepared`, carry out the abort, and answer CONCURRENT_TRANSACTIONS: ask again."""

    prepared: TransactionMetadata


def check_timeout(timeout_ms: int, max_timeout_ms: int) -> None:
    """Whether a transaction may take this long (Kafka: validateTransactionTimeoutMs).

    Raises InvalidTransactionTimeoutError.
    """
    if not 0 < timeout_ms <= max_timeout_ms:
        raise InvalidTransactionTimeoutError(
            f"transaction timeout: got {timeout_ms} ms, expected 1 to {max_timeout_ms} ms "
            "(transaction_max_timeout_ms)"
        )


def expected_or_none(producer_id: int, producer_epoch: int) -> ProducerIdAndEpoch | None:
    """The pair that an init request expects to be current (KafkaApis.handleInitProducerIdRequest).

    Raises InvalidRequestError when only one half of it is given.
    """
    if (producer_id == NO_PRODUCER_ID) != (producer_epoch == NO_PRODUCER_EPOCH):
        raise InvalidRequestError(
            f"got producer id {producer_id} with epoch {producer_epoch}; "
            "expected both of the current producer, or -1 for both"
        )
    if producer_id == NO_PRODUCER_ID:
        return None
    return ProducerIdAndEpoch(producer_id, producer_epoch)


def needs_new_producer_id(current: TransactionMetadata | None) -> bool:
    """Whether `init_producer_id` may hand out a fresh id (Kafka: isProducerEpochExhausted).

    The caller takes one before deciding; it stays unused when the request is refused or a repeat.
    """
    return current is None or (
        current.state.may_expire and current.producer_epoch >= LAST_CLIENT_EPOCH
    )


def init_producer_id(
    current: TransactionMetadata | None,
    transactional_id: str,
    timeout_ms: int,
    expected: ProducerIdAndEpoch | None,
    fresh_producer_id: int | None,
    now_ms: int,
) -> Initialized | FenceOngoing:
    """A producer id and epoch that no other producer holds (TransactionCoordinator.handleInitProducerId).

    A repeat with the pair that was replaced gets the same answer again; when that answer was a new
    producer id, once. An abort that fences replaces a pair, too: until another producer asks, its holder
    gets the fencing epoch (KAFKA-19367). `fresh_producer_id` is needed when `needs_new_producer_id` says
    so. An unknown id starts afresh whatever is expected (KIP-360). Raises ProducerFencedError when the
    expected pair is not the current one (nothing changes, also while a transaction is open, where Kafka
    would abort it), and ConcurrentTransactionsError while a transaction is ending.
    """
    if current is None:
        return Initialized(
            TransactionMetadata(
                transactional_id,
                producer_id=fresh(fresh_producer_id),
                producer_epoch=0,
                last_producer_epoch=NO_PRODUCER_EPOCH,
                previous_producer_id=NO_PRODUCER_ID,
                state=TransactionState.EMPTY,
                timeout_ms=timeout_ms,
                start_time_ms=NO_TIMESTAMP,
                last_update_time_ms=now_ms,
            )
        )
    if expected is not None and not _may_be_known(current, expected):
        raise stale_producer(ProducerFencedError, current, expected)
    if current.state.is_decided:
        raise ending(ConcurrentTransactionsError, current)
    if current.state is TransactionState.ONGOING:
        if expected is not None and expected != current.producer:
            raise stale_producer(ProducerFencedError, current, expected)
        return FenceOngoing(_fence(current, now_ms))
    replaced = ProducerIdAndEpoch(current.previous_producer_id, current.last_producer_epoch)
    # The fencing-only epoch is never handed out: the holder of the one before goes on under a new id.
    fenced_at_the_end = current.producer_epoch > LAST_CLIENT_EPOCH and expected == replaced
    if expected is None or expected == current.producer or fenced_at_the_end:
        last_epoch = NO_PRODUCER_EPOCH if expected is None else expected.producer_epoch
        if current.producer_epoch >= LAST_CLIENT_EPOCH:
            given = ProducerIdAndEpoch(fresh(fresh_producer_id), 0)
        else:
            given = ProducerIdAndEpoch(current.producer_id, current.producer_epoch + 1)
    elif expected == replaced:
        given = current.producer
        # After a rotation, the current id with the old id's epoch was never handed out.
        rotated = current.previous_producer_id != current.producer_id
        last_epoch = NO_PRODUCER_EPOCH if rotated else current.last_producer_epoch
    else:
        raise stale_producer(ProducerFencedError, current, expected)
    return Initialized(
        transition(
            current,
            state=TransactionState.EMPTY,
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
    )


def add_to_transaction(
    current: TransactionMetadata | None,
    producer_id: int,
    producer_epoch: int,
    partitions: frozenset[TopicPartition],
    groups: frozenset[str],
    now_ms: int,
    *,
    stale: type[ApiError] = ProducerFencedError,
) -> TransactionMetadata | None:
    """The transaction with these partitions and groups (handleAddPartitionsToTransaction).

    The first addition starts the transaction. None: it has all of them already, nothing to write. Raises
    InvalidProducerIdMappingError, `stale` for another epoch (what joins implicitly calls it
    INVALID_PRODUCER_EPOCH), and ConcurrentTransactionsError while the previous transaction is ending.
    """
    current = held_by(current, producer_id, producer_epoch, stale)
    if current.state.is_decided:
        raise ending(ConcurrentTransactionsError, current)
    ongoing = current.state is TransactionState.ONGOING
    if ongoing and partitions <= current.partitions and groups <= current.groups:
        return None
    return transition(
        current,
        state=TransactionState.ONGOING,
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
    """The open transaction with a deadline `timeout_ms` from now, 24 days after its start at the latest;
    Kafka has nothing like it.

    None: nothing is open, or more than half of that time is left. Raises InvalidProducerIdMappingError
    and ProducerFencedError.
    """
    current = held_by(current, producer_id, producer_epoch, ProducerFencedError)
    left_ms = current.start_time_ms + current.timeout_ms - now_ms
    if current.state is not TransactionState.ONGOING or left_ms > timeout_ms // 2:
        return None
    longer_ms = min(now_ms - current.start_time_ms + timeout_ms, INT32_MAX)
    if longer_ms <= current.timeout_ms:
        return None
    return transition(current, timeout_ms=longer_ms, last_update_time_ms=now_ms)


def begun_again(current: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """The open transaction as if it had begun now; Kafka has nothing like it."""
    return transition(current, start_time_ms=now_ms, last_update_time_ms=now_ms)


def is_timed_out(current: TransactionMetadata, now_ms: int) -> bool:
    """Whether the transaction is open after its deadline, not just at it (timedOutTransactions)."""
    deadline_ms = current.start_time_ms + current.timeout_ms
    return current.state is TransactionState.ONGOING and deadline_ms < now_ms


def abort_timed_out(current: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """The overdue transaction's PrepareAbort (TransactionCoordinator.abortTimedOutTransactions).

    The epoch is one higher, so whoever held the transaction open is fenced.
    """
    if not is_timed_out(current, now_ms):
        raise IllegalTransitionError(
            f"{named(current)}: {current.state.label} since {current.start_time_ms} with "
            f"{current.timeout_ms} ms is not overdue at {now_ms}"
        )
    return _fence(current, now_ms)


def abort_orphan(current: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """The PrepareAbort of an open transaction whose owner is dead, as after a time-out."""
    return _fence(current, now_ms)


def verify(
    current: TransactionMetadata | None,
    producer_id: int,
    producer_epoch: int,
    *,
    partition: TopicPartition | None = None,
    group: str | None = None,
) -> None:
    """Whether the open transaction contains the partition, or the group (KIP-890 part 1).

    As handleVerifyPartitionsInTransaction decides and AddPartitionsToTxnManager translates for a
    produce request. Raises InvalidProducerIdMappingError, InvalidProducerEpochError,
    NotEnoughReplicasError while the transaction is ending, and InvalidTxnStateError.
    """
    if (partition is None) == (group is None):
        raise TypeError("verify takes either a partition or a group")
    current = held_by(current, producer_id, producer_epoch, InvalidProducerEpochError)
    if current.state.is_decided:
        raise ending(NotEnoughReplicasError, current)
    added = partition in current.partitions or group in current.groups
    if current.state is not TransactionState.ONGOING or not added:
        wanted = f"group {group!r}" if partition is None else f"partition {partition}"
        request = "add_offsets_to_txn" if partition is None else "add_partitions_to_txn"
        raise InvalidTxnStateError(
            f"{named(current)}: {wanted} is not in an open transaction, the state is "
            f"{current.state.label}; call {request} first"
        )


def _fence(current: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """The abort of an open transaction under a higher epoch (prepareFenceProducerEpoch). It remembers the
    replaced pair, so that its holder can learn of it."""
    fenced = transition(
        current,
        state=TransactionState.PREPARE_EPOCH_FENCE,
        producer_epoch=current.producer_epoch + 1,
        last_producer_epoch=current.producer_epoch,
        previous_producer_id=current.producer_id,
    )
    return transition(fenced, state=TransactionState.PREPARE_ABORT, last_update_time_ms=now_ms)


def _may_be_known(current: TransactionMetadata, expected: ProducerIdAndEpoch) -> bool:
    """Whether the id is the current one, or the previous one at its end (isValidProducerId)."""
    return expected.producer_id == current.producer_id or (
        expected.producer_id == current.previous_producer_id
        and expected.producer_epoch >= LAST_CLIENT_EPOCH
    )
