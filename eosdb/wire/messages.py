"""Messages of Kafka's protocol as bytes: request headers, bodies, and responses.

kafka-python has the schema of every version of every message and compiles it (decisions/0027). This
module adds a server's part: decoding headers, checking a body before it is decoded, and the answer to a
Fetch.

kafka-python's decoder is made for responses from servers: it trusts counts and lengths, and accepts null
everywhere. So a request is first walked by the same schema without allocations: lengths must fit into the
bytes left, null must be allowed by the schema. Elements of arrays and tagged fields, which cost more
memory than their bytes, are counted. A request of a few fields takes a few microseconds (decisions/0031).

kafka-python's encoder would copy the records of a Fetch three times, and take 6 µs for each partition
without news.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from uuid import UUID

from kafka.protocol.api_message import ApiMessage

from eosdb.model.fetched import AbortedTransaction
from eosdb.wire import borrowed
from eosdb.wire.borrowed import Field

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_NULL: Final = -1
_NULL_STRUCT: Final = 0xFF
_MOST_ELEMENTS: Final = 100_000
"""The most elements of all arrays and tagged fields of a request: each becomes an object of some hundred
bytes."""
_LONGEST_STRING: Final = 32_767
"""Kafka's limit for a string, which also applies if the length is a varint."""
_MOST_COPIED: Final = 268_435_456
"""The most bytes that decoding may copy: the decoder copies the rest of the frame for each structure with
tagged fields."""


class Counts:
    """The elements and copied bytes that a request may still use."""

    __slots__ = ("copied", "elements")

    def __init__(self) -> None:
        self.elements = _MOST_ELEMENTS
        self.copied = _MOST_COPIED

    def count(self, elements: int) -> None:
        """Subtract elements. Raises ValueError beyond the limit."""
        self.elements -= elements
        if self.elements < 0:
            raise ValueError(f"more than {_MOST_ELEMENTS} elements in one request")

    def copy(self, size: int) -> None:
        """Subtract copied bytes. Raises ValueError beyond the limit."""
        self.copied -= size
        if self.copied < 0:
            raise ValueError("too many tagged fields for a request of its size")


Walk = Callable[[bytes | bytearray, int, Counts], int]
"""Walks over a value: takes its offset, returns the offset where it ends. Raises ValueError, IndexError,
and struct.error."""


def of_field(field: Field, flexible: bool, inside: bool = False) -> Walk:
    """Build the check of a field, or of a whole message; `inside` for fields within a tagged field."""
    if field.element is not None:
        return _array(of_field(field.element, flexible, inside), field.is_nullable, flexible)
    if field.fields is not None:
        walk = _structure(field, flexible, inside)
        return _nullable(walk) if field.is_nullable else walk
    size = _FIXED.get(field.type_name)
    if size is not None:
        return lambda data, at, counts: at + size
    if field.type_name == "string":
        return _sized(None if flexible else _INT16, field.is_nullable, _LONGEST_STRING)
    return _sized(None if flexible else _INT32, field.is_nullable)


