"""The metadata of a transactional id, its legal transitions, and the check of a request's producer.

The transitions are those of Kafka's TransactionState and TransactionMetadata. No request can cause an
illegal one: IllegalTransitionError means a bug in eosdb, or a damaged table.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Final, NamedTuple

from eosdb.errors import ApiError, IllegalStateError, InvalidProducerIdMappingError
from eosdb.model.values import (
    CLASSIC,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    EMPTY,
    EPOCH_PER_TRANSACTION,
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

LAST_CLIENT_EPOCH: Final = 2**15 - 2
"""The highest epoch of a client. int16 has one more, which is reserved for fencing."""

_AT_REST: Final = frozenset(state for state in TransactionState if state.may_expire)
LEGAL_PREVIOUS: Final[dict[TransactionState, frozenset[TransactionState]]] = {
    EMPTY: _AT_REST,
    ONGOING: _AT_REST | {ONGOING},
    PREPARE_COMMIT: frozenset({ONGOING}),
    PREPARE_ABORT: frozenset(_AT_REST | {ONGOING, PREPARE_EPOCH_FENCE}),
    COMPLETE_COMMIT: frozenset({PREPARE_COMMIT}),
    COMPLETE_ABORT: frozenset({PREPARE_ABORT}),
    DEAD: _AT_REST,
    PREPARE_EPOCH_FENCE: frozenset({ONGOING}),
}
"""The states that may precede each (Kafka: TransactionState.validPreviousStates). Dead and
PrepareEpochFence are never stored. A version 2 abort without a transaction goes from Empty or Complete…
directly to PrepareAbort."""
assert set(LEGAL_PREVIOUS) == set(TransactionState), "every state says which may precede it"
assert set().union(*LEGAL_PREVIOUS.values()) == set(TransactionState) - {DEAD}, (
    "every state but Dead leads on"
)


class IllegalTransitionError(AssertionError):
    """A transition that no request can cause: a bug in eosdb, or a damaged table."""


class FreshProducerIdNeededError(IllegalStateError):
    """The transactional id is new, or its epochs are used up (Kafka: isProducerEpochExhausted). Nothing was
    written; decide again with an unused producer id."""


class TransactionMetadata(NamedTuple):
    """The state of a transactional id (Kafka: TransactionMetadata). A named tuple, for speed, with the
    fields in the order of the table's columns.

    `groups` are the consumer groups whose offsets are in the transaction; Kafka lists partitions of
    `__consumer_offsets` instead.

    `previous_producer_id` and `last_producer_epoch` are the pair that the last fence, `init_producer_id`
    or version 2 `end_txn` replaced. A request with that pair is a repeat, or comes from the fenced
    producer. `next_producer_id` takes over at the completion if the end has used up the epochs.

    `transaction_version` is the version of the request that ended the transaction; 1 in every other state,
    and after a fence.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    last_producer_epoch: int
    previous_producer_id: int
    state: TransactionState
    timeout_ms: int
    start_time_ms: int
    last_update_time_ms: int
    partitions: frozenset[TopicPartition] = frozenset()
    groups: frozenset[str] = frozenset()
    next_producer_id: int = NO_PRODUCER_ID
    transaction_version: int = CLASSIC

    @property
    def producer(self) -> ProducerIdAndEpoch:
        """The producer id and epoch that requests must have."""
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)


_PRODUCER: Final = attrgetter("producer_id", "producer_epoch")


def transition(current: TransactionMetadata, **changes: Any) -> TransactionMetadata:
    """The metadata with these changes (TransactionMetadata.prepareTransitionTo, completeTransitionTo).
    Raises IllegalTransitionError if the new state may not follow the current one, or the changes do not
    fit it."""
    # `_replace` would take three times as long.
    new = tuple.__new__(TransactionMetadata, map(changes.get, TransactionMetadata._fields, current))
    broken: str | None = "that is not a legal transition"
    if current.state in LEGAL_PREVIOUS[new.state]:
        broken = _broken_rule(current, new)
    if broken is not None:
        raise IllegalTransitionError(
            f"transactional id {current.transactional_id!r}: {current.state.label} to "
            f"{new.state.label}, but {broken}"
        )
    return new


