"""A file that was replaced, or an older copy put back, under a checkpoint: an error, never skipped data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import TopicPartition
from eosdb.spark_io.planning.errors import SparkOptionError
from eosdb.spark_io.planning.options import parse
from tests.spark_io.like_spark import Reader
from tests.spark_io.making import append, backup_put_back, make, new_file, restored

pytestmark = pytest.mark.slow

Replace = Callable[[Path, range], None]


LOSSES = [
    pytest.param(new_file, range(100, 115), "another file: its id", id="new and shorter"),
    pytest.param(new_file, range(100, 140), "another file: its id", id="new and longer"),
    pytest.param(restored, range(0), "another file: its id", id="restored"),
    pytest.param(restored, range(100, 115), "another file: its id", id="restored and grown"),
    pytest.param(backup_put_back, range(0), "ends with event", id="older copy"),
    pytest.param(backup_put_back, range(100, 115), "another life", id="older copy, grown"),
]


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
    """Numbers alone, as Kafka's connector writes them."""
    return {
        topic: {partition: int(value.partition("@")[0]) for partition, value in found.items()}
        for topic, found in told.items()
    }


def test_offsets_without_marks_are_taken_at_their_word_once(source: Path) -> None:
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
