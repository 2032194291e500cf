"""A file that was replaced, or an older copy put back, under a checkpoint: an error, never skipped data."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import BinaryType, StructType

import eosdb
from eosdb import TopicPartition
from eosdb.spark_io import read_stream
from eosdb.spark_io.planning.errors import SparkOptionError
from eosdb.spark_io.planning.options import parse
from eosdb.spark_io.reading.stream import StreamReader
from eosdb.spark_io.source import EosdbDataSource
from tests.spark.test_repeats import append, numbers_in

pytestmark = pytest.mark.spark

Replace = Callable[[Path, range], None]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy made after 10 numbers lies beside the file, which has 20."""
    path = tmp_path / "source.db"
    make(path, range(10))
    with eosdb.connect(path) as db:
        db.backup(tmp_path / "backup.db")
    append(path, range(10, 20))
    return path


def make(path: Path, values: range) -> None:
    with eosdb.connect(path, durability="off") as db:
        db.admin.create_topic("orders")
    append(path, values)


def remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def new_file(path: Path, values: range) -> None:
    remove(path)
    make(path, values)


def backup_put_back(path: Path, values: range) -> None:
    remove(path)
    shutil.copy(path.with_name("backup.db"), path)
    append(path, values)


def restored(path: Path, values: range) -> None:
    with eosdb.connect(path) as db:
        position = db.info()["journal_position"]
        assert isinstance(position, int)
        db.restore_to(path.with_name("then.db"), position=position - 5)
    remove(path)
    os.rename(path.with_name("then.db"), path)
    append(path, values)


LOSSES = [
    pytest.param(new_file, range(100, 115), "another file: its id", id="new and shorter"),
    pytest.param(new_file, range(100, 140), "another file: its id", id="new and longer"),
    pytest.param(restored, range(0), "another file: its id", id="restored"),
    pytest.param(restored, range(100, 115), "another file: its id", id="restored and grown"),
    pytest.param(backup_put_back, range(0), "ends with event", id="older copy"),
    pytest.param(backup_put_back, range(100, 115), "another event", id="older copy, grown"),
]


