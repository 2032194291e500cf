"""Errors as numbers of Kafka's protocol, also for clients whose version knows fewer of them.

A refusal by the file has no number: `code_of` raises `RefusedByFileError`, which ends the connection. Every
handler asks it for the number of what it has caught, so no refusal gets past (decisions/0054).
"""

from __future__ import annotations

from typing import Final

from eosdb.errors import (
    ApiError,
    CorruptDatabaseError,
    EosdbError,
    GroupIdNotFoundError,
    IllegalGenerationError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OperationNotAttemptedError,
    PolicyViolationError,
    ProducerFencedError,
    ReadOnlyDatabaseError,
    TransactionAbortableError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
    is_refused_by_file,
)
from eosdb.model.notices.notice import one_line

NONE: Final = 0
UNKNOWN_SERVER_ERROR: Final = -1
UNSUPPORTED_VERSION: Final = UnsupportedVersionError.code
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


class RefusedByFileError(Exception):
    """The file has refused the request: nothing that stands behind it on its connection may be carried out.

    No EosdbError, so that no handler makes an answer of it.
    """


class InvalidReplicationFactorError(ApiError, code=38):
    """There is one copy."""


class InvalidReplicaAssignmentError(ApiError, code=39):
    """There is one broker."""


# decisions/0054: whatever the answer, librdkafka takes what is stored behind the request for the request.
def code_of(error: EosdbError) -> int:
    """The number for a log request: what is no error of Kafka's is one of the storage, to be retried.

    Raises RefusedByFileError for what is not about the log at all.
    """
    if is_refused_by_file(error):
        raise RefusedByFileError(one_line(error)) from error
    if isinstance(error, ApiError):
        return error.code
    if isinstance(error, ReadOnlyDatabaseError):
        return POLICY_VIOLATION
    return KAFKA_STORAGE_ERROR


def reading_code_of(error: EosdbError) -> int:
    """The number for one partition of a reading request: a damaged one leaves the others alone.

    Raises RefusedByFileError.
    """
    return KAFKA_STORAGE_ERROR if isinstance(error, CorruptDatabaseError) else code_of(error)


def coordinator_code_of(error: EosdbError) -> int:
    """The number for a request to the coordinator: what may pass is tried again. Raises
    RefusedByFileError."""
    code = code_of(error)
    return COORDINATOR_NOT_AVAILABLE if code == KAFKA_STORAGE_ERROR else code


def before_fencing(code: int, version: int, known_from: int) -> int:
    """PRODUCER_FENCED, as a client knows it whose version is from before that error (KIP-588)."""
    return INVALID_PRODUCER_EPOCH if code == PRODUCER_FENCED and version < known_from else code


def not_in_transaction(code: int, version: int, abortable_at: int) -> int:
    """INVALID_TXN_STATE for what is not in the transaction; the last version before transaction version 2
    knows TRANSACTION_ABORTABLE for it (KIP-890)."""
    return TRANSACTION_ABORTABLE if code == INVALID_TXN_STATE and version == abortable_at else code