def unsigned_varint(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """Read an unsigned varint. Returns it and the offset after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 28:
            raise ValueError("a varint of more than five bytes")


def _structure(structure: Field, flexible: bool, inside: bool) -> Walk:
    steps = [of_field(field, flexible, inside) for field in structure.fields or ()]
    if inside:
        steps.append(_none_inside)
    elif flexible:
        tagged = structure.tagged.items()
        steps.append(_tagged({tag: of_field(field, flexible, True) for tag, field in tagged}))

    def walk(data: bytes | bytearray, at: int, counts: Counts) -> int:
        for step in steps:
            at = step(data, at, counts)
        return at

    return walk


def _length(
    data: bytes | bytearray, at: int, number: struct.Struct | None, nullable: bool
) -> tuple[int, int]:
    """Read a length (0 for null) and check it against the bytes left; returns it and the offset after it.
    `number` is the format of the length; None for a varint."""
    if number is None:
        size, at = unsigned_varint(data, at)
        size -= 1
    else:
        (size,) = number.unpack_from(data, at)
        at += number.size
    if size < 0:
        if size != _NULL or not nullable:
            raise ValueError(f"a length of {size}" if size != _NULL else "null in a required field")
        return 0, at
    if size > len(data) - at:
        raise ValueError(f"a length of {size} with {len(data) - at} bytes left")
    return size, at


def _sized(number: struct.Struct | None, nullable: bool, longest: int = 2**31) -> Walk:
    def walk(data: bytes | bytearray, at: int, counts: Counts) -> int:
        size, at = _length(data, at, number, nullable)
        if size > longest:
            raise ValueError(f"a string of {size} bytes, at most {longest} are read")
        return at + size

    return walk


def _array(element: Walk, nullable: bool, flexible: bool) -> Walk:
    number = None if flexible else _INT32

    def walk(data: bytes | bytearray, at: int, counts: Counts) -> int:
        count, at = _length(data, at, number, nullable)  # At most one element for each byte left.
        counts.count(count)
        for _ in range(count):
            at = element(data, at, counts)
        return at

    return walk


def _nullable(walk_it: Walk) -> Walk:
    def walk(data: bytes | bytearray, at: int, counts: Counts) -> int:
        return at + 1 if data[at] == _NULL_STRUCT else walk_it(data, at + 1, counts)

    return walk


def _tagged(walks: dict[int, Walk]) -> Walk:
    def walk(data: bytes | bytearray, at: int, counts: Counts) -> int:
        if data[at] == 0:
            return at + 1
        counts.copy(len(data) - at)
        count, at = unsigned_varint(data, at)
        counts.count(count)
        for _ in range(count):
            tag, at = unsigned_varint(data, at)
            size, at = unsigned_varint(data, at)
            end = at + size
            if end > len(data):
                raise ValueError(f"a tagged field of {size} bytes with {len(data) - at} left")
            if tag in walks and (value_end := walks[tag](data, at, counts)) != end:
                raise ValueError(
                    f"tagged field {tag} ends at byte {value_end}, its size says {end}"
                )
            at = end
        return at

    return walk


def _none_inside(data: bytes | bytearray, at: int, counts: Counts) -> int:
    """Refuse tagged fields within a tagged field: the decoder does not skip them, and would misread the
    rest."""
    if data[at] != 0:
        raise ValueError("tagged fields inside a tagged field, where none are read")
    return at + 1


_UNKNOWN_TAGS: Final = _tagged({})
_FIXED: Final = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
    "bitfield": 4,
}


Pieces = list[bytes | bytearray]
_COPIED: Final = 16_384
"""Records up to this size are copied into the piece before them, which costs less than a piece."""
_PARTITION: Final = struct.Struct(">ihqqq")
_PARTITION_4: Final = struct.Struct(">ihqq")
"""The fields of a partition in versions without the log start."""
_ABORTED: Final = struct.Struct(">qq")
_NO_REPLICA: Final = struct.pack(">i", -1)
_NO_TAGS: Final = b"\0"
_DIVERGING: Final = struct.Struct(">bbbiqb")
"""One tagged field: its number and size, the epoch and the offset, and no fields inside."""


@dataclass(slots=True)
class FetchedPartition:
    """The fields of a partition in the answer, and its records as batches."""

    index: int
    code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: Sequence[AbortedTransaction] | None
    records: Pieces
    diverging: tuple[int, int] | None = None
    """The epoch and offset at which the client's log diverged, from version 12 on (KIP-595)."""


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """The answer to a Fetch: the partitions of each topic, which is named as in the request."""

    topics: Mapping[str | UUID, Sequence[FetchedPartition]]

    def encode(self, version: int) -> Pieces:
        """Encode the answer in a version of FetchResponse. The caller may append to the first piece."""
        out = bytearray(struct.pack(">ihi", 0, 0, 0)[: 10 if version >= 7 else 4])
        pieces: Pieces = [out]
        count = _compact if (flexible := version >= 12) else _counted
        tags = _NO_TAGS if flexible else b""
        head = _PARTITION if version >= 5 else _PARTITION_4
        no_replica = _NO_REPLICA if version >= 11 else b""
        out += count(len(self.topics))
        for topic, partitions in self.topics.items():
            out += _name(topic, flexible) + count(len(partitions))
            for one in partitions:
                of_log = (one.high_watermark, one.last_stable_offset, one.log_start_offset)
                out += head.pack(one.index, one.code, *of_log[: 3 if version >= 5 else 2])
                out += count(-1 if one.aborted is None else len(one.aborted))
                for gone in one.aborted or ():
                    out += _ABORTED.pack(gone.producer_id, gone.first_offset) + tags
                out += no_replica + count(size := sum(map(len, one.records)))
                if size <= _COPIED:
                    for batch in one.records:
                        out += batch
                else:
                    pieces += [*one.records, out := bytearray()]
                out += (
                    tags if one.diverging is None else _DIVERGING.pack(1, 0, 13, *one.diverging, 0)
                )
            out += tags
        out += tags
        return pieces


def _name(topic: str | UUID, flexible: bool) -> bytes:
    if isinstance(topic, UUID):
        return topic.bytes
    name = topic.encode()
    return (_compact(len(name)) if flexible else struct.pack(">h", len(name))) + name


def _counted(count: int) -> bytes:
    """Encode the length of an array or of bytes; -1 is null."""
    return struct.pack(">i", count)


def _compact(count: int) -> bytes:
    """Encode a length for a flexible version: a varint of the length plus one."""
    left, encoded = count + 1, bytearray()
    while left > 127:
        encoded.append(left & 127 | 128)
        left >>= 7
    encoded.append(left)
    return bytes(encoded)


_HEADER: Final = struct.Struct(">hhih")
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
    """Decode the header of a request. Raises MalformedMessageError."""
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
    """Decode the request after its header. Raises MalformedMessageError. Ignores bytes after the request,
    as Kafka does: librdkafka's Metadata request for all topics has three bytes too many."""
    flexible, walk, decode = _reader(request, header.version)
    try:
        counts = Counts()
        at = _UNKNOWN_TAGS(frame, header.length, counts) if flexible else header.length
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
        frame = [borrowed.encoded(response, header.version)]
    before = b"\0" if flexible else b""
    size = _INT32.size + len(before) + sum(map(len, frame))
    frame[0] = struct.pack(">ii", size, header.correlation_id) + before + frame[0]
    return frame


@lru_cache(maxsize=512)
def _reader(request: type[ApiMessage], version: int) -> tuple[bool, Walk, borrowed.Decode]:
    flexible: bool = request.flexible_version_q(version)
    walk = of_field(borrowed.schema(request, version), flexible)
    return flexible, walk, borrowed.decoder(request, version)
