"""Messages of Kafka's protocol as bytes: request headers, bodies, and responses.

kafka-python has the schema of every version of every message and compiles it (decisions/0027). Here is only
what a server needs around that: the header of a request, and where its body begins.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from kafka.protocol.api_message import ApiMessage

_HEADER: Final = struct.Struct(">hhih")
_INT32: Final = struct.Struct(">i")
_NULL: Final = -1
API_VERSIONS: Final = 18


class MalformedMessageError(Exception):
    """The bytes are not a message of their API and version; the connection must be closed."""


@dataclass(frozen=True, slots=True)
class RequestHeader:
    """What stands before the body of every request."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str
    """Empty for none."""
    length: int
    """Where the client id ends; the tagged fields of a flexible version, and then the body, follow."""


def decode_header(frame: bytes | bytearray) -> RequestHeader:
    """Raises MalformedMessageError."""
    try:
        api_key, version, correlation_id, size = _HEADER.unpack_from(frame)
        end = _HEADER.size + max(size, 0)
        if size < _NULL or end > len(frame):
            raise ValueError(f"a client id of {size} bytes in a frame of {len(frame)}")
        client_id = str(frame[_HEADER.size : end], "utf-8")
    except (struct.error, ValueError) as error:
        raise MalformedMessageError(f"bad request header: {error}") from error
    return RequestHeader(api_key, version, correlation_id, client_id, end)


def decode_body(
    request: type[ApiMessage], header: RequestHeader, frame: bytes | bytearray
) -> ApiMessage:
    """The request after its header. Raises MalformedMessageError.

    What follows it in its frame is not looked at, as Kafka does: librdkafka's request for the metadata of
    all topics has three bytes too many.
    """
    flexible, decode = _decoder(request, header.version)
    try:
        at = _skip_tagged_fields(frame, header.length) if flexible else header.length
        message, _ = decode(memoryview(frame), at)
    except Exception as error:  # Whatever it meets: the decoder is made for what servers send.
        raise MalformedMessageError(f"{error} ({type(error).__name__})") from error
    assert isinstance(message, ApiMessage)
    return message


def encode(response: ApiMessage, header: RequestHeader) -> bytes:
    """The response with its header, as a frame."""
    flexible = response.flexible_version_q(header.version) and header.api_key != API_VERSIONS
    body = response.encode(version=header.version)
    before = b"\0" if flexible else b""
    size = _INT32.size + len(before) + len(body)
    return b"".join((struct.pack(">ii", size, header.correlation_id), before, body))


@lru_cache(maxsize=512)
def _decoder(request: type[ApiMessage], version: int) -> tuple[bool, Any]:
    flexible: bool = request.flexible_version_q(version)
    struct_field: Any = request._struct
    return flexible, struct_field.compiled_decode_from(
        version, compact=flexible, tagged=flexible, data_class=request
    )


def _skip_tagged_fields(frame: bytes | bytearray, at: int) -> int:
    """Where the header's tagged fields end; a request has none that matter."""
    count, at = _unsigned_varint(frame, at)
    for _ in range(count):
        _, at = _unsigned_varint(frame, at)
        size, at = _unsigned_varint(frame, at)
        at += size
    return at


def _unsigned_varint(frame: bytes | bytearray, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 28:
            raise ValueError("a varint of more than five bytes")
