"""What an error of a Kafka client says of what it was to store: not written, written or unknown.

A code of the server says it of the request that it answers (`of_answer`). A client repeats requests by
itself, and an error never tells whether an earlier attempt has had an answer. So what a client reports is
"not written" only where no earlier attempt can have been stored (`of_code`).
"""

from __future__ import annotations

from typing import Any, Final

from eosdb import errors
from eosdb.errors import ApiError, Outcome
from eosdb.wire import errors as wire

CODES: Final[dict[int, str]] = {
    kind.code: kind.name
    for module in (errors, wire)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, ApiError)
}
CODES.update(
    (value, name)
    for name, value in vars(wire).items()
    if isinstance(value, int) and name.isupper() and name[0] != "_" and name != "NONE"
)
"""Every code that the server answers, with its name."""

_ANSWERS: Final[dict[int, Outcome]] = {
    wire.NONE: "written",
    wire.UNKNOWN_SERVER_ERROR: "unknown",
    wire.COORDINATOR_NOT_AVAILABLE: "unknown",
    errors.RequestTimedOutError.code: "unknown",
    errors.NetworkExceptionError.code: "unknown",
    errors.DuplicateSequenceNumberError.code: "written",
}

WHATEVER_CAME_BEFORE: Final = frozenset(
    {
        3,  # UNKNOWN_TOPIC_OR_PARTITION: with the topic its records are gone
        10,  # MESSAGE_TOO_LARGE
        17,  # INVALID_TOPIC_EXCEPTION
        18,  # RECORD_LIST_TOO_LARGE, by the client itself
        21,  # INVALID_REQUIRED_ACKS
        29,  # TOPIC_AUTHORIZATION_FAILED: as long as nobody changes the ACLs meanwhile
        32,  # INVALID_TIMESTAMP
        35,  # UNSUPPORTED_VERSION
        42,  # INVALID_REQUEST
        44,  # POLICY_VIOLATION: the file was opened for reading
        53,  # TRANSACTIONAL_ID_AUTHORIZATION_FAILED: as 29
        76,  # UNSUPPORTED_COMPRESSION_TYPE
        87,  # INVALID_RECORD
        100,  # UNKNOWN_TOPIC_ID
    }
)  # fmt: skip
"""The refusals of a Produce that do not come to a repeat of what an earlier attempt has stored."""

TRANSACTION_ABORTABLE: Final = 120


def of_answer(code: int) -> Outcome:
    """The meaning of one answer of the server for the request, or its part, that it answers."""
    return _ANSWERS.get(code, "not written")


def of_code(code: int | None, *, committing: bool = False) -> Outcome:
    """The meaning of a code that a client reports after all of its attempts; `committing` if the call was
    a commit of a transaction."""
    if code in (wire.NONE, errors.DuplicateSequenceNumberError.code):
        return "written"
    refusals = {TRANSACTION_ABORTABLE} if committing else WHATEVER_CAME_BEFORE
    return "not written" if code in refusals else "unknown"


# -- librdkafka -----------------------------------------------------------------------------------

_NEVER_SENT: Final = frozenset(
    {
        -152,  # _PURGE_QUEUE
        -184,  # _QUEUE_FULL
        -186,  # _INVALID_ARG
        -188,  # _UNKNOWN_TOPIC
        -190,  # _UNKNOWN_PARTITION
    }
)
"""Errors of librdkafka's own for a record that it has not sent."""


def of_confluent(error: object, *, committing: bool = False) -> Outcome:
    """For a `KafkaError` of a delivery report, or what a method has raised."""
    from confluent_kafka import KafkaError, KafkaException

    told: Any = error.args[0] if isinstance(error, KafkaException) else error
    if not isinstance(told, KafkaError):
        # BufferError (the queue is full), TypeError, ValueError: raised before anything was taken.
        return (
            "not written" if isinstance(error, BufferError | TypeError | ValueError) else "unknown"
        )
    code = told.code()
    if not committing:
        return "not written" if code in _NEVER_SENT else of_code(code)
    # Only an abort can follow: no commit was asked for, or the coordinator has refused it.
    if told.txn_requires_abort() and code != errors.InvalidProducerIdMappingError.code:
        return "not written"
    return of_code(code, committing=True)


# -- kafka-python and aiokafka --------------------------------------------------------------------

_BEFORE_SENDING: Final = frozenset(
    {
        "IllegalArgumentError",
        "IllegalOperation",
        "KafkaConfigurationError",
        "MessageSizeTooLargeError",
        "TransactionAbortedError",
        "UnsupportedCodecError",
    }
)
"""Errors of these libraries for a record that they have not sent, or not kept."""


def of_kafka_python(error: BaseException, *, committing: bool = False) -> Outcome:
    """For what a future or a method of kafka-python has raised."""
    name = type(error).__name__
    if not committing and (
        name in _BEFORE_SENDING or isinstance(error, TypeError | ValueError | BufferError)
    ):
        return "not written"
    return of_code(getattr(error, "errno", None), committing=committing)


def of_aiokafka(error: BaseException, *, committing: bool = False) -> Outcome:
    """For what a future or a method of aiokafka has raised; a cancelled call is unknown."""
    return of_kafka_python(error, committing=committing)


# -- Java -----------------------------------------------------------------------------------------

_JAVA: Final = {
    "CorruptRecordException": 2,
    "DuplicateSequenceException": errors.DuplicateSequenceNumberError.code,
    "InvalidPidMappingException": errors.InvalidProducerIdMappingError.code,
    "InvalidTopicException": errors.InvalidTopicExceptionError.code,
    "OutOfOrderSequenceException": errors.OutOfOrderSequenceNumberError.code,
    "RecordBatchTooLargeException": 18,
    "RecordTooLargeException": errors.MessageTooLargeError.code,
    "TopicAuthorizationException": errors.TopicAuthorizationFailedError.code,
    "TransactionalIdAuthorizationException": errors.TransactionalIdAuthorizationFailedError.code,
}


def of_java(name: str, *, committing: bool = False) -> Outcome:
    """For the name of an exception of `org.apache.kafka.common.errors`, with or without its package."""
    short = name.rpartition(".")[2]
    if short == "TransactionAbortedException" and not committing:
        return "not written"  # A record of an aborted transaction that was not sent.
    words = "".join(f"_{c}" if c.isupper() else c for c in short.removesuffix("Exception"))
    by_name = {kafkas: code for code, kafkas in CODES.items()}
    code = _JAVA.get(short, by_name.get(words.strip("_").upper()))
    return of_code(code, committing=committing)
