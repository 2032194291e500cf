"""Kafka's errors by name and number, also those that eosdb itself never sends: those of kafka-python, with
Kafka's names (`org.apache.kafka.common.protocol.Errors`), and those of Kafka 4.4."""

from __future__ import annotations

from typing import Any, Final

from kafka import errors as of_kafka_python

from eosdb.errors import ApiError, ConfigError
from eosdb.model.config import guess

_ALSO: Final = {
    "UNKNOWN_SERVER_ERROR": -1, "NOT_LEADER_OR_FOLLOWER": 6, "MESSAGE_TOO_LARGE": 10,
    "INVALID_TOPIC_EXCEPTION": 17, "INVALID_REPLICA_ASSIGNMENT": 39, "INVALID_REGULAR_EXPRESSION": 128,
    "REBOOTSTRAP_REQUIRED": 129, "STREAMS_INVALID_TOPOLOGY": 130, "STREAMS_INVALID_TOPOLOGY_EPOCH": 131,
    "STREAMS_TOPOLOGY_FENCED": 132, "SHARE_SESSION_LIMIT_REACHED": 133,
}  # fmt: skip
_CLASSES: Final[dict[str, Any]] = vars(of_kafka_python)
CODES: Final[dict[str, int]] = {
    each.message: each.errno
    for each in _CLASSES.values()
    if (getattr(each, "errno", None) or 0) > 0
} | _ALSO
_NAMES: Final = {code: name for name, code in CODES.items()}


def error_of(error: object) -> type[ApiError]:
    """The class of an error that is given by its class, its name or its number. Raises ConfigError."""
    found = error
    if isinstance(error, type) and issubclass(error, ApiError):
        found = error.code
    elif isinstance(error, str):
        found = CODES.get(error.upper())
    if type(found) is not int or found not in _NAMES:
        did_you_mean = guess(error.upper(), CODES) if isinstance(error, str) else ""
        raise ConfigError(
            f"error: got {error!r}{did_you_mean}, expected a class such as eosdb.RequestTimedOutError, or "
            "the name or number of an error of Kafka's, such as 'NOT_LEADER_OR_FOLLOWER' or 6"
        )
    # A class of its own, so that no handler treats it in another way and changes its number.
    made: type[ApiError] = type("AnsweredError", (ApiError,), {}, code=found, name=_NAMES[found])
    return made
