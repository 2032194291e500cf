"""The Arrow types of a record's columns, equal to those of Spark's Kafka connector; needs pyarrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

TYPES: Final[dict[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    "producerId": pa.int64(),
    "producerEpoch": pa.int32(),
    "sequence": pa.int32(),
    "source_file": pa.string(),
}
"""All columns with exactly Spark's types."""


def schema(names: Sequence[str]) -> pa.Schema:
    return pa.schema([(name, TYPES[name]) for name in names])
