"""Checks that bytes have the shape of a message, before the message is decoded.

kafka-python's decoder is made for responses from servers: it trusts counts and lengths, and accepts null
everywhere. Here the bytes of a request are walked by the same schema without allocating anything: each
length is compared with the bytes left, null is accepted where the schema allows it, and elements of arrays
and tagged fields, which cost more memory than their bytes, are counted. A request of a few fields takes a
few microseconds (decisions/0031).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from eosdb.wire.borrowed import Field

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_NULL: Final = -1
_NULL_STRUCT: Final = 0xFF
_MOST_ELEMENTS: Final = 100_000
"""The most elements of all arrays and tagged fields of a request: each becomes an object of some hundred
bytes."""
_LONGEST_STRING: Final = 32_767
"""Kafka's limit, also where the length is a varint."""
_MOST_COPIED: Final = 268_435_456
"""The most bytes that decoding may copy: the decoder copies the rest of the frame for each structure with
tagged fields."""


class Counts:
    """What a request may still use of the limits on elements and copies."""

    __slots__ = ("copied", "elements")

    def __init__(self) -> None:
        self.elements = _MOST_ELEMENTS
        self.copied = _MOST_COPIED

    def count(self, elements: int) -> None:
        """Use up elements. Raises ValueError beyond the limit."""
        self.elements -= elements
        if self.elements < 0:
            raise ValueError(f"more than {_MOST_ELEMENTS} elements in one request")

    def copy(self, size: int) -> None:
        """Use up copied bytes. Raises ValueError beyond the limit."""
        self.copied -= size
        if self.copied < 0:
            raise ValueError("too many tagged fields for a request of its size")


Walk = Callable[[bytes | bytearray, int, Counts], int]
"""Walks over a value: takes its offset, returns the offset where it ends. Raises ValueError, IndexError,
and struct.error."""


def of_field(field: Field, flexible: bool, inside: bool = False) -> Walk:
    """The walk over a field, or over a whole message; `inside` a tagged field."""
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


def tagged_fields(data: bytes | bytearray, at: int, counts: Counts) -> int:
    """Walk over tagged fields of which none is known."""
    return _NO_TAGS(data, at, counts)


def unsigned_varint(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """An unsigned varint, and the offset where it ends."""
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
    """Read a length and compare it with the bytes left; returns it (0 for null) and the offset after it. If
    `number` is None, it is a varint."""
    if number is None:
        size, at = unsigned_varint(data, at)
        size -= 1
    else:
        (size,) = number.unpack_from(data, at)
        at += number.size
    if size < 0:
        if size != _NULL or not nullable:
            raise ValueError(f"a length of {size}" if size != _NULL else "null where none may be")
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
        count, at = _length(data, at, number, nullable)  # An element has a byte at least.
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
    """The decoder reads no tagged fields within one, where it would lose its place."""
    if data[at] != 0:
        raise ValueError("tagged fields inside a tagged field, where none are read")
    return at + 1


_NO_TAGS: Final = _tagged({})
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
