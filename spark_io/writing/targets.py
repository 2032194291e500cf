"""What a target takes, as it was before the job. A row that its topic does not take fails in the first task
that sees it, before it is staged, and not at the commit, after all tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

import eosdb
from eosdb.errors import SchemaOutOfDateError
from eosdb.spark_io.planning.errors import SparkOptionError

from .outgoing import WriteOptions


@dataclass(frozen=True)
class Topic:
    partitions: int
    is_compacted: bool


@dataclass(frozen=True)
class Targets:
    """The file, option topic, and the topics by name: None if an older schema hides them."""

    path: str
    topic: str | None
    topics: Mapping[str, Topic] | None

    def check(self, batch: pa.RecordBatch) -> None:
        """Raises SparkOptionError for a row that cannot be a record of its topic."""
        if self.topics is None:
            return
        names = batch.schema.names
        if "headers" in names and batch.column("headers").flatten().field("key").null_count:
            raise self._refused("has a header without a key")
        for name, rows in self._by_topic(batch):
            topic = self.topics.get(name)
            if topic is None:
                raise self._refused(f"is for topic {name!r}, which is not there")
            if topic.is_compacted and ("key" not in names or rows.column("key").null_count):
                raise self._refused(f"has no key, and topic {name} is compacted")
            if "partition" in names:
                least, most = pc.min_max(rows.column("partition")).as_py().values()
                wrong = least if least is not None and least < 0 else most
                if wrong is not None and not 0 <= wrong < topic.partitions:
                    raise self._refused(
                        f"is for partition {wrong} of topic {name}, which has {topic.partitions}, "
                        "counted from 0"
                    )

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self.topic is not None:
            yield self.topic, batch
            return
        column = batch.column("topic")
        if column.null_count:
            raise self._refused("has no topic, and option topic names none")
        for name in column.unique().to_pylist():
            yield name, batch.filter(pc.equal(column, name))

    def _refused(self, why: str) -> SparkOptionError:
        return SparkOptionError(f"{self.path}: a row {why}; nothing of this write was appended")


def targets_of(options: WriteOptions, columns: Collection[str]) -> Targets:
    """Look at the target before the job. Raises SparkOptionError for a published copy and for a compacted
    topic without column key, DatabaseNotFoundError and UnknownTopicOrPartitionError."""
    path, topic = options.path, options.topic
    try:
        with eosdb.connect(path, read_only=True) as db:
            if db.is_published:
                raise SparkOptionError(
                    f"{path} is a published copy, which never changes; write to the file that it was "
                    "made from"
                )
            names = db.admin.list_topics() if topic is None else [topic]
            topics = {
                name: Topic(
                    db.broker.topic(name, may_create=False).partitions,
                    db.admin.topic_config(name).compact,
                )
                for name in names
            }
    except SchemaOutOfDateError:
        return Targets(path, topic, None)  # The commit upgrades the file.
    if topic is not None and topics[topic].is_compacted and "key" not in columns:
        raise SparkOptionError(f"{path}: topic {topic} is compacted: make a column key")
    return Targets(path, topic, topics)
