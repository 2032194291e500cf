"""Every error that eosdb raises, with Kafka's names and numbers for Kafka's errors.

`ApiError` has one subclass for each Kafka error in use. Its wire name follows from the class name
(`OutOfOrderSequenceNumberError` is `OUT_OF_ORDER_SEQUENCE_NUMBER`; exceptions are given by name), and its
number is Kafka's (`org.apache.kafka.common.protocol.Errors`). Conditions without a Kafka number derive from
`EosdbError` directly. No exception of sqlite3 or SQLAlchemy ever reaches a caller.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar, Final, Literal, TypeVar

Outcome = Literal["not written", "written", "unknown"]

__all__ = [
    "ApiError", "BatchDiffersError", "ClusterAuthorizationFailedError",
    "ConcurrentTransactionsError", "ConfigError", "CoordinatorLoadInProgressError",
    "CorruptDatabaseError", "CorruptRecordError", "DatabaseClosedError", "DatabaseFullError",
    "DatabaseLockedError", "DatabaseNotFoundError", "DuplicateSequenceNumberError", "EosdbError",
    "FencedInstanceIdError", "FencedMemberEpochError", "GroupAuthorizationFailedError",
    "GroupIdNotFoundError", "GroupMaxSizeReachedError", "GroupSubscribedToTopicError",
    "HandlerFailedError", "IllegalGenerationError", "IllegalStateError",
    "InconsistentGroupProtocolError", "InvalidConfigError", "InvalidGroupIdError",
    "InvalidPartitionsError", "InvalidProducerEpochError", "InvalidProducerIdMappingError",
    "InvalidRecordError", "InvalidRegularExpressionError", "InvalidRequestError",
    "InvalidRequiredAcksError", "InvalidSessionTimeoutError", "InvalidTimestampError",
    "InvalidTopicExceptionError", "InvalidTransactionTimeoutError", "InvalidTxnStateError",
    "ListenError", "MemberIdRequiredError", "MessageTooLargeError", "NetworkExceptionError",
    "NonEmptyGroupError", "NotAnEosdbFileError", "NotEnoughReplicasError",
    "OffsetMetadataTooLargeError", "OffsetOutOfRangeError", "OperationNotAttemptedError",
    "OutOfOrderSequenceNumberError", "PolicyViolationError", "ProducerFencedError",
    "ProducerIdsExhaustedError", "ReadOnlyDatabaseError", "RebalanceInProgressError",
    "RequestTimedOutError", "ResourceNotFoundError", "SaslAuthenticationFailedError",
    "SchemaOutOfDateError", "SchemaTooNewError", "StaleMemberEpochError", "StorageError",
    "TopicAlreadyExistsError", "TopicAuthorizationFailedError", "TransactionAbortableError",
    "TransactionCoordinatorFencedError", "TransactionalIdAuthorizationFailedError",
    "TransactionalIdNotFoundError", "UnacceptableCredentialError", "UnknownMemberIdError",
    "UnknownProducerIdError", "UnknownTopicIdError", "UnknownTopicOrPartitionError",
    "UnreleasedInstanceIdError", "UnstableOffsetCommitError", "UnsupportedAssignorError",
    "UnsupportedSaslMechanismError", "UnsupportedVersionError", "WakeupError",
]  # fmt: skip


class EosdbError(Exception):
    """The base class of all errors of eosdb.

    `outcome` is the outcome of the write that raised the error: "not written", "written", or "unknown"
    (docs/errors.md has the table).
    """

    outcome: Outcome = "not written"


class ApiError(EosdbError):
    """An error with an error code of Kafka's protocol."""

    code: ClassVar[int] = -1
    name: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    retriable: ClassVar[bool] = False
    records: Sequence[int] = ()
    """The indexes in the batch of the records at fault; empty if the error is not about single records."""

    def __init_subclass__(cls, *, code: int, retriable: bool = False, name: str = "") -> None:
        super().__init_subclass__()
        words = re.findall(r"[A-Z][a-z0-9]*", cls.__name__.removesuffix("Error"))
        cls.name = name or "_".join(words).upper()
        cls.code = code
        cls.retriable = retriable


class OffsetOutOfRangeError(ApiError, code=1):
    """The offset is below the log start or above the log end."""


class CorruptRecordError(ApiError, code=2, retriable=True, name="CORRUPT_MESSAGE"):
    """A record is missing or does not match its checksum. Retrying does not help."""


class UnknownTopicOrPartitionError(ApiError, code=3, retriable=True):
    """There is no such topic, or it has no such partition."""


class RequestTimedOutError(ApiError, code=7, retriable=True):
    """No response arrived in time; the request may or may not have been carried out."""

    outcome: Outcome = "unknown"


class MessageTooLargeError(ApiError, code=10):
    """The batch is larger than the topic's max.message.bytes."""


class OffsetMetadataTooLargeError(ApiError, code=12):
    """The metadata string of an offset commit is longer than offset.metadata.max.bytes."""


