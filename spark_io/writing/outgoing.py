"""Rows from Spark on their way into topics: the columns allowed, and the records made from them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

import eosdb
from eosdb import Record, TopicPartition
from eosdb.model.records.partitioner import Partitioner, partitioner_of, partitions_of
from eosdb.model.records.record_columns import RecordColumns
from eosdb.model.values import Header
from eosdb.spark_io.planning import kafka_options
from eosdb.spark_io.planning.errors import SparkOptionError
from eosdb.spark_io.planning.files import local

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
    "path", "topic", "txnappid", "txnversion", "checkpointlocation", "partitioner", "stagingdir",
    "includeheaders", "sinkid", "writename", "microbatch", "report",
}  # fmt: skip
"""The last two are what `write` tells the commit."""

_TABLE_ROWS: Final = 50_000
_TABLE_BYTES: Final = 16 * 1024 * 1024

Pair = tuple[TopicPartition, Sequence[Record]]


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How to write. `app_id` and `version` identify a batch that numbers itself, `sink_id` a stream; None
    if Spark does. `name` distinguishes several writes of one batch. `micro_batch` is the query and the
    number, `report` the file in which the driver looks for what was done."""

    path: str
    topic: str | None
    partitioner: str
    staging: str
    is_shared: bool
    """Whether the staging folder may be on several hosts: the user has named it."""
    checkpoint: str | None
    sink_id: str | None
    app_id: str | None
    version: int | None
    name: str | None
    micro_batch: tuple[str, int] | None
    report: str | None

    @property
    def which(self) -> str:
        """Which of the writes of a batch this is, as far as the options say."""
        return f"name={self.name}" if self.name is not None else self.topic or "*"


def parse(given: Mapping[str, str], types: Mapping[str, str]) -> WriteOptions:
    """Raises SparkOptionError."""
    options = {name.lower(): value for name, value in given.items()}
    kafka_options.check(options, _OPTIONS)
    path = options.get("path")
    if not path:
        raise SparkOptionError(
            "no file is named; give save(path), start(path) or option path. In INSERT and saveAsTable: "
            f"{kafka_options.CATALOG}"
        )
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
        is_shared="stagingdir" in options,
        checkpoint=options.get("checkpointlocation"),
        sink_id=options.get("sinkid"),
        app_id=app_id,
        version=None if version is None else int(version),
        name=options.get("writename"),
        micro_batch=_micro_batch(options.get("microbatch")),
        report=options.get("report"),
    )


def _micro_batch(text: str | None) -> tuple[str, int] | None:
    query, _, number = (text or "").rpartition(":")
    return (query, int(number)) if query else None


def check_columns(types: Mapping[str, str], topic: str | None) -> None:
    """Other columns are left out, as Kafka's sink does. Raises SparkOptionError for a DataFrame that cannot
    be converted to records."""
    for name, found in types.items():
        if name not in COLUMNS:
            if name.lower() in COLUMNS:
                raise SparkOptionError(f"column {name}: rename it to {name.lower()}")
            continue
        if found not in COLUMNS[name]:
            raise SparkOptionError(
                f"column {name}: got {found}, expected {' or '.join(COLUMNS[name])}; cast it"
            )
    if "value" not in types:
        raise SparkOptionError(
            "there is no column value, which is what records hold; make one, such as to_json(struct(*)) "
            "AS value"
        )
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
        """Records by partition, some Arrow batches at a time; within a partition in the order of the rows.

        Arrow moves the rows, and no object is made for a record. Raises UnknownTopicOrPartitionError and
        SparkOptionError.
        """
        for table in _tables(batches):
            for topic, its_rows in self._by_topic(table):
                for partition, rows in _grouped(its_rows, self._partitions(topic, its_rows)):
                    yield TopicPartition(topic, partition), _records(rows)

    def _by_topic(self, table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        if self._topic is not None:
            return iter([(self._topic, table)])
        topics = values(table.column("topic"))
        if None in topics:
            raise SparkOptionError("a row has no topic, and option topic names none")
        return _grouped(table, topics)

    def _partitions(self, topic: str, table: pa.Table) -> list[int]:
        """Of each row: the one it names, or that of its key; rows without either stay together."""
        given = _column(table, "partition")
        if None not in given:
            return given
        keys = _column(table, "key")
        count = self._counts.get(topic)
        if count is None:
            count = self._counts[topic] = self._db.broker.partitions_for(topic)
        sticky = random.randrange(count)
        if None in keys:
            by_key = [sticky if key is None else self._partitioner(key, count) for key in keys]
        else:
            by_key = partitions_of(self._partitioner, keys, count)
        pairs = zip(given, by_key, strict=True)
        return [chosen if partition is None else partition for partition, chosen in pairs]


def _grouped(table: pa.Table, by: list[Any]) -> Iterator[tuple[Any, pa.Table]]:
    """The rows by what belongs to each; their order stays within each group."""
    counts = Counter(by)
    if len(counts) > 1:
        table = table.take(pc.sort_indices(pa.array(by)))  # A stable sort.
    begin = 0
    for group, size in sorted(counts.items()):
        yield group, table.slice(begin, size)
        begin += size


def _tables(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Some batches together, as long as they are small: what goes to one partition makes larger batches of
    the log."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        rows, size = sum(one.num_rows for one in waiting), sum(one.nbytes for one in waiting)
        if rows >= _TABLE_ROWS or size >= _TABLE_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting)


def _records(rows: pa.Table) -> RecordColumns:
    payload: list[bytes | None] = [None] * (2 * rows.num_rows)
    payload[::2] = _column(rows, "key")
    payload[1::2] = _column(rows, "value")
    headers: list[Sequence[Header]] = []
    if "headers" in rows.schema.names:
        headers.extend(map(_headers, _column(rows, "headers")))
    return RecordColumns(payload, _column(rows, "timestamp"), headers if any(headers) else [])


def _column(table: pa.Table, name: str) -> list[Any]:
    """None for each row where there is no such column."""
    is_given = name in table.schema.names
    return values(table.column(name)) if is_given else [None] * table.num_rows


def values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
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
    """The columns that are written, keys and values of type string as binary, with the same bytes."""
    arrays = {
        name: column.cast(pa.binary())
        if name in ("key", "value") and not pa.types.is_binary(column.type)
        else column
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        if name in COLUMNS
    }
    return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))


def _headers(given: Sequence[Mapping[str, Any]] | None) -> tuple[tuple[str, bytes | None], ...]:
    if not given:
        return ()
    return tuple((header["key"], header["value"]) for header in given)
