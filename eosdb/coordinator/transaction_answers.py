"""What several decisions about a transactional id have in common: whose it is, and how a no is told."""

from __future__ import annotations

from eosdb.coordinator.transactions.state import IllegalTransitionError, TransactionMetadata
from eosdb.errors import ApiError, InvalidProducerIdMappingError
from eosdb.model.values import ProducerIdAndEpoch


def held_by(
    current: TransactionMetadata | None,
    producer_id: int,
    producer_epoch: int,
    stale: type[ApiError],
) -> TransactionMetadata:
    """The metadata, if this is its producer; `stale` is what another epoch is called."""
    if current is None:
        raise InvalidProducerIdMappingError(
            f"producer {producer_id}: the transactional id is unknown, because it was never "
            "initialized or has expired; call init_producer_id first"
        )
    if current.producer_id != producer_id:
        raise InvalidProducerIdMappingError(
            f"{named(current)}: got producer {producer_id}, expected {current.producer_id}; call "
            "init_producer_id again"
        )
    if current.producer_epoch != producer_epoch:
        raise stale_producer(stale, current, ProducerIdAndEpoch(producer_id, producer_epoch))
    return current


def fresh(producer_id: int | None) -> int:
    if producer_id is None:
        raise IllegalTransitionError("a new producer id is needed (see needs_new_producer_id)")
    return producer_id


def stale_producer(
    error: type[ApiError], current: TransactionMetadata, found: ProducerIdAndEpoch
) -> ApiError:
    return error(
        f"{named(current)}: got producer {found.producer_id} with epoch {found.producer_epoch}, "
        f"expected producer {current.producer_id} with epoch {current.producer_epoch}; a newer "
        "producer has taken over, or the transaction timed out: close this one"
    )


def ending(error: type[ApiError], current: TransactionMetadata) -> ApiError:
    return error(
        f"{named(current)}: the transaction is in state {current.state.label}, its end is being "
        "carried out; try again"
    )


def named(current: TransactionMetadata) -> str:
    return f"transactional id {current.transactional_id!r}"