class NetworkExceptionError(ApiError, code=13, retriable=True):
    """The connection broke; the request may or may not have been carried out."""

    outcome: Outcome = "unknown"


class CoordinatorLoadInProgressError(ApiError, code=14, retriable=True):
    """The coordinator is not ready yet."""


class InvalidTopicExceptionError(ApiError, code=17):
    """The topic name is not one Kafka allows."""


class NotEnoughReplicasError(ApiError, code=19, retriable=True):
    """The transaction could not be verified at the moment."""


class InvalidRequiredAcksError(ApiError, code=21):
    """acks is not -1 (all), 0 or 1."""


class IllegalGenerationError(ApiError, code=22):
    """The member's generation is not the group's current generation."""


class InconsistentGroupProtocolError(ApiError, code=23):
    """The member supports none of the group's protocols."""


class InvalidGroupIdError(ApiError, code=24):
    """The group id is empty or not text."""


class UnknownMemberIdError(ApiError, code=25):
    """The group has no such member."""


class InvalidSessionTimeoutError(ApiError, code=26):
    """The session timeout is outside the range the broker allows."""


class RebalanceInProgressError(ApiError, code=27):
    """The group is rebalancing; join again."""


class TopicAuthorizationFailedError(ApiError, code=29):
    """The principal is not authorized for this operation on the topic."""


class GroupAuthorizationFailedError(ApiError, code=30):
    """The principal is not authorized for this operation on the group."""


class ClusterAuthorizationFailedError(ApiError, code=31):
    """The principal is not authorized for this operation on the cluster."""


class InvalidTimestampError(ApiError, code=32):
    """A record's timestamp is outside the accepted range."""


class TopicAlreadyExistsError(ApiError, code=36):
    """A topic of this name exists."""


class UnsupportedVersionError(ApiError, code=35):
    """The request has a version of the protocol that this database does not serve."""


class InvalidPartitionsError(ApiError, code=37):
    """The number of partitions is invalid."""


class InvalidConfigError(ApiError, code=40):
    """A topic or broker setting has an unknown name or a bad value."""


class InvalidRequestError(ApiError, code=42):
    """The request is invalid."""


class PolicyViolationError(ApiError, code=44):
    """The topic's policy forbids this (such as delete_records on a compacted topic)."""


class OutOfOrderSequenceNumberError(ApiError, code=45):
    """The batch is neither the next of its producer nor a repeat of a stored batch."""


class DuplicateSequenceNumberError(ApiError, code=46):
    """The batch is stored already. A producer treats it as success; eosdb itself never returns it."""

    outcome: Outcome = "written"


class InvalidProducerEpochError(ApiError, code=47):
    """A partition has seen a newer epoch of this producer."""


class InvalidTxnStateError(ApiError, code=48):
    """The transaction is not in a state that allows this."""


class InvalidProducerIdMappingError(ApiError, code=49):
    """The transactional id is unknown or belongs to another producer id."""


class InvalidTransactionTimeoutError(ApiError, code=50):
    """The transaction timeout is not between 1 and transaction.max.timeout.ms."""


class ConcurrentTransactionsError(ApiError, code=51, retriable=True):
    """The previous transaction of this id is not completed yet."""


class TransactionCoordinatorFencedError(ApiError, code=52):
    """A newer coordinator has taken over."""


class UnsupportedSaslMechanismError(ApiError, code=33):
    """The server does not know this SASL mechanism."""


class TransactionalIdAuthorizationFailedError(ApiError, code=53):
    """The principal is not authorized to use the transactional id."""


class OperationNotAttemptedError(ApiError, code=55):
    """Another part of the request failed, so this part was not attempted."""


class SaslAuthenticationFailedError(ApiError, code=58):
    """There is no such user, or the password is wrong."""


class UnknownProducerIdError(ApiError, code=59):
    """The broker has no state of the producer (older brokers only)."""


class NonEmptyGroupError(ApiError, code=68):
    """The group has members."""


class GroupIdNotFoundError(ApiError, code=69):
    """There is no such group."""


class MemberIdRequiredError(ApiError, code=79):
    """Join again with the member id of this response."""

    def __init__(self, message: str, member_id: str = "") -> None:
        super().__init__(message)
        self.member_id: Final = member_id


class UnsupportedCompressionTypeError(ApiError, code=76):
    """The codec is unknown, or newer than the version of the request."""


class GroupMaxSizeReachedError(ApiError, code=81):
    """The group has as many members as group.consumer.max.size allows."""


class FencedInstanceIdError(ApiError, code=82):
    """Another member has taken over this static member's group instance id."""


class GroupSubscribedToTopicError(ApiError, code=86):
    """The group is subscribed to the topic."""


class InvalidRecordError(ApiError, code=87):
    """A record or batch is malformed."""


class UnstableOffsetCommitError(ApiError, code=88, retriable=True):
    """A requested offset is pending in a transaction that has not ended."""


class ProducerFencedError(ApiError, code=90):
    """A newer producer has taken over the transactional id."""


class ResourceNotFoundError(ApiError, code=91):
    """The resource to change or describe does not exist."""


