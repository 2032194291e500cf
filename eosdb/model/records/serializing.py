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
    """Serialize a key or value. Text becomes UTF-8, also if a serializer returns it; anything but bytes
    needs a serializer. Raises TypeError, and InvalidRecordError for text without a UTF-8 form."""
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
            f"{what}: got {kind}, expected bytes, str or None; give the producer a {what}_serializer{order}"
        )
    name = getattr(serializer, "__qualname__", None) or type(serializer).__name__
    raise TypeError(f"{what}_serializer: {name} returned {kind}, expected bytes or str")


def as_far_as_it_goes(items: Iterable[T]) -> tuple[list[T], Exception | None]:
    """The items before the one that raises an error, and the error."""
    results: list[T] = []
    try:
        results.extend(items)  # On an error it keeps the items so far.
    except Exception as error:
        return results, error
    return results, None