def _broken_rule(old: TransactionMetadata, new: TransactionMetadata) -> str | None:
    """A text about the rule that this transition breaks; None if it breaks none."""
    before, after = _PRODUCER(old), _PRODUCER(new)
    bumped = (old.producer_id, old.producer_epoch + 1)
    if new.state is EMPTY:
        rotated = new.producer_id != old.producer_id and new.producer_epoch in (0, 1)
        if not rotated and after not in (before, bumped):
            return f"producer {after} does not follow {before}"
        if new.producer_epoch > LAST_CLIENT_EPOCH:
            return f"epoch {new.producer_epoch} is for fencing only"
        if new.partitions or new.groups or new.start_time_ms != NO_TIMESTAMP:
            return "a transaction that has not begun has a start, a partition or a group"
        return None
    if new.state.is_decided and old.state.may_expire and new.transaction_version == CLASSIC:
        return "nothing has begun"
    bumps = new.state is PREPARE_EPOCH_FENCE or (
        new.state.is_decided and new.transaction_version == EPOCH_PER_TRANSACTION
    )
    rotates = new.state.may_expire and old.next_producer_id != NO_PRODUCER_ID
    if bumps:
        if after != bumped or new.producer_epoch > LAST_CLIENT_EPOCH + 1:
            return f"producer {after} does not fence {before}"
    elif rotates:
        if after != (old.next_producer_id, 0):
            return f"producer {after} is not the next of {before}"
    elif after != before:
        return f"the producer changed from {before} to {after}"
    if new.timeout_ms != old.timeout_ms:
        # decisions/0034: an open transaction gets more time if its producer's process is alive.
        is_prolonged = new.state is old.state is ONGOING
        if not is_prolonged or new.timeout_ms < old.timeout_ms:
            return "the timeout changed"
    if new.state is ONGOING:
        if new.start_time_ms == NO_TIMESTAMP:
            return "it has no start time"
        if not (old.partitions <= new.partitions and old.groups <= new.groups):
            return "a partition or group left the transaction"
    elif new.start_time_ms != old.start_time_ms and not old.state.may_expire:
        return "the start time changed"
    elif new.state.may_expire:
        if new.partitions or new.groups:
            return "an ended transaction has a partition or a group"
    elif (new.partitions, new.groups) != (old.partitions, old.groups):
        return "the partitions or groups of a decided transaction changed"
    return None


def held_by(
    current: TransactionMetadata | None,
    producer_id: int,
    producer_epoch: int,
    stale: type[ApiError],
) -> TransactionMetadata:
    """The metadata, if the producer id and epoch are current. Raises InvalidProducerIdMappingError, and
    `stale` for another epoch."""
    if current is None:
        raise InvalidProducerIdMappingError(
            f"producer {producer_id}: the transactional id is unknown, because it was never "
            "initialized or has expired; make a new producer (init_producer_id)"
        )
    if current.producer_id != producer_id:
        raise InvalidProducerIdMappingError(
            f"{named(current)}: got producer {producer_id}, expected {current.producer_id}; make "
            "a new producer (init_producer_id)"
        )
    if current.producer_epoch != producer_epoch:
        raise stale_producer(stale, current, ProducerIdAndEpoch(producer_id, producer_epoch))
    return current


def fresh(producer_id: int | None) -> int:
    if producer_id is None:
        raise FreshProducerIdNeededError("a new producer id takes a unit of its own")
    return producer_id


def stale_producer(
    error: type[ApiError], current: TransactionMetadata, producer: ProducerIdAndEpoch
) -> ApiError:
    return error(
        f"{named(current)}: got producer {producer.producer_id} with epoch {producer.producer_epoch}, "
        f"expected producer {current.producer_id} with epoch {current.producer_epoch}; a newer "
        "producer has taken over, or the transaction timed out: close this one"
    )


def ending(error: type[ApiError], current: TransactionMetadata) -> ApiError:
    return error(
        f"{named(current)}: the transaction is ending (state {current.state.label}), its markers are being "
        "written; try again"
    )


def named(current: TransactionMetadata) -> str:
    return f"transactional id {current.transactional_id!r}"