class UnacceptableCredentialError(ApiError, code=93):
    """The user's name or password cannot be stored as given."""


class UnknownTopicIdError(ApiError, code=100, retriable=True):
    """There is no topic of this id."""


class TransactionalIdNotFoundError(ApiError, code=105):
    """There is no such transactional id."""


class FencedMemberEpochError(ApiError, code=110):
    """The member's epoch is not the coordinator's; give up all partitions and join again."""


class UnreleasedInstanceIdError(ApiError, code=111):
    """Another member still has the group instance id."""


class UnsupportedAssignorError(ApiError, code=112):
    """There is no such server-side assignor."""


class StaleMemberEpochError(ApiError, code=113):
    """The member epoch of an offset commit or offset fetch is not the current one; retry with the epoch
    from the next heartbeat."""


class TransactionAbortableError(ApiError, code=120):
    """The transaction must be aborted; the producer may continue afterwards."""


class InvalidRegularExpressionError(ApiError, code=128):
    """The regular expression of a subscription cannot be used."""


class ConfigError(EosdbError):
    """A client setting is unknown, out of range, or contradicts another."""


class IllegalStateError(EosdbError):
    """The call is not allowed in the state the object is in."""


class BatchDiffersError(EosdbError):
    """A sink has repeated the number of an earlier batch with different content.

    `newest` is the number of the sink's newest batch; `held` describes the content of its batch with this
    number, if that is known.
    """

    def __init__(self, message: str, newest: int = -1, held: frozenset[str] = frozenset()) -> None:
        super().__init__(message)
        self.newest = newest
        self.held = held


class DatabaseNotFoundError(EosdbError):
    """There is no file at the path, and create=False."""


class DatabaseClosedError(EosdbError):
    """The database has been closed."""


class DatabaseLockedError(EosdbError):
    """Another writer held the write lock for longer than `lock_timeout_ms`; the text names the writer.
    Nothing was written."""


class DatabaseFullError(EosdbError):
    """The disk is full. Nothing was written; repeat the call when there is space."""


class WakeupError(EosdbError):
    """Raised by a waiting `poll` after `Consumer.wakeup`."""


class HandlerFailedError(EosdbError):
    """A processor's handler has failed for a record on every allowed attempt."""


class StorageError(EosdbError):
    """The operating system failed to read or write the file."""


class ListenError(EosdbError):
    """A server cannot listen at the address: it is in use, or not an address of this machine."""


class CorruptDatabaseError(EosdbError):
    """The file is damaged."""


class SchemaOutOfDateError(EosdbError):
    """The file has an older schema, and migrate=False or read_only=True; or one from before 1.0."""


class SchemaTooNewError(EosdbError):
    """The file was written by a newer eosdb."""


class NotAnEosdbFileError(EosdbError):
    """The file is not a SQLite database, or belongs to another application."""


class ReadOnlyDatabaseError(EosdbError):
    """The database was opened with read_only=True, or the file may not be written."""


class ProducerIdsExhaustedError(EosdbError):
    """All 2**63 producer ids have been used."""


E = TypeVar("E", bound=EosdbError)


def in_doubt(error: E) -> E:
    """Mark the error of a write that may or may not be stored, and return it."""
    error.outcome = "unknown"
    return error


def in_part(error: E, stored: str) -> E:
    """Say in the error of a call that makes several writes what is stored all the same, and return it."""
    error.args = (f"{stored}. The next write failed: {of_one_write(error)}",)
    return error


def of_what_was_not_sent(error: E) -> E:
    """Return the error of records that are not stored, because `error` had ended their transaction."""
    found = error.__class__.__new__(error.__class__)
    found.__dict__.update(error.__dict__, outcome="not written")
    found.args = (f"not stored, because the transaction had failed: {error}",)
    found.__cause__ = error
    return found


def of_one_write(error: BaseException) -> str:
    """The error's text for a reader who does not know which writes came before the failed one."""
    return str(error).replace("nothing was written", "this write is undone")


def inherit_doubt(error: BaseException | None, earlier: EosdbError | None) -> None:
    """Note in the error of a repeated write that an earlier attempt may be stored."""
    if isinstance(error, EosdbError) and earlier is not None and earlier.outcome == "unknown":
        in_doubt(error)


_OF_THE_FILE: Final = (
    CorruptDatabaseError, DatabaseClosedError, DatabaseFullError, DatabaseLockedError, StorageError,
)  # fmt: skip


def is_refused_by_file(error: BaseException | None) -> bool:
    """Whether the file, its disk or the machine is at fault, so that the error says nothing about the log.

    The same request may succeed a moment later. Requests sent behind it must not be carried out before it:
    a partition accepts any first sequence of a producer that it does not know (decisions/0054).
    """
    if isinstance(error, ReadOnlyDatabaseError):
        # Without a cause the file was opened with read_only=True, and will refuse every write.
        return error.__cause__ is not None
    return isinstance(error, (*_OF_THE_FILE, MemoryError))
