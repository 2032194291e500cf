"""Checks the plain values of a request, before any read or write.

Each error names the value that was found and the expected one. The ranges are those of Kafka's wire types;
so every valid value also fits SQLite's 64-bit integers and UTF-8 text.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeGuard

from eosdb import errors
from eosdb.model.config import INT32_MAX, INT64_MAX
from eosdb.model.values import Header, TopicPartition

INT16_MAX: Final = 2**15 - 1
_LONGEST_NAME: Final = 32_767
"""The length of the longest string in Kafka's protocol, in bytes of UTF-8."""
_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def check_topic_name(name: object) -> str:
    """Check a topic name by Kafka's rule (class Topic). Raises InvalidTopicExceptionError."""
    if not isinstance(name, str) or name in (".", "..") or not _TOPIC_NAME.fullmatch(name):
        raise errors.InvalidTopicExceptionError(
            f"topic name {shown(name)}: expected 1 to 249 of the characters a-z A-Z 0-9 . _ - "
            "and neither '.' nor '..'"
        )
    return name


def check_topic_partition(tp: object, least: int = 0) -> TopicPartition:
    """Raises UnknownTopicOrPartitionError unless `tp` can name a partition. A smaller `least` than 0 admits
    waiting partitions."""
    if (
        isinstance(tp, tuple)
        and len(tp) == 2
        and isinstance(tp[0], str)
        and _is_int(tp[1], least, INT32_MAX)
        and _TOPIC_NAME.fullmatch(tp[0])
    ):
        return tp if isinstance(tp, TopicPartition) else TopicPartition(tp[0], tp[1])
    raise errors.UnknownTopicOrPartitionError(
        f"{shown(tp)}: expected TopicPartition(topic, partition) with a valid topic name and a "
        "partition number, 0 or more"
    )


def check_topic_partitions(tps: object, least: int = 0) -> list[TopicPartition]:
    """Return the distinct partitions, sorted. Raises InvalidRequestError unless `tps` is a collection."""
    return sorted({check_topic_partition(tp, least) for tp in check_collection("partitions", tps)})


def check_collection(name: str, value: object) -> Iterable[Any]:
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return value
    raise errors.InvalidRequestError(f"{name}: got {shown(value)}, expected a collection")


def check_pairs(name: str, value: object) -> Iterable[tuple[object, object]]:
    for pair in check_collection(name, value):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise errors.InvalidRequestError(f"{name}: got {shown(pair)}, expected a pair")
        yield pair[0], pair[1]


def check_mapping(
    name: str, value: object, by: str = "TopicPartition",
    error: type[errors.ApiError] = errors.InvalidRequestError,
) -> Mapping[object, object]:  # fmt: skip
    # `type` first: an `isinstance` with an abstract class is slow.
    if type(value) is dict or isinstance(value, Mapping):
        return value
    raise error(f"{name}: got {shown(value)}, expected a mapping by {by}")


def check_int(
    name: str, value: object, low: int, high: int = INT64_MAX,
    error: type[errors.ApiError] = errors.InvalidRequestError,
) -> int:  # fmt: skip
    """Raises `error` unless the value is a whole number in [low, high]."""
    if (type(value) is int and low <= value <= high) or _is_int(value, low, high):
        return value
    raise error(f"{name}: got {shown(value)}, expected a whole number from {low} to {high}")


def check_timestamp(given: object) -> None:
    """Raises InvalidTimestampError unless the time is a whole number of ms."""
    check_int("timestamp", given, 0, error=errors.InvalidTimestampError)


def check_whole(name: str, value: object, low: int) -> None:
    """Raises ConfigError unless a setting is a whole number in its range."""
    if not _is_int(value, low, sys.maxsize):
        raise errors.ConfigError(f"{name}: got {value!r}, expected a whole number, {low} or more")


def check_choice(name: str, value: object, *choices: str) -> None:
    """Raises ConfigError unless a setting is one of the choices."""
    if value not in choices:
        raise errors.ConfigError(f"{name}: got {value!r}, expected one of {', '.join(choices)}")


def check_bytes(name: str, value: object) -> bytes:
    """Raises InvalidRequestError unless the value is bytes."""
    if isinstance(value, bytes):
        return value
    raise errors.InvalidRequestError(f"{name}: got {shown(value)}, expected bytes")


def check_text(
    name: str, value: object, error: type[errors.EosdbError] = errors.InvalidRequestError
) -> str:
    """Raises `error` unless the value is text that can be encoded as UTF-8."""
    if isinstance(value, str):
        try:
            value.encode()
            return value
        except UnicodeEncodeError:
            pass
    raise error(f"{name}: got {shown(value)}, expected text that can be encoded as UTF-8")


def check_name(
    name: str, value: object, error: type[errors.EosdbError] = errors.InvalidRequestError
) -> str:
    """`check_text` for a name in Kafka's protocol, with its maximal length."""
    if type(value) is str and value.isascii() and len(value) <= _LONGEST_NAME:
        return value
    text = check_text(name, value, error)
    if len(text.encode()) > _LONGEST_NAME:
        raise error(f"{name}: got {shown(text)}, expected at most {_LONGEST_NAME} bytes of UTF-8")
    return text


def check_texts(name: str, values: object) -> list[str]:
    """Raises InvalidRequestError unless every value is text."""
    return [check_text(name, value) for value in check_collection(name, values)]