class Reader:
    """What Spark does with a stream's reader, without Spark."""

    def __init__(self, path: Path, **options: object) -> None:
        given = {"path": str(path), "subscribe": "orders", "startingOffsets": "earliest"}
        given |= {name: str(value) for name, value in options.items()}
        given = {name: value for name, value in given.items() if value != "None"}
        self._source = EosdbDataSource(given)
        self.offset: dict[str, Any] | None = None

    def stream_reader(self) -> StreamReader:
        return self._source.streamReader(StructType().add("value", BinaryType()))

    def __call__(self, most: int | None = None) -> list[int]:
        """One trigger with a reader of its own; the values of its micro-batch."""
        reader = self.stream_reader()
        start = reader.initialOffset() if self.offset is None else self.offset
        limit = ReadAllAvailable() if most is None else ReadMaxRows(most)
        end = json.loads(json.dumps(reader.latestOffset(start, limit)))
        values = self.between(start, end)
        self.offset = end
        return values

    def between(self, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
        reader = self.stream_reader()
        return sorted(
            int(value)
            for task in reader.partitions(start, end)
            for batch in reader.read(task)
            for value in batch.column("value").to_pylist()
        )


@pytest.mark.parametrize(("replace", "values", "why"), LOSSES)
def test_a_stream_does_not_go_on_with_another_history(
    source: Path, replace: Replace, values: range, why: str
) -> None:
    reader, forgiving = Reader(source), Reader(source, failOnDataLoss=False)
    assert reader() == forgiving() == list(range(20))
    assert reader() == [], "the same file"
    replace(source, values)
    for _ in range(2):
        with pytest.raises(SparkOptionError, match=f"{why}.*failOnDataLoss=false"):
            reader()
    with eosdb.connect(source) as db:
        whole = db.broker.offsets(TopicPartition("orders", 0)).log_end_offset
    read = forgiving()
    assert len(read) == whole
    assert set(values) <= set(read)
    append(source, range(900, 903))
    assert forgiving() == [900, 901, 902]


def test_what_is_lost_is_logged_when_the_query_may_go_on(
    source: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reader = Reader(source, failOnDataLoss=False)
    reader()
    new_file(source, range(5))
    caplog.clear()
    assert reader() == list(range(5))
    assert "offset 20, but this is another file" in caplog.text


def test_a_micro_batch_that_was_planned_on_another_file_is_not_read_from_this_one(
    source: Path,
) -> None:
    reader, forgiving = Reader(source), Reader(source, failOnDataLoss=False)
    for one in (reader, forgiving):
        one()
    append(source, range(20, 30))
    start = reader.offset
    assert start is not None
    reader()
    end = reader.offset
    assert end is not None
    new_file(source, range(100, 200))
    with pytest.raises(SparkOptionError, match="another file"):
        reader.between(start, end)
    assert forgiving.between(start, end) == []


def test_a_stream_that_stands_still_tells_the_same_offset_whatever_else_is_written(
    source: Path,
) -> None:
    """Another offset is another micro-batch to Spark."""
    reader = Reader(source, groupId="job")
    reader()
    before = reader.offset
    with eosdb.connect(source, durability="off") as db:
        db.admin.create_topic("other")
        db.producer().send("other", b"x")
    assert reader() == []
    assert reader.offset == before


def test_files_of_a_fleet_are_known_one_by_one(tmp_path: Path) -> None:
    folder = tmp_path / "fleet"
    folder.mkdir()
    for name, values in (("a.db", range(10)), ("b.db", range(10, 20))):
        make(folder / name, values)
    reader, forgiving = Reader(folder), Reader(folder, failOnDataLoss=False)
    assert reader(12) == forgiving(12)
    new_file(folder / "b.db", range(100, 130))
    append(folder / "a.db", range(20, 25))
    with pytest.raises(SparkOptionError, match=r"b\.db: .*another file"):
        reader()
    seen = {*range(10), *range(20, 25), *range(100, 130)}
    assert seen >= set(forgiving()) >= set(range(100, 130))
    assert forgiving() == []


def without_marks(told: dict[str, Any]) -> dict[str, Any]:
    """As earlier versions wrote it."""
    return {
        topic: {partition: int(value.partition("@")[0]) for partition, value in found.items()}
        for topic, found in told.items()
    }


def test_offsets_of_earlier_versions_are_taken_at_their_word_once(source: Path) -> None:
    reader = Reader(source)
    reader()
    assert reader.offset is not None
    reader.offset = without_marks(reader.offset)
    assert reader() == []
    assert reader.offset == {"orders": {"0": 20}}
    append(source, range(20, 25))
    assert reader() == list(range(20, 25))
    new_file(source, range(100, 160))
    with pytest.raises(SparkOptionError, match="another file: its id"):
        reader()
    reader.offset = {"orders": {"0": 61}}
    with pytest.raises(SparkOptionError, match="the log goes to 60 only"):
        reader()


def test_offsets_of_a_checkpoint_can_be_given_to_a_new_query(source: Path) -> None:
    reader = Reader(source)
    reader(12)
    limit = parse({"startingOffsets": json.dumps(reader.offset)}, streaming=True).start
    assert limit.offsets == {"orders": {0: 12}}


def test_spark_ends_the_query_and_goes_on_when_it_may(
    spark: Any, source: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target.db"
    with eosdb.connect(target, durability="off") as db:
        db.admin.create_topic("out")

    def copy(**options: object) -> None:
        query = (
            read_stream(spark, source, subscribe="orders", startingOffsets="earliest", **options)
            .selectExpr("value")
            .writeStream.format("eosdb")
            .option("topic", "out")
            .option("checkpointLocation", str(tmp_path / "cp"))
            .trigger(availableNow=True)
            .start(str(target))
        )
        query.awaitTermination()

    copy()
    copy()
    assert numbers_in(target, "out") == list(range(20))
    backup_put_back(source, range(100, 115))
    with pytest.raises(Exception, match=r"older copy .* failOnDataLoss=false"):
        copy()
    assert numbers_in(target, "out") == list(range(20))
    copy(failOnDataLoss=False)
    copy()
    assert numbers_in(target, "out") == sorted([*range(20), *range(10), *range(100, 115)])
