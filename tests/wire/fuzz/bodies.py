"""Requests of every API and version by kafka-python's schemas: valid ones, and ones that lie."""

from __future__ import annotations

import struct
from random import Random
from typing import Any, Final

from eosdb.wire.apis import Api
from eosdb.wire.handlers import APIS
from tests.wire.fuzz.batches import batch
from tests.wire.raw import header

_NUMBERS: Final = {
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
}
_NAMES: Final = (
    "t",
    "t",
    "t",
    "u",
    "nope",
    "",
    "__consumer_offsets",
    "ü",
    "a/b",
    "x" * 249,
    "x" * 300,
)
_WORDS: Final = (
    "",
    "a",
    "g",
    "x",
    "y",
    "range",
    "consumer",
    "cleanup.policy",
    "compact",
    "-1",
    "100",
)
_LIES: Final = (-1, -2, 0, 1, 127, 128, 255, 1_000_000, 2**31 - 1, -(2**31))


def request(random: Random, api: Api, version: int, lies: float = 0.0) -> bytes:
    """A request without its size; so often, a length, a count or a number in it is a lie."""
    return _Writer(random, api, version, lies).write()


def any_request(random: Random, lies: float = 0.0) -> bytes:
    """A request of any API and version."""
    api = random.choice(list(APIS.values()))
    return request(random, api, random.randint(api.lowest, api.highest), lies)


class _Writer:
    def __init__(self, random: Random, api: Api, version: int, lies: float) -> None:
        self._random, self._api, self._version, self._lies = random, api, version, lies
        kind: Any = api.request
        self._flexible: bool = kind.flexible_version_q(version)
        self._schema: Any = kind._struct

    def write(self) -> bytes:
        correlation_id = self._random.randrange(2**31)
        head = header(self._api.key, self._version, correlation_id, flexible=self._flexible)
        return head + self._struct(self._schema)

    def _struct(self, field: Any) -> bytes:
        body = b"".join(self._field(inner) for inner in field.untagged_fields(self._version))
        return body + self._tags(field) if self._flexible else body

    def _field(self, field: Any) -> bytes:
        nullable = field.nullable_for_version_q(self._version)
        is_null = nullable and self._random.random() < 0.2
        if self._is_lie():
            is_null = True
        if field.is_array():
            return self._array(field, is_null)
        if field.is_struct():
            present = self._struct(field)
            return present if not nullable else b"\xff" if is_null else b"\x01" + present
        kind = field.type_str
        if kind in _NUMBERS:
            return self._number(field.name, _NUMBERS[kind])
        if kind == "bool":
            return self._random.choice((b"\0", b"\1", b"\7"))
        if kind == "uuid":
            return self._random.choice((bytes(16), self._random.randbytes(16)))
        if kind == "bitfield":
            return self._random.randbytes(4)
        if kind == "string":
            return self._sized(None if is_null else self._text(field.name), ">h")
        data = batch(self._random) if kind == "records" else self._random.randbytes(self._few(20))
        return self._sized(None if is_null else data, ">i")

    def _array(self, field: Any, is_null: bool) -> bytes:
        count = 0 if is_null else self._few(3)
        inner = field.array_of
        write = self._struct if inner.is_struct() else self._field
        size = self._length(-1 if is_null else count, ">i")
        return size + b"".join(write(inner) for _ in range(count))

    def _sized(self, data: bytes | None, form: str) -> bytes:
        return self._length(-1 if data is None else len(data), form) + (data or b"")

    def _length(self, length: int, form: str) -> bytes:
        if self._is_lie():
            length = self._random.choice((*_LIES, length - 1, length + 1))
        if self._flexible:
            return _varint(length + 1)
        largest = 2 ** (8 * struct.calcsize(form) - 1) - 1
        return struct.pack(form, max(-largest - 1, min(length, largest)))

    def _number(self, name: str, form: str) -> bytes:
        if form == "d":
            return struct.pack(">d", self._random.choice((0.0, 1.5, float("nan"), -1e300)))
        bits = 8 * struct.calcsize(form)
        least, most = (
            (0, 2**bits - 1) if form.isupper() else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        )
        if self._is_lie():
            return struct.pack(
                f">{form}", self._random.choice((least, most, self._random.randint(least, most)))
            )
        if "wait" in name or "timeout" in name:
            choices: tuple[int, ...] = (0, 1, 10, 100)
        elif "bytes" in name:
            choices = (0, 1, 1_000, 2**20)
        else:
            choices = (-1, 0, 0, 1, 1, 2, 3, 10, 100)
        return struct.pack(f">{form}", max(least, min(self._random.choice(choices), most)))

    def _text(self, name: str) -> bytes:
        if self._is_lie():
            return self._random.choice((b"\xff\xfe", b"\xed\xa0\x80", b"\0", b"x" * 40_000))
        is_name = "topic" in name or name == "name"
        return self._random.choice(_NAMES if is_name else _WORDS).encode()

    def _tags(self, field: Any) -> bytes:
        """Of the known ones some, and unknown ones."""
        known = [inner for inner in field.fields.values() if inner.tagged_field_q(self._version)]
        fields = [
            (inner.tag, self._field(inner))
            for inner in known
            if inner.for_version_q(self._version) and self._random.random() < 0.3
        ]
        if self._random.random() < 0.1:
            fields.append((self._random.randint(20, 2**31), self._random.randbytes(self._few(9))))
        parts = [_varint(tag) + self._length(len(data) - 1, "") + data for tag, data in fields]
        return self._length(len(fields) - 1, "") + b"".join(parts)

    def _few(self, most: int) -> int:
        return self._random.randint(0, most)

    def _is_lie(self) -> bool:
        return self._random.random() < self._lies


def _varint(value: int) -> bytes:
    value &= 0xFFFFFFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
