"""Rows from Spark on their way into topics: the columns allowed, and the records made from them."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

import eosdb
from eosdb import Record, TopicPartition
from eosdb.model.partitioner import Partitioner, partitioner_of

from .errors import SparkOptionError
from .files import local

COLUMNS: Final = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int", "bigint", "smallint", "tinyint"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp",),
}
"""The columns that a written DataFrame may have, with their Spark types."""
_OPTIONS: Final = {
    "path", "topic", "txnappid", "txnversion", "checkpointlocation", "queryname", "partitioner",
    "stagingdir", "includeheaders", "outputmode", "sinkid", "writename",
}  # fmt: skip

Pair = tuple[TopicPartition, list[Record]]


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How to write. `app_id` and `version` identify a batch that numbers itself, `sink_id` a stream; None
    if Spark does. `name` distinguishes several writes of one batch."""

    path: str
    topic: str | None
    partitioner: str
    staging: str
    checkpoint: str | None
    sink_id: str | None
    app_id: str | None
    version: int | None
    name: str | None

    @property
    def which(self) -> str:
        """Which of the writes of a batch this is, as far as the options say."""
        return f"name={self.name}" if self.name is not None else self.topic or "*"


def parse(given: Mapping[str, str], types: Mapping[str, str]) -> WriteOptions:
    """Raises SparkOptionError."""
    options = {name.lower(): value for name, value in given.items()}
    for name in options:
        if name not in _OPTIONS and not name.startswith("kafka."):
            raise SparkOptionError(f"option {name} is not known; see the page about Spark")
    path = options.get("path")
    if not path:
        raise SparkOptionError("no file is named; give save(path), start(path) or option path")
    path = local(path)
    topic = options.get("topic")
    check_columns(types, topic)
    app_id, version = options.get("txnappid"), options.get("txnversion")
    if (app_id is None) != (version is None):
        raise SparkOptionError("options txnAppId and txnVersion: give both or neither")
    if version is not None and not version.strip().isdigit():
        raise SparkOptionError(f"option txnVersion: got {version!r}, expected 0 or more")
    partitioner = options.get("partitioner", "consistent_random")
    partitioner_of(partitioner)
    return WriteOptions(
        path=path,
        topic=topic,
        partitioner=partitioner,
        staging=options.get("stagingdir", f"{path}-staging"),
        checkpoint=options.get("checkpointlocation"),
        sink_id=options.get("sinkid"),
        app_id=app_id,
        version=None if version is None else int(version),
        name=options.get("writename"),
    )


def check_columns(types: Mapping[str, str], topic: str | None) -> None:
    """Raises SparkOptionError for a DataFrame that cannot be converted to records."""
    for name, found in types.items():
        if name not in COLUMNS:
            raise SparkOptionError(
                f"column {name}: expected some of {', '.join(COLUMNS)}; select and rename what is to be "
                "written, such as to_json(struct(*)) AS value"
            )
        if found not in COLUMNS[name]:
            raise SparkOptionError(
                f"column {name}: got {found}, expected {' or '.join(COLUMNS[name])}; cast it"
            )
    if "value" not in types:
        raise SparkOptionError("there is no column value, which is what records hold")
    if "topic" not in types and topic is None:
        raise SparkOptionError("name the topic by option topic, or by a column topic")


class Outgoing:
    """Makes records from Arrow batches for one file, and chooses their partitions."""

    def __init__(self, db: eosdb.Database, options: WriteOptions) -> None:
        self._db = db
        self._topic = options.topic
        self._partitioner: Partitioner = partitioner_of(options.partitioner)
        self._counts: dict[str, int] = {}

    def pairs(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Pair]:
        """Records by partition, batch by batch; within a partition in the order of the rows.

        Raises UnknownTopicOrPartitionError and SparkOptionError.
        """
        for batch in batches:
            places: dict[tuple[str, int], list[Record]] = defaultdict(list)
            for place, record in zip(*self._records(batch), strict=True):
                places[place].append(record)
            for place, records in places.items():
                yield TopicPartition(*place), records

    def _records(self, batch: pa.RecordBatch) -> tuple[Iterable[tuple[str, int]], Iterable[Record]]:
        """Topic and partition of each row, and its record."""
        given = dict(zip(batch.schema.names, map(values, batch.columns), strict=True))
        nothing: Sequence[Any] = [None] * batch.num_rows
        keys, contents = given.get("key", nothing), given.get("value", nothing)
        topics = given.get("topic", nothing)
        if self._topic is not None:
            topics = [self._topic] * batch.num_rows
        elif None in topics:
            raise SparkOptionError("a row has no topic, and option topic names none")
        sticky: dict[str, int] = {}
        partitions = [
            self._choose(topic, key, sticky) if partition is None else partition
            for topic, key, partition in zip(
                topics, keys, given.get("partition", nothing), strict=True
            )
        ]
        records: Iterable[Record] = map(Record, keys, contents)
        if "headers" in given or "timestamp" in given:
            headers = map(_headers, given.get("headers", nothing))
            records = map(Record, keys, contents, headers, given.get("timestamp", nothing))
        return zip(topics, partitions, strict=True), records

    def _choose(self, topic: str, key: bytes | None, sticky: dict[str, int]) -> int:
        count = self._counts.get(topic)
        if count is None:
            count = self._counts[topic] = self._db.broker.partitions_for(topic)
        if key is not None:
            return self._partitioner(key, count)
        return sticky.setdefault(topic, random.randrange(count))


def values(column: pa.Array) -> list[Any]:
    """A column as Python values: text as UTF-8 bytes for keys and values, times as ms."""
    if pa.types.is_timestamp(column.type):
        return [
            None if us is None else us // 1_000
            for us in column.cast(pa.timestamp("us", tz=column.type.tz))
            .cast(pa.int64())
            .to_pylist()
        ]
    found: list[Any] = column.to_pylist()
    return found


def as_bytes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Keys and values of type string as binary, with the same bytes."""
    arrays = [
        column.cast(pa.binary())
        if name in ("key", "value") and not pa.types.is_binary(column.type)
        else column
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, batch.schema.names)


def _headers(given: Sequence[Mapping[str, Any]] | None) -> tuple[tuple[str, bytes | None], ...]:
    if not given:
        return ()
    return tuple((header["key"], header["value"]) for header in given)
