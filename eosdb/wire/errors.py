"""Errors as numbers of Kafka's protocol, also for clients whose version knows fewer of them."""

from __future__ import annotations

from typing import Final

from eosdb.errors import (
    ApiError,
    DatabaseLockedError,
    EosdbError,
    GroupIdNotFoundError,
    IllegalGenerationError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OperationNotAttemptedError,
    PolicyViolationError,
    ProducerFencedError,
    ReadOnlyDatabaseError,
    RequestTimedOutError,
    TransactionAbortableError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
)

NONE: Final = 0
UNKNOWN_SERVER_ERROR: Final = -1
UNSUPPORTED_VERSION: Final = UnsupportedVersionError.code
REQUEST_TIMED_OUT: Final = RequestTimedOutError.code
UNSUPPORTED_SASL_MECHANISM: Final = UnsupportedSaslMechanismError.code
ILLEGAL_SASL_STATE: Final = 34
COORDINATOR_NOT_AVAILABLE: Final = 15
ILLEGAL_GENERATION: Final = IllegalGenerationError.code
INVALID_PRODUCER_EPOCH: Final = InvalidProducerEpochError.code
INVALID_TXN_STATE: Final = InvalidTxnStateError.code
OPERATION_NOT_ATTEMPTED: Final = OperationNotAttemptedError.code
KAFKA_STORAGE_ERROR: Final = 56
GROUP_ID_NOT_FOUND: Final = GroupIdNotFoundError.code
FETCH_SESSION_ID_NOT_FOUND: Final = 70
DUPLICATE_RESOURCE: Final = 92
FENCED_LEADER_EPOCH: Final = 74
UNKNOWN_LEADER_EPOCH: Final = 75
POLICY_VIOLATION: Final = PolicyViolationError.code
PRODUCER_FENCED: Final = ProducerFencedError.code
MISMATCHED_ENDPOINT_TYPE: Final = 114
UNSUPPORTED_ENDPOINT_TYPE: Final = 115
TRANSACTION_ABORTABLE: Final = TransactionAbortableError.code


class InvalidReplicationFactorError(ApiError, code=38):
    """There is one copy."""


class InvalidReplicaAssignmentError(ApiError, code=39):
    """There is one broker."""


def code_of(error: EosdbError) -> int:
    """The number for a log request: what is no error of Kafka's is one of the storage, to be retried."""
    if isinstance(error, ApiError):
        return error.code
    if isinstance(error, DatabaseLockedError):
        return REQUEST_TIMED_OUT
    if isinstance(error, ReadOnlyDatabaseError):
        return POLICY_VIOLATION
    return KAFKA_STORAGE_ERROR


def coordinator_code_of(error: EosdbError) -> int:
    """The number for a request to the coordinator: what may pass is tried again."""
    code = code_of(error)
    return COORDINATOR_NOT_AVAILABLE if code in (REQUEST_TIMED_OUT, KAFKA_STORAGE_ERROR) else code


def before_fencing(code: int, version: int, known_from: int) -> int:
    """PRODUCER_FENCED, as a client knows it whose version is from before that error (KIP-588)."""
    return INVALID_PRODUCER_EPOCH if code == PRODUCER_FENCED and version < known_from else code


def not_in_transaction(code: int, version: int, abortable_at: int) -> int:
    """INVALID_TXN_STATE for what is not in the transaction; the last version before transaction version 2
    knows TRANSACTION_ABORTABLE for it (KIP-890)."""
    return TRANSACTION_ABORTABLE if code == INVALID_TXN_STATE and version == abortable_at else code
