"""Error codes of Kafka's protocol, adapted to clients whose version knows fewer of them.

A refusal by the file (locked, full, failing) has no error code: `code_of` raises `RefusedByFileError`,
which ends the connection. Every handler gets its error codes from `code_of`, so clients never receive such
a refusal as a response (decisions/0054).
"""

from __future__ import annotations

from typing import Final

from eosdb import errors
from eosdb.model.notices.notice import one_line
from eosdb.model.words import shortened

NONE: Final = 0
UNKNOWN_SERVER_ERROR: Final = -1
UNSUPPORTED_VERSION: Final = errors.UnsupportedVersionError.code
ILLEGAL_SASL_STATE: Final = 34
COORDINATOR_NOT_AVAILABLE: Final = 15
NOT_LEADER_OR_FOLLOWER: Final = 6
KAFKA_STORAGE_ERROR: Final = 56
LOG_DIR_NOT_FOUND: Final = 57
FETCH_SESSION_ID_NOT_FOUND: Final = 70
DUPLICATE_RESOURCE: Final = 92
FENCED_LEADER_EPOCH: Final = 74
UNKNOWN_LEADER_EPOCH: Final = 75
MISMATCHED_ENDPOINT_TYPE: Final = 114
UNSUPPORTED_ENDPOINT_TYPE: Final = 115
REBOOTSTRAP_REQUIRED: Final = 129
BEFORE_FENCING: Final = {errors.ProducerFencedError.code: errors.InvalidProducerEpochError.code}
"""Error codes for clients that do not know PRODUCER_FENCED (KIP-588)."""
NOT_IN_TRANSACTION: Final = {
    errors.InvalidTxnStateError.code: errors.TransactionAbortableError.code
}
"""Error codes for a partition that is not in the transaction, in the last version before transaction
version 2 (KIP-890)."""
BEFORE_TOPIC_IDS: Final = {
    errors.GroupIdNotFoundError.code: errors.IllegalGenerationError.code,
    errors.StaleMemberEpochError.code: errors.IllegalGenerationError.code,
}
"""Error codes for transactional offsets, in the versions without topic ids (KIP-1319)."""
_LONGEST_MESSAGE: Final = 2_000
"""The most characters of an error text. A string of the protocol has at most 32,767 bytes; the text may
quote such strings."""


class RefusedByFileError(Exception):
    """Raised if the file has refused a request: no later request of the connection may be carried out. Not
    an EosdbError, so that no handler turns it into a response."""


class InvalidReplicationFactorError(errors.ApiError, code=38):
    """Raised because there is one replica."""


class InvalidReplicaAssignmentError(errors.ApiError, code=39):
    """Raised because there is one broker."""


class ElectionNotNeededError(errors.ApiError, code=84):
    """Raised because the one broker leads every partition."""


class NoReassignmentInProgressError(errors.ApiError, code=85):
    """Raised because partitions cannot move: there is one broker."""


class InvalidUpdateVersionError(errors.ApiError, code=95):
    """Raised because the level of a feature depends on how the file was opened."""


# decisions/0054: after a refused request, librdkafka would mistake later records for the refused ones.
def code_of(error: errors.EosdbError) -> int:
    """The error code for a request to the log; errors that Kafka does not have become
    KAFKA_STORAGE_ERROR, which clients retry. Raises RefusedByFileError if the file refused the request."""
    if errors.is_refused_by_file(error):
        raise RefusedByFileError(one_line(error)) from error
    if isinstance(error, errors.ApiError):
        return error.code
    if isinstance(error, errors.ReadOnlyDatabaseError):
        return errors.PolicyViolationError.code
    return KAFKA_STORAGE_ERROR


def message_of(error: errors.EosdbError) -> str:
    """The error text of a response, cut to a length that fits: it quotes values of the request."""
    return shortened(str(error), _LONGEST_MESSAGE)


def reading_code_of(error: errors.EosdbError) -> int:
    """The error code for one partition of a read request. A damaged partition leaves the others readable.
    Raises RefusedByFileError."""
    return KAFKA_STORAGE_ERROR if isinstance(error, errors.CorruptDatabaseError) else code_of(error)


def coordinator_code_of(error: errors.EosdbError) -> int:
    """The error code for a request to the coordinator, retriable if the error may pass or the outcome is
    unknown. Raises RefusedByFileError."""
    code = code_of(error)
    is_kafkas = isinstance(error, errors.ApiError)
    if error.outcome == "unknown" or (code == KAFKA_STORAGE_ERROR and not is_kafkas):
        return COORDINATOR_NOT_AVAILABLE
    return code
