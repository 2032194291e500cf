"""What an answer means to a client: repeat, abort, or give up (the table in docs/semantics.md).

Kafka spreads this over TransactionManager's response handlers and Sender.canRetry.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from eosdb.errors import (
    ApiError,
    ClusterAuthorizationFailedError,
    DatabaseLockedError,
    EosdbError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTransactionTimeoutError,
    InvalidTxnStateError,
    NetworkExceptionError,
    ProducerFencedError,
    RequestTimedOutError,
    TransactionAbortableError,
    TransactionalIdAuthorizationFailedError,
    TransactionCoordinatorFencedError,
    UnsupportedVersionError,
)


class RequestKind(Enum):
    """What a request was for; an error means different things to different requests."""

    INIT = "init_producer_id"
    ADD_PARTITIONS = "add_partitions_to_txn"
    ADD_OFFSETS = "add_offsets_to_txn"
    OFFSET_COMMIT = "txn_offset_commit"
    END = "end_txn"
    PRODUCE = "produce"


_ALWAYS_FATAL: Final = (
    ProducerFencedError,
    ClusterAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
    UnsupportedVersionError,
)
_MAY_BE_GRANTED: Final = (
    ClusterAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
)
_FATAL_TO_COORDINATOR_REQUESTS: Final = (
    *_ALWAYS_FATAL,
    InvalidTxnStateError,
    InvalidTransactionTimeoutError,
)


def is_fatal(error: EosdbError, kind: RequestKind, *, aborting: bool = False) -> bool:
    """Whether the producer cannot go on after this answer (Kafka: TransactionManager's handlers).

    A producer that is not authorized for the id, or for any identity, may ask again once it is. A
    transactional id that the coordinator no longer knows can be taken again. After a refused end the
    outcome is unknown, and an abort that must itself be aborted leads nowhere.
    """
    if kind is RequestKind.PRODUCE:
        return isinstance(error, _ALWAYS_FATAL)
    if isinstance(error, TransactionAbortableError):
        return aborting and kind is RequestKind.END
    if kind is RequestKind.INIT:
        return isinstance(error, ApiError) and not isinstance(error, _MAY_BE_GRANTED)
    if isinstance(error, InvalidProducerIdMappingError):
        return False
    if kind is RequestKind.END:
        return isinstance(error, ApiError)
    return isinstance(error, _FATAL_TO_COORDINATOR_REQUESTS)


def is_abortable(error: EosdbError, kind: RequestKind) -> bool:
    """Whether a non-fatal answer leaves nothing but an abort; after any other refusal of an end, the end
    may be repeated."""
    if kind is RequestKind.END:
        return isinstance(error, (TransactionAbortableError, InvalidProducerIdMappingError))
    return True


def as_coordinators(error: EosdbError) -> EosdbError:
    """A stale epoch means the same from every coordinator request: fenced (TransactionManager)."""
    if isinstance(error, InvalidProducerEpochError):
        fenced = ProducerFencedError(str(error))
        fenced.__cause__ = error
        return fenced
    return error


def may_be_repeated(error: EosdbError) -> bool:
    """Whether the same request may succeed when it is repeated as it is."""
    if isinstance(error, ApiError):
        # The newer coordinator finishes what was decided, and its answer is the definite one.
        return error.retriable or isinstance(error, TransactionCoordinatorFencedError)
    return isinstance(error, DatabaseLockedError)


def is_lost(error: EosdbError | None) -> bool:
    """Whether the error says that there is no answer, rather than what the answer is."""
    return isinstance(error, (NetworkExceptionError, RequestTimedOutError))
