"""Decides the client's reaction to an error response: repeat, abort, or give up (docs/semantics.md).

Kafka spreads this over TransactionManager's response handlers and Sender.canRetry.
"""

from __future__ import annotations

from typing import Any, Final

from eosdb import errors
from eosdb.model.requests import EndTxn, InitProducerId, Produce, Request

Kind = type[Request[Any]]
"""The type of a request; an error means different things for different types."""
_ALWAYS_FATAL: Final = (
    errors.ProducerFencedError,
    errors.InvalidProducerIdMappingError,
    errors.ClusterAuthorizationFailedError,
    errors.TransactionalIdAuthorizationFailedError,
    errors.UnsupportedVersionError,
)
_MAY_BE_GRANTED: Final = (
    errors.ClusterAuthorizationFailedError,
    errors.TransactionalIdAuthorizationFailedError,
)
_FATAL_TO_COORDINATOR_REQUESTS: Final = (
    *_ALWAYS_FATAL,
    errors.InvalidTxnStateError,
    errors.InvalidTransactionTimeoutError,
)


def is_fatal(error: errors.EosdbError, kind: Kind, *, aborting: bool = False) -> bool:
    """Whether the error is fatal to the producer (Kafka: TransactionManager's handlers). Not fatal:
    missing authorization for the transactional id, since it may be granted later. Fatal: an unknown id,
    whose newer producer may have taken over before it expired (KAFKA-18019); a refused EndTxn, whose
    outcome is unknown; and an abortable error while aborting."""
    if kind is Produce:
        return isinstance(error, _ALWAYS_FATAL)
    if isinstance(error, errors.TransactionAbortableError):
        return aborting and kind is EndTxn
    if kind is InitProducerId:
        return isinstance(error, errors.ApiError) and not isinstance(error, _MAY_BE_GRANTED)
    if kind is EndTxn:
        return isinstance(error, errors.ApiError)
    return isinstance(error, _FATAL_TO_COORDINATOR_REQUESTS)


def is_abortable(error: errors.EosdbError, kind: Kind) -> bool:
    """Whether a non-fatal error allows only an abort. After any other non-fatal error of EndTxn, the
    request may be repeated."""
    return kind is not EndTxn or isinstance(error, errors.TransactionAbortableError)


def as_coordinators(error: errors.EosdbError) -> errors.EosdbError:
    """Translate a stale epoch, which means fenced for every coordinator request (TransactionManager)."""
    if isinstance(error, errors.InvalidProducerEpochError):
        fenced = errors.ProducerFencedError(str(error))
        fenced.__cause__ = error
        return fenced
    return error


def may_be_repeated(error: errors.EosdbError) -> bool:
    """Whether the same request may succeed if it is sent again unchanged. Not for DatabaseLockedError:
    the request has already waited for `lock_timeout_ms`."""
    if not isinstance(error, errors.ApiError):
        return False
    # After TransactionCoordinatorFencedError, a repeat asks the newer coordinator, which knows the outcome.
    return error.retriable or isinstance(error, errors.TransactionCoordinatorFencedError)


def is_lost(error: errors.EosdbError | None) -> bool:
    """Whether no response arrived, in contrast to an error from the broker."""
    return isinstance(error, (errors.NetworkExceptionError, errors.RequestTimedOutError))
