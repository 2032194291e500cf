"""Converts Spark rows to records: the options of a write, the allowed columns, and the partitioning."""

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
from eosdb.spark_io.planning.errors import SparkOptionError
from eosdb.spark_io.planning.files import absolute
from eosdb.spark_io.planning.options import CATALOG, check

COLUMNS: Final = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int", "bigint", "smallint", "tinyint"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp",),
}
"""The columns that a written DataFrame may have, with their Spark types."""
_ONLY_BY_PRODUCER: Final = ("deliver_at", "deliver_after", "idempotency_key")
_OPTIONS: Final = {
    "path", "topic", "txnappid", "txnversion", "checkpointlocation", "partitioner", "stagingdir",
    "includeheaders", "sinkid", "writename", "queryname", "microbatch", "report",
}  # fmt: skip
"""The known options. `write` sets the last two for the commit."""

_TABLE_ROWS: Final = 50_000
_TABLE_BYTES: Final = 16 * 1024 * 1024

Pair = tuple[TopicPartition, Sequence[Record]]


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a writer. `app_id` and `version` identify a batch job and its run, `sink_id` a stream;
    they are None if Spark's ids identify these. `name` distinguishes several writes of one batch.
    `micro_batch` is the text of a MicroBatch. The commit writes its report for the driver to the file
    `report`."""

    path: str
    topic: str | None
    partitioner: str
    staging: str
    is_shared: bool
    """Whether the user named the staging folder, which several hosts may then share."""
    checkpoint: str | None
    query_name: str | None
    sink_id: str | None
    app_id: str | None
    version: int | None
    name: str | None
    micro_batch: str | None
    report: str | None

    @property
    def which(self) -> str:
        return f"name={self.name}" if self.name is not None else self.topic or "*"


def parse(given: Mapping[str, str], types: Mapping[str, str]) -> WriteOptions:
    """Parse the options of a writer. Raises SparkOptionError."""
    options = {name.lower(): value for name, value in given.items()}
    check(options, _OPTIONS)
    path = options.get("path")
    if not path:
        raise SparkOptionError(
            "no file is named; give save(path), start(path) or option path. In INSERT and saveAsTable: "
            f"{CATALOG}"
        )
    # Make the path absolute here, in the driver: executors may run in other folders.
    path = absolute(path)
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
        staging=absolute(options.get("stagingdir", f"{path}-staging")),
        is_shared="stagingdir" in options,
        checkpoint=options.get("checkpointlocation"),
        query_name=options.get("queryname"),
        sink_id=options.get("sinkid"),
        app_id=app_id,
        version=None if version is None else int(version),
        name=options.get("writename"),
        micro_batch=options.get("microbatch"),
        report=options.get("report"),
    )


def check_columns(types: Mapping[str, str], topic: str | None) -> None:
    """Raises SparkOptionError if the DataFrame cannot be converted to records. Ignores unknown columns,
    like Kafka's sink, except those that have a meaning in eosdb."""
    for name, found in types.items():
        if name.lower() in _ONLY_BY_PRODUCER:
            raise SparkOptionError(
                f"column {name}: a DataFrame's records enter their topic at once, and its write is known "
                "by txnAppId and txnVersion; drop the column, or send such records with eosdb's producer"
            )
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
            "column value, the content of the records, is missing; add it, for example "
            "to_json(struct(*)) AS value"
        )
    if "topic" not in types and topic is None:
        raise SparkOptionError("name the topic by option topic, or by a column topic")


class Outgoing:
    """Converts Arrow batches to records of one file, and chooses their partitions."""

    def __init__(self, db: eosdb.Database, options: WriteOptions) -> None:
        self._db = db
        self._topic = options.topic
        self._partitioner: Partitioner = partitioner_of(options.partitioner)
        self._counts: dict[str, int] = {}

    def pairs(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Pair]:
        """Yield records by partition, a few Arrow batches at a time. Within a partition the order of rows
        is kept. Arrow groups the rows, without a Python object per record. Raises
        UnknownTopicOrPartitionError and SparkOptionError."""
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
        """The partition of each row: given in the row, or by its key. All others share a random one."""
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
    """Group the rows by the values `by`. Within a group they keep their order."""
    counts = Counter(by)
    if len(counts) > 1:
        table = table.take(pc.sort_indices(pa.array(by)))  # This sort is stable.
    begin = 0
    for group, size in sorted(counts.items()):
        yield group, table.slice(begin, size)
        begin += size


def _tables(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Combine small Arrow batches, so that the log gets larger batches."""
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
    is_given = name in table.schema.names
    return values(table.column(name)) if is_given else [None] * table.num_rows


def values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        return [
            None if us is None else us // 1_000
            for us in column.cast(pa.timestamp("us", tz=column.type.tz))
            .cast(pa.int64())
            .to_pylist()
        ]
    plain: list[Any] = column.to_pylist()
    return plain


def as_bytes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Select the columns to write, and cast keys and values of type string to binary (UTF-8)."""
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
