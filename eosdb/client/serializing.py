"""What users hand to `send`, as bytes."""

from __future__ import annotations

from eosdb.client.config import Serializer


def serialized(what: str, given: object, serializer: Serializer | None) -> bytes | None:
    """Bytes of a key or value: `str` is UTF-8 encoded, everything else needs the serializer.

    Raises TypeError.
    """
    data: object = given
    if (type(data) is bytes or data is None) and (serializer is None or data is None):
        return data
    if serializer is not None:
        data = serializer(given)
    elif isinstance(data, str):
        data = data.encode()
    if type(data) is not bytes:
        raise TypeError(
            f"{what}: got {type(given).__name__}, expected bytes, str or None; give the producer a "
            f"{what}_serializer"
        )
    return data
