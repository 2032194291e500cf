"""Messages of Kafka's protocol as bytes: request headers, bodies, and responses.

kafka-python has the schema of every version of every message and compiles it (decisions/0027). This module
adds what a server needs: decoding request headers, and checking the bytes of a body before it is decoded
(shape.py).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from kafka.protocol.api_message import ApiMessage

from eosdb.wire import borrowed, shape
from eosdb.wire.fetch_answer import FetchAnswer, Pieces

_HEADER: Final = struct.Struct(">hhih")
_INT32: Final = struct.Struct(">i")
_NULL: Final = -1
_KEPT: Final = 65_536
"""The largest encode buffer that a connection's thread keeps; kafka-python keeps one as large as its
largest message."""
API_VERSIONS: Final = 18
SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36


Response = ApiMessage | FetchAnswer


class MalformedMessageError(Exception):
    """The bytes are not a message of their API and version; the connection is closed."""


@dataclass(frozen=True, slots=True)
class RequestHeader:
    """The header of a request."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str
    """Empty if null."""
    length: int
    """The offset where the client id ends; a flexible version's tagged fields follow, then the body."""


def decode_header(frame: bytes | bytearray) -> RequestHeader:
    """Raises MalformedMessageError."""
    try:
        api_key, version, correlation_id, size = _HEADER.unpack_from(frame)
        end = _HEADER.size + max(size, 0)
        if size < _NULL or end > len(frame):
            raise ValueError(f"a client id of {size} bytes in a frame of {len(frame)}")
        client_id = str(frame[_HEADER.size : end], "utf-8", "replace")
    except (struct.error, ValueError) as error:
        raise MalformedMessageError(f"bad request header: {error}") from error
    return RequestHeader(api_key, version, correlation_id, client_id, end)


def decode_body(
    request: type[ApiMessage], header: RequestHeader, frame: bytes | bytearray
) -> ApiMessage:
    """Decode the request behind its header. Raises MalformedMessageError.

    Bytes behind the request are ignored, as by Kafka: librdkafka's Metadata request for all topics has
    three bytes too many.
    """
    flexible, walk, decode = _reader(request, header.version)
    try:
        counts = shape.Counts()
        at = shape.tagged_fields(frame, header.length, counts) if flexible else header.length
        end = walk(frame, at, counts)
        if end > len(frame):
            raise ValueError(f"the message ends at byte {end}, its frame at {len(frame)}")
        message, _ = decode(memoryview(frame), at)
    except (ValueError, IndexError, struct.error) as error:
        raise MalformedMessageError(
            f"bad {request.__name__} of version {header.version}: {error}"
        ) from error
    assert isinstance(message, ApiMessage)
    return message


def encode(response: Response, header: RequestHeader) -> Pieces:
    """Encode the response and its header as a frame."""
    kind = borrowed.response_of(header.api_key)
    flexible = kind.flexible_version_q(header.version) and header.api_key != API_VERSIONS
    if isinstance(response, FetchAnswer):
        frame = response.encode(header.version)
    else:
        frame = [response.encode(version=header.version)]
        if len(frame[0]) > _KEPT:
            borrowed.drop_encode_buffer()
    before = b"\0" if flexible else b""
    size = _INT32.size + len(before) + sum(map(len, frame))
    frame[0] = struct.pack(">ii", size, header.correlation_id) + before + frame[0]
    return frame


def framed(content: bytes) -> Pieces:
    """A frame of bytes that are no message of the protocol."""
    return [_INT32.pack(len(content)) + content]


@lru_cache(maxsize=512)
def _reader(request: type[ApiMessage], version: int) -> tuple[bool, shape.Walk, borrowed.Decode]:
    flexible: bool = request.flexible_version_q(version)
    walk = shape.of_field(borrowed.schema(request, version), flexible)
    return flexible, walk, borrowed.decoder(request, version)