def check_path(name: str, path: object) -> str:
    """Return the path as text that the file system can encode. Raises ConfigError."""
    given = os.fspath(path) if isinstance(path, os.PathLike) else path
    if isinstance(given, str) and given and "\0" not in given:
        with contextlib.suppress(UnicodeEncodeError):
            os.fsencode(given)
            return given
    raise errors.ConfigError(f"{name}: got {shown(path)}, expected the path of a file as text")


def check_file(name: str, path: object) -> str:
    """Return the path of a database file. Raises ConfigError for a URL, for the address of a Kafka broker,
    and for a new file whose name ends with white space or with parameters of a URL."""
    given = check_path(name, path)
    if os.path.exists(given):
        return given
    if url := _URL.match(given):
        inner = given[url.end() :].partition("?")[0] if url["of_file"] else "shop.db"
        raise errors.ConfigError(
            f"{name}: got {given!r}, a URL; expected the path of a file, such as {inner!r}"
        )
    if _ADDRESS.fullmatch(given):
        raise errors.ConfigError(
            f"{name}: got {given!r}, an address; eosdb opens a file and needs no broker. Give the path of "
            f"a file, such as 'shop.db' ('./{given}' if the file has this name)"
        )
    if _SLIP.search(given):
        raise errors.ConfigError(
            f"{name}: got {given!r}, which names no file; leave out white space around the name, and what "
            "follows the question mark: here mode=ro is read_only=True, mode=rw is create=False"
        )
    return given


_URL: Final = re.compile(r"(?i)(?P<of_file>file:(//)?|sqlite(\+\w+)?:/(//)?)|[a-z][a-z0-9+.-]+:/")
"""Also a URL in a `Path`, which keeps one slash of several."""
_SLIP: Final = re.compile(r"\A\s|\s\Z|\?\w+=")
_ADDRESS: Final = re.compile(r"[\w.-]+:\d{1,5}(,[\w.-]+:\d{1,5})*")


def check_group_id(group_id: object) -> str:
    return check_name("group_id", group_id, errors.InvalidGroupIdError)


def check_given_group_id(group_id: object) -> str:
    """Check a group id that must not be empty. Raises InvalidGroupIdError."""
    if check_group_id(group_id) == "":
        raise errors.InvalidGroupIdError("group_id: got an empty text, expected the id of a group")
    return str(group_id)


def check_transactional_id(transactional_id: object) -> str:
    """Raises InvalidRequestError unless the value is text that is not empty (TransactionCoordinator)."""
    if (text := check_name("transactional_id", transactional_id)) == "":
        raise errors.InvalidRequestError("transactional_id: got an empty text, expected an id")
    return text


def check_producer(producer_id: object, producer_epoch: object) -> None:
    check_int("producer_id", producer_id, -1)
    check_int("producer_epoch", producer_epoch, -1, INT16_MAX)


def check_identity(transactional_id: object, producer_id: object, producer_epoch: object) -> None:
    """Check the producer's identity in a request to the coordinator. Raises InvalidRequestError."""
    check_transactional_id(transactional_id)
    check_producer(producer_id, producer_epoch)


def check_headers(headers: object) -> tuple[Header, ...]:
    """Check headers, which are pairs of text and bytes or None. Raises InvalidRecordError."""
    if isinstance(headers, Sequence) and not isinstance(headers, str | bytes):
        for header in headers:
            if not _is_header(header):
                break
            check_text("header name", header[0], errors.InvalidRecordError)
        else:
            return tuple(headers)
    raise errors.InvalidRecordError(
        f"headers: got {shown(headers)}, expected pairs of a name and bytes or None"
    )


def as_headers(given: object) -> tuple[Header, ...]:
    """Convert a mapping or pairs to headers; text values become UTF-8. Raises InvalidRecordError."""
    pairs: object = given.items() if isinstance(given, Mapping) else given
    if isinstance(pairs, Iterable) and not isinstance(pairs, str | bytes):
        pairs = [_as_header(pair) for pair in pairs]
    if isinstance(pairs, list) and all(map(_is_header, pairs)):
        return check_headers(pairs)
    raise errors.InvalidRecordError(
        f"headers: got {shown(given)}, expected a mapping or pairs of names and values: text, and bytes, "
        "text or None"
    )


def _is_header(pair: object) -> bool:
    return isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[1], bytes | None)


def _as_header(pair: object) -> object:
    if isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[1], str):
        return pair[0], check_text("header value", pair[1], errors.InvalidRecordError).encode()
    return pair


def _is_int(value: object, low: int, high: int) -> TypeGuard[int]:
    if type(value) is not int and (isinstance(value, bool) or not isinstance(value, int)):
        return False
    return low <= value <= high


def shown(value: object) -> str:
    """Return a value's text for an error, truncated if it is long."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def check_transaction_version(requested: int | None, highest: int) -> int:
    """Return the transaction version of a client, by default the highest supported. Raises
    UnsupportedVersionError for a higher one, InvalidRequestError for a value that is no version."""
    if requested is None or requested == highest:
        return highest
    if check_int("transaction_version", requested, 1) > highest:
        raise errors.UnsupportedVersionError(
            f"transaction_version: got {requested}, this database supports up to {highest} "
            "(BrokerConfig.transaction_version)"
        )
    return requested


def is_url(text: object) -> bool:
    """Whether the text is a URL of object storage, not a path."""
    return isinstance(text, str) and "://" in text
