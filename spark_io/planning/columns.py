"""The columns of a reader: those of Spark's Kafka connector, and those that only eosdb has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from eosdb.spark_io.planning.errors import SparkOptionError
from eosdb.spark_io.planning.options import boolean

KAFKA: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
TYPES: Final[dict[str, str]] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key: string, value: binary>>",
    "producerId": "bigint",
    "producerEpoch": "int",
    "sequence": "int",
    "source_file": "string",
}
"""The SQL type of every possible column; `eosdb.integrations.arrow` has the Arrow types."""


def chosen(options: Mapping[str, str], *, is_fleet: bool) -> tuple[str, ...]:
    """The requested columns, from option `columns` or by the connector's rules. Raises SparkOptionError."""
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
    return ", ".join(f"`{name}` {TYPES[name]}" for name in names)
