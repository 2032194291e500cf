"""The values of a relay: records with the fields that a target keeps, chunks, positions, and failures.

Sources and targets translate the errors of their libraries into two classes: InterruptedRelayError begins a
new session, TooLargeError makes dead letters. Any other error needs an operator, and stops the relay.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from eosdb import errors
from eosdb.model.values import Header, TopicPartition

T = TypeVar("T")


class InterruptedRelayError(errors.EosdbError):
    """A temporary failure. A new session learns the outcome of the last transaction, and whether another
    relay has fenced this one or the transaction took too long."""

    outcome: errors.Outcome = "unknown"


class TooLargeError(errors.EosdbError):
    """The target refuses these records because of their size."""

    def __init__(self, message: str, records: Collection[RelayRecord]) -> None:
        super().__init__(message)
        self.records = records


_TRANSIENT: Final = (
    errors.InvalidProducerEpochError,
    errors.ProducerFencedError,
    errors.DatabaseLockedError,
    errors.DatabaseFullError,
    errors.InvalidProducerIdMappingError,
    errors.InvalidTxnStateError,
    errors.OutOfOrderSequenceNumberError,
    errors.TransactionAbortableError,
    errors.TransactionCoordinatorFencedError,
    errors.UnknownProducerIdError,
)
# These error codes are librdkafka's own, not Kafka's.
_LOCAL_AUTHENTICATION: Final = -169
_LOCAL_UNKNOWN_TOPIC: Final = -188
_LOCAL_UNKNOWN_PARTITION: Final = -190
_LOCAL_INVALID_ARG: Final = -186
_LOCAL_UNSUPPORTED_FEATURE: Final = -165
_CLASSES: Final = {error.code: error for error in errors.ApiError.__subclasses__()}


def of_kafka(code: int, text: str, where: str) -> errors.EosdbError:
    """Translate an error of a Kafka client by its code. Negative codes are librdkafka's own."""
    said = f"{where}: {text}"
    if code == _LOCAL_AUTHENTICATION:
        return errors.SaslAuthenticationFailedError(
            f"{said}; see to the SASL settings (--config, EOSDB_KAFKA_…)"
        )
    if code in (
        _LOCAL_UNKNOWN_TOPIC,
        _LOCAL_UNKNOWN_PARTITION,
        errors.UnknownTopicOrPartitionError.code,
    ):
        return InterruptedRelayError(said)
    if code in (_LOCAL_INVALID_ARG, _LOCAL_UNSUPPORTED_FEATURE):
        return errors.ConfigError(said)
    kind = _CLASSES.get(code)
    if kind is None or _is_transient(error := kind(said)):
        return InterruptedRelayError(said)
    return error


def _is_transient(error: errors.EosdbError) -> bool:
    if isinstance(error, errors.CorruptRecordError):
        return False  # A file has no replica to ask, so a retry cannot help.
    return isinstance(error, _TRANSIENT) or (isinstance(error, errors.ApiError) and error.retriable)


def translating(where: str, call: Callable[[], T]) -> T:
    """Call a function and return its result; translate the errors of eosdb that it raises."""
    try:
        return call()
    except errors.EosdbError as error:
        if _is_transient(error):
            raise InterruptedRelayError(f"{where}: {error}") from error
        raise


class RelayRecord(NamedTuple):
    """A committed record of the source. `offset` is its offset there; `timestamp` is in ms since the epoch,
    None if it is unknown."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]

    @property
    def size(self) -> int:
        """The bytes of key and value."""
        return len(self.key or b"") + len(self.value or b"")


class RelayPosition(NamedTuple):
    """A partition's position: the next offset of the source, the id of its topic, and the id of the
    target's topic that has the records before it (empty if unknown)."""

    offset: int
    topic_id: str
    target_id: str = ""


class Bounds(NamedTuple):
    """The offsets of a source partition that can be read now: from its start up to an end."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """A topic of the source. `config` has the settings of the topic itself."""

    name: str
    topic_id: str
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Chunk:
    """The content of one transaction of the target: records in the order of their partitions, and the next
    positions, which also skip markers, aborted records and gaps."""

    records: Sequence[RelayRecord] = ()
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RelayLimits:
    """The limits of a chunk. A single record may be larger."""

    records: int = 5_000
    bytes: int = 8_388_608


class RelayRecords(NamedTuple):
    """A record as it is sent to the target; `origin` is the source's record, None for a position."""

    topic: str
    partition: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    origin: RelayRecord | None = None


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """Facts about a topic of the target."""

    partitions: int
    log_append_time: bool = False
    max_message_bytes: int | None = None
    """The topic's max.message.bytes; None if unknown."""
    topic_id: str = ""
    """The topic's id; empty if unknown."""
