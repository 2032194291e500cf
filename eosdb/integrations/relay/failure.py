"""Classifies failures of a relay: start a new session, put a record aside, or stop.

A source and a target translate the errors of their own libraries. Any error other than the two classes
here needs an operator, and stops the relay.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, TypeVar

from eosdb.errors import (
    ApiError,
    ConfigError,
    CorruptRecordError,
    DatabaseFullError,
    DatabaseLockedError,
    EosdbError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    Outcome,
    OutOfOrderSequenceNumberError,
    ProducerFencedError,
    SaslAuthenticationFailedError,
    TransactionAbortableError,
    TransactionCoordinatorFencedError,
    UnknownProducerIdError,
    UnknownTopicOrPartitionError,
)
from eosdb.integrations.relay.values import RelayRecord

T = TypeVar("T")


class InterruptedRelayError(EosdbError):
    """A failure that may pass. A new session learns the outcome of the last transaction, and whether
    another relay has fenced this one or the transaction took too long."""

    outcome: Outcome = "unknown"


class TooLargeError(EosdbError):
    """The target refuses these records because of their size."""

    def __init__(self, message: str, records: Collection[RelayRecord]) -> None:
        super().__init__(message)
        self.records = records


_TRANSIENT: Final = (
    InvalidProducerEpochError,
    ProducerFencedError,
    DatabaseLockedError,
    DatabaseFullError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    OutOfOrderSequenceNumberError,
    TransactionAbortableError,
    TransactionCoordinatorFencedError,
    UnknownProducerIdError,
)
# librdkafka's own codes, for errors outside of Kafka's protocol.
_LOCAL_AUTHENTICATION: Final = -169
_LOCAL_UNKNOWN_TOPIC: Final = -188
_LOCAL_UNKNOWN_PARTITION: Final = -190
_LOCAL_INVALID_ARG: Final = -186
_LOCAL_UNSUPPORTED_FEATURE: Final = -165
_CLASSES: Final = {error.code: error for error in ApiError.__subclasses__()}


def of_file(error: EosdbError, where: str) -> EosdbError:
    return InterruptedRelayError(f"{where}: {error}") if _is_transient(error) else error


def of_kafka(code: int, text: str, where: str) -> EosdbError:
    """Translate an error of a Kafka client, by its code; negative codes are librdkafka's own."""
    said = f"{where}: {text}"
    if code == _LOCAL_AUTHENTICATION:
        return SaslAuthenticationFailedError(
            f"{said}; see to the SASL settings (--config, EOSDB_KAFKA_…)"
        )
    if code in (_LOCAL_UNKNOWN_TOPIC, _LOCAL_UNKNOWN_PARTITION, UnknownTopicOrPartitionError.code):
        return InterruptedRelayError(said)
    if code in (_LOCAL_INVALID_ARG, _LOCAL_UNSUPPORTED_FEATURE):
        return ConfigError(said)
    kind = _CLASSES.get(code)
    if kind is None or _is_transient(error := kind(said)):
        return InterruptedRelayError(said)
    return error


def _is_transient(error: EosdbError) -> bool:
    if isinstance(error, CorruptRecordError):
        return False  # Kafka's clients may ask another replica; a file has none.
    return isinstance(error, _TRANSIENT) or (isinstance(error, ApiError) and error.retriable)


def translating(where: str, call: Callable[[], T]) -> T:
    """Call a function and return its result; translate the errors of eosdb that it raises."""
    try:
        return call()
    except EosdbError as error:
        meaning = of_file(error, where)
        if meaning is error:
            raise
        raise meaning from error
