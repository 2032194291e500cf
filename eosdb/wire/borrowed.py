"""The internals of kafka-python, aiokafka and cramjam that the server uses; no other module does.

They may change in any release. So the extra `serve` pins the three to their minor versions, and
tests/wire/test_borrowed.py has a test for each use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from aiokafka.errors import CorruptRecordException as CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch as DefaultRecordBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c as calc_crc32c
from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.schemas.fields.codecs.encode_buffer import EncodeBuffer, EncodeBufferPool

Decode = Callable[[memoryview, int], tuple[Any, int]]
"""Decodes the message at an offset; returns it and the offset where it ends."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message in one version: an array of `element`, a structure of `fields` and `tagged`
    fields by tag, or a value of the primitive type `type_name`."""

    is_nullable: bool
    type_name: str = ""
    element: Field | None = None
    fields: tuple[Field, ...] | None = None
    tagged: Mapping[int, Field] = field(default_factory=dict)


def schema(request: Any, version: int) -> Field:
    """The structure of a request's body."""
    return _structure(request._struct, version, is_nullable=False)


def decoder(request: Any, version: int) -> Decode:
    """kafka-python's compiled decoder of a request's body."""
    flexible = request.flexible_version_q(version)
    decode: Decode = request._struct.compiled_decode_from(
        version, compact=flexible, tagged=flexible, data_class=request
    )
    return decode


def response_of(api_key: int) -> Any:
    """The class of an API's responses, for all versions."""
    registry: dict[int, Any] = ResponseClassRegistry._response_class_registry
    return registry[api_key][None]


@cache
def structures(kind: Any) -> Mapping[str, Any]:
    """The fields of a message or structure that are structures, or arrays of structures, with their
    classes."""
    return {
        name: one.data_class
        for name, one in kind.fields.items()
        if one.is_struct() or one.is_struct_array()
    }


@cache
def shared(kind: Any, of_value: Any) -> frozenset[str]:
    """The names of the fields that a message or structure shares with a dataclass or named tuple."""
    return frozenset(kind.fields.keys() & of_value.__annotations__.keys())


@cache
def error_fields(kind: Any) -> tuple[str, bool]:
    """The field of a structure for the error code, and whether the structure also has an error text."""
    code = next((name for name in kind.fields if name.endswith("error_code")), "")
    return code, "error_message" in kind.fields


@cache
def names_of_topic(kind: Any) -> tuple[str, str, str]:
    """A message's field names for a topic, its partitions and a partition's number; "" if a partition is
    only its number. The name comes first, the partitions last; the number is the first int32."""
    *_, partitions = names = tuple(kind.fields)
    of = structures(kind).get(partitions)
    numbers = (name for name, one in of.fields.items() if one.type_str == "int32") if of else ()
    return names[0], partitions, next(iter(numbers), "")


def encoded(message: Any, version: int) -> bytearray:
    """Encode the body of a message. Drops the buffer that kafka-python would keep for each thread: 64 KB,
    or as large as the thread's largest message."""
    EncodeBufferPool._local.buf = EncodeBuffer(1_024)  # type: ignore[no-untyped-call]
    try:
        return message.encode(version=version)  # type: ignore[no-any-return]
    finally:
        del EncodeBufferPool._local.buf


def is_buffer_too_small(error: Exception) -> bool:
    """Whether a `decompress_into` of cramjam failed for lack of space. All its codecs raise this text."""
    return "failed to write whole buffer" in str(error)


def _field(of_library: Any, version: int) -> Field:
    is_nullable: bool = of_library.nullable_for_version_q(version)
    if of_library.is_array():
        inner = of_library.array_of
        element = (
            _structure(inner, version, is_nullable=False)
            if inner.is_struct()
            else _field(inner, version)
        )
        return Field(is_nullable, element=element)
    if of_library.is_struct():
        return _structure(of_library, version, is_nullable=is_nullable)
    return Field(is_nullable, of_library.type_str)


def _structure(of_library: Any, version: int, *, is_nullable: bool) -> Field:
    tagged = {
        inner.tag: _field(inner, version)
        for inner in of_library.fields.values()
        if inner.for_version_q(version) and inner.tagged_field_q(version)
    }
    fields = tuple(_field(inner, version) for inner in of_library.untagged_fields(version))
    return Field(is_nullable, fields=fields, tagged=tagged)
