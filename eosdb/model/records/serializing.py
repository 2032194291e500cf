"""Converts keys and values to bytes, and applies users' functions to many records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from eosdb.errors import InvalidRecordError
from eosdb.model.validation import check_text

T = TypeVar("T")
Serializer = Callable[[Any], bytes | str]
Deserializer = Callable[[bytes], object]


def serialized(what: str, given: object, serializer: Serializer | None) -> bytes | None:
    """Serialize a key or value. Text, also a serializer's result, is encoded as UTF-8; other types than
    bytes need a serializer. Raises TypeError, and InvalidRecordError for text that UTF-8 cannot encode."""
    if given is None:
        return None
    data: object = given
    if serializer is not None:
        data = serializer(given)
    if type(data) is bytes:
        return data
    if isinstance(data, str):
        try:
            return data.encode()
        except UnicodeEncodeError:
            check_text(what, data, InvalidRecordError)
    kind = type(data).__name__
    if serializer is None:
        order = "; the pairs of send_many are (key, value)" if what == "key" else ""
        raise TypeError(
            f"{what}: got {kind}, expected bytes, str or None; encode it, as json.dumps does, or give the "
            f"producer a {what}_serializer{order}"
        )
    name = getattr(serializer, "__qualname__", None) or type(serializer).__name__
    raise TypeError(f"{what}_serializer: {name} returned {kind}, expected bytes or str")


def check_key_is_named(method: str, misplaced: tuple[object, ...]) -> None:
    """Raises TypeError if a key was passed behind the value (decisions/0085)."""
    if misplaced:
        raise TypeError(
            f"{method}: got {misplaced[0]!r:.80} behind the value; the key is a keyword, as everything "
            f"behind the value: {method}(topic, value, key=…)"
        )


def as_far_as_it_goes(items: Iterable[T]) -> tuple[list[T], Exception | None]:
    """Return the items up to the first error, and this error (None if there is none)."""
    results: list[T] = []
    try:
        results.extend(items)  # After an error, `results` has the items before it.
    except Exception as error:
        return results, error
    return results, None
