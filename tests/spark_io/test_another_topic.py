"""A name is not an identity: a topic that was deleted and recreated, and a file that was replaced, under
the offsets of a stream and under the plan of a DataFrame. Told, never read over and never skipped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb.spark_io.planning.errors import SparkOptionError
from eosdb.spark_io.planning.options import parse
from eosdb.spark_io.planning.plan import batch
from eosdb.spark_io.reading.tasks import batches
from eosdb.spark_io.source import EosdbDataSource
from tests.spark_io.like_spark import SCHEMA, Reader, tables
from tests.spark_io.making import append, backup_put_back, new_file, topic_anew

pytestmark = pytest.mark.slow


def log_lines(caplog: pytest.LogCaptureFixture) -> set[str]:
    """Each once: `Reader` makes a reader for each call, and each says it once."""
    return {record.getMessage() for record in caplog.records if record.name == "eosdb.spark_io"}


@pytest.mark.parametrize(
    ("way", "count"),
    [
        *(("subscribe", n) for n in (15, 20, 120)),
        ("subscribePattern", 20),
        ("assign", 120),
        ("fleet", 15),
    ],
)
def test_a_stream_is_told_of_a_topic_that_was_made_anew(
    tmp_path: Path, source: Path, count: int, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    named = {"subscribePattern": "ord.*", "assign": '{"orders": [0]}'}
    asked: dict[str, object] = {way: named[way]} if way in named else {}
    path = tmp_path / "sour*.db" if way == "fleet" else source

    def reader(**options: object) -> Reader:
        return Reader(path, **({"subscribe": None} if asked else {}), **asked, **options)

    strict, forgiving = reader(), reader(failOnDataLoss=False)
    assert strict() == forgiving() == list(range(20))
    topic_anew(source, range(100, 100 + count))
    for _ in range(2):
        with pytest.raises(
            SparkOptionError, match=r"topic orders: .* recreated: its id is .*, not "
        ):
            strict()
    caplog.clear()
    assert forgiving() == list(range(100, 100 + count)), "from its start"
    assert forgiving() == []
    (line,) = log_lines(caplog)
    assert "topic orders: the topic was deleted and recreated" in line
    append(source, range(900, 903))
    assert forgiving() == [900, 901, 902]


def test_a_stream_that_may_lose_outlives_the_time_without_the_topic(
    source: Path, caplog: pytest.LogCaptureFixture
) -> None:
    strict, forgiving = Reader(source), Reader(source, failOnDataLoss=False)
    assert strict() == forgiving() == list(range(20))
    with eosdb.connect(source) as db:
        db.admin.delete_topic("orders")
    with pytest.raises(SparkOptionError, match="there is no orders"):
        strict()
    caplog.clear()
    assert forgiving() == forgiving() == []
    with eosdb.connect(source) as db:
        db.admin.create_topic("orders")
    append(source, range(5))
    assert forgiving() == list(range(5))
    assert ["the topic has been deleted" in line for line in log_lines(caplog)] == [True]


def test_a_micro_batch_that_was_planned_on_the_topic_before_is_not_read_from_this_one(
    source: Path,
) -> None:
    strict, forgiving = Reader(source), Reader(source, failOnDataLoss=False)
    assert strict(5) == forgiving(5) == list(range(5))
    assert strict.offset is not None
    start = strict.offset
    strict()
    assert strict.offset is not None
    topic_anew(source, range(100, 200))
    with pytest.raises(SparkOptionError, match="recreated"):
        strict.between(start, strict.offset)
    assert forgiving.between(start, strict.offset) == []
    assert forgiving() == list(range(100, 200))


def test_tasks_of_a_micro_batch_read_no_other_topic(
    source: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for forgiving in (False, True):
        reader = Reader(source, failOnDataLoss=not forgiving).stream_reader()
        start = reader.initialOffset()
        (task,) = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
        topic_anew(source, range(100, 200))
        if forgiving:
            caplog.clear()
            assert list(reader.read(task)) == []
            assert ["recreated" in line for line in log_lines(caplog)] == [True]
        else:
            with pytest.raises(SparkOptionError, match=r"recreated.*failOnDataLoss=false"):
                list(reader.read(task))


def test_available_now_reads_no_further_than_the_new_topic_goes(source: Path) -> None:
    reader = Reader(source, failOnDataLoss=False)
    reader(5)
    stream = reader.stream_reader()
    stream.prepareForTriggerAvailableNow()
    topic_anew(source, range(100, 103))
    assert reader.offset is not None
    end = stream.latestOffset(reader.offset, stream.getDefaultReadLimit())
    assert reader.between(reader.offset, json.loads(json.dumps(end))) == [100, 101, 102]


def test_a_stream_begins_at_offsets_that_are_there(source: Path) -> None:
    for offsets, why in (
        ('{"orders":{"0":3,"4":1}}', "option startingOffsets: orders-4 cannot be read"),
        ('{"orders":{"0":3},"gone":{"0":1}}', "option startingOffsets: gone-0 cannot be read"),
        ('{"orders":{"0":99}}', "orders-0: offset 99 cannot be read, the log goes from 0 to 20"),
    ):
        with pytest.raises(SparkOptionError, match=why):
            Reader(source, startingOffsets=offsets)()
    reader = Reader(source, startingOffsets='{"orders":{"0":3}}')
    assert reader() == list(range(3, 20))
    topic_anew(source, range(100, 105))
    with pytest.raises(SparkOptionError, match=r"offset 20 of orders-0 .* deleted and recreated"):
        Reader(source, startingOffsets=json.dumps(reader.offset))()


def test_offsets_without_a_topics_id_are_taken_at_their_word_once(source: Path) -> None:
    """A published copy tells no ids of topics."""
    reader = Reader(source)
    reader(5)
    assert reader.offset is not None
    offset, mark, topic_id = reader.offset["orders"]["0"].split("@")
    with eosdb.connect(source) as db:
        assert topic_id == str(db.broker.topic("orders").topic_id)
    reader.offset = {"orders": {"0": f"{offset}@{mark}"}}
    assert reader() == list(range(5, 20))
    topic_anew(source, range(100, 140))
    with pytest.raises(SparkOptionError, match="recreated"):
        reader()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (new_file, "this is another file: its id is"),
        (topic_anew, "the topic was deleted and recreated"),
        (backup_put_back, "older copy of the file, written since: event .* another life"),
    ],
)
def test_a_data_frame_reads_what_it_was_planned_for_or_is_refused(
    source: Path, change: Any, why: str
) -> None:
    planned = []
    for may_lose in (True, False):
        reader = EosdbDataSource({"path": str(source), "failOnDataLoss": str(may_lose)}).reader(
            SCHEMA
        )
        planned.append((reader, reader.partitions()))
    change(source, range(100, 240))
    for reader, tasks in planned:
        with pytest.raises(SparkOptionError, match=f"{why}.* make the DataFrame again"):
            tables(reader, tasks)


def test_a_range_is_read_of_one_topic_also_when_that_goes_on_the_way(source: Path) -> None:
    append(source, range(20, 9_000))
    options = parse({"failOnDataLoss": "false"}, streaming=False)
    found = batches(batch(str(source), options), ("value",), options)
    assert next(found).num_rows < 9_000
    topic_anew(source, range(100_000, 120_000))
    with pytest.raises(SparkOptionError, match="recreated"):
        list(found)


def test_what_retention_took_of_a_plan_is_told(
    source: Path, caplog: pytest.LogCaptureFixture
) -> None:
    strict, forgiving = (
        parse({"failOnDataLoss": word}, streaming=False) for word in ("true", "false")
    )
    planned = batch(str(source), strict)
    with eosdb.connect(source) as db:
        db.broker.delete_records(eosdb.TopicPartition("orders", 0), 7)
    with pytest.raises(eosdb.errors.OffsetOutOfRangeError, match="make the DataFrame again"):
        list(batches(planned, ("value",), strict))
    caplog.clear()
    assert sum(found.num_rows for found in batches(planned, ("value",), forgiving)) == 13
    (line,) = log_lines(caplog)
    assert "orders-0: the planned offsets 0 to 6 were deleted" in line
    assert "make the DataFrame again" in line
