"""The columns of records in Spark: those of Spark's Kafka connector, and those that only eosdb has.

Rows of a scan become Arrow batches whose types are exactly Spark's.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from .errors import SparkOptionError
from .options import boolean
from .plan import Range

_HEADERS_SQL: Final = "array<struct<key: string, value: binary>>"
_HEADERS_ARROW: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

KAFKA: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
TYPES: Final[dict[str, tuple[str, pa.DataType]]] = {
    "key": ("binary", pa.binary()),
    "value": ("binary", pa.binary()),
    "topic": ("string", pa.string()),
    "partition": ("int", pa.int32()),
    "offset": ("bigint", pa.int64()),
    "timestamp": ("timestamp", pa.timestamp("us", tz="UTC")),
    "timestampType": ("int", pa.int32()),
    "headers": (_HEADERS_SQL, _HEADERS_ARROW),
    "producerId": ("bigint", pa.int64()),
    "producerEpoch": ("int", pa.int32()),
    "sequence": ("int", pa.int32()),
    "source_file": ("string", pa.string()),
}
"""SQL and Arrow type of every possible column."""
_STORED: Final = {
    "key": "key",
    "value": "value",
    "offset": "offset",
    "timestamp": "timestamp",
    "timestampType": "timestamp_type",
    "headers": "headers",
    "producerId": "producer_id",
    "producerEpoch": "producer_epoch",
    "sequence": "sequence",
}
"""The names of the columns in a scan; the others are constant within a range."""


def chosen(options: Mapping[str, str], *, is_fleet: bool) -> tuple[str, ...]:
    """The requested columns, from option `columns` or by the connector's rules.

    Raises SparkOptionError.
    """
    given = {name.lower(): value for name, value in options.items()}
    if (text := given.get("columns")) is not None:
        names = tuple(name.strip() for name in text.split(",") if name.strip())
        check(names)
        return names
    headers = ("headers",) if boolean(given, "includeheaders", default=False) else ()
    with_file = boolean(given, "includesourcefile", default=is_fleet)
    return (*KAFKA, *headers, *(("source_file",) if with_file else ()))


def check(names: Sequence[str]) -> None:
    """Raises SparkOptionError for names that are not columns."""
    unknown = [name for name in names if name not in TYPES]
    if unknown or not names or len(set(names)) < len(names):
        raise SparkOptionError(
            f"columns: got {', '.join(names) or 'none'}, expected different ones of {', '.join(TYPES)}"
        )


def sql_schema(names: Sequence[str]) -> str:
    """The schema as Spark reads it."""
    return ", ".join(f"`{name}` {TYPES[name][0]}" for name in names)


def stored(names: Sequence[str]) -> tuple[str, ...]:
    """The columns to request from a scan; at least one, even if only constants are wanted."""
    return tuple(_STORED[name] for name in names if name in _STORED) or ("offset",)


def to_arrow(
    rows: Sequence[tuple[Any, ...]], names: Sequence[str], source: Range
) -> pa.RecordBatch:
    """Convert one batch of a scan to Arrow."""
    columns = dict(zip(stored(names), zip(*rows, strict=True), strict=True))
    arrays = []
    for name in names:
        arrow_type = TYPES[name][1]
        if name in _STORED:
            convert = _CONVERSIONS.get(name)
            values = columns[_STORED[name]]
            arrays.append(pa.array(map(convert, values) if convert else values, arrow_type))
        else:
            arrays.append(pa.repeat(pa.scalar(_constant(name, source), arrow_type), len(rows)))
    return pa.RecordBatch.from_arrays(arrays, list(names))


def _constant(name: str, source: Range) -> object:
    return {"topic": source.topic, "partition": source.partition, "source_file": source.path}[name]


def _headers(text: str | None) -> list[dict[str, object]] | None:
    if text is None:
        return None
    return [
        {"key": key, "value": None if value is None else base64.b64decode(value)}
        for key, value in json.loads(text)
    ]


_CONVERSIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "timestamp": lambda ms: ms * 1_000,
    "headers": _headers,
}
