"""Converting keys and values to bytes, and applying users' functions to many records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from eosdb.errors import InvalidRecordError
from eosdb.model.validation import check_text

T = TypeVar("T")
Serializer = Callable[[object], bytes]
Deserializer = Callable[[bytes], object]


def serialized(what: str, given: object, serializer: Serializer | None) -> bytes | None:
    """Serialize a key or value: `str` becomes UTF-8, everything but bytes needs a serializer.

    Raises TypeError, and InvalidRecordError for text that has no UTF-8 form.
    """
    if given is None:
        return None
    data: object = given
    if serializer is not None:
        data = serializer(given)
    elif type(given) is bytes:
        return given
    elif isinstance(given, str):
        try:
            data = given.encode()
        except UnicodeEncodeError:
            check_text(what, given, InvalidRecordError)
    if type(data) is not bytes:
        raise TypeError(
            f"{what}: got {type(given).__name__}, expected bytes, str or None; give the producer a "
            f"{what}_serializer"
        )
    return data


def as_far_as_it_goes(items: Iterable[T]) -> tuple[list[T], Exception | None]:
    """The items before the one that raises an error, and the error."""
    results: list[T] = []
    try:
        results.extend(items)  # Keeps what came before.
    except Exception as error:
        return results, error
    return results, None
