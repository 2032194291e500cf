"""Streams: from topic to topic exactly once, and the offsets that Spark keeps."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import BinaryType, StructType

import eosdb
from eosdb import Record, RecordBatch, TopicPartition
from eosdb.spark_io.planning.errors import SparkOptionError
from eosdb.spark_io.planning.options import parse
from eosdb.spark_io.reading.stream import _limited
from eosdb.spark_io.source import EosdbDataSource
from tests.spark_io.like_spark import Query, Reader, to_topic
from tests.spark_io.making import TP0, append, make, numbers_in


def test_shares_of_a_micro_batch_follow_what_waits() -> None:
    a, b, c = (("f", TopicPartition("t", i)) for i in range(3))
    before, first = {a: 10, b: 0}, {a: 0, b: 0, c: 5}
    assert _limited(before, first, {a: 110, b: 300, c: 5}, 40) == {a: 20, b: 30, c: 5}
    assert _limited(before, first, {a: 110, b: 300, c: 5}, 1_000) == {a: 110, b: 300, c: 5}
    assert sum(_limited({}, {a: 0, b: 0, c: 0}, {a: 1, b: 1, c: 1}, 2).values()) == 2
    assert _limited({a: 50}, first, {a: 20}, 5) == {a: 50}
    assert parse({"maxOffsetsPerTrigger": "40"}, streaming=True).max_offsets_per_trigger == 40


@pytest.mark.parametrize(
    ("waiting", "most", "shares"),
    [
        pytest.param([3, 10_000], 100, [1, 99], id="a few beside a backlog"),
        pytest.param([0, 3, 10_000], 100, [0, 1, 99], id="nothing waits, nothing is read"),
        pytest.param([1, 1, 1, 997], 4, [1, 1, 1, 1], id="as many partitions as offsets"),
        pytest.param([1] * 3 + [97], 50, [1, 1, 1, 47], id="small shares are rounded up"),
        pytest.param([100, 300], 40, [10, 30], id="in proportion"),
        pytest.param([2**62, 2**62], 2**61, [2**60, 2**60], id="large numbers"),
        pytest.param([7, 2], 9, [7, 2], id="all there is"),
    ],
)
def test_every_partition_in_which_records_wait_gets_a_share(
    waiting: list[int], most: int, shares: list[int]
) -> None:
    """As with Kafka's connector. The partitions are those of two files."""
    places = [("ab"[i % 2], TopicPartition("t", i)) for i in range(len(waiting))]
    first = {place: 10 * i for i, place in enumerate(places)}
    newest = {place: first[place] + count for place, count in zip(places, waiting, strict=True)}
    reached = _limited({places[0]: 0}, first, newest, most)
    assert [reached[place] - first[place] for place in places] == shares


@pytest.mark.parametrize("files", [101, 250, 1_000])
def test_more_partitions_than_offsets_take_turns_under_overload(files: int) -> None:
    most = 100
    places = [(f"{file:04}", TopicPartition("t", 0)) for file in range(files)]
    reached = dict.fromkeys(places, 0)
    rounds = 4 * -(-files // most)
    for written in range(1, rounds + 1):  # A record more in each, and many in one.
        newest = {place: written + (10**6 if place == places[7] else 0) for place in places}
        before, reached = reached, _limited(reached, {}, newest, most)
        assert sum(reached.values()) - sum(before.values()) == most, "never more than asked for"
    assert min(reached.values()) >= 3


def test_a_first_backfill_comes_in_pieces(pipe: Path) -> None:
    schema = StructType().add("value", BinaryType())
    for given, most in (({}, 5_000_000), ({"maxOffsetsPerTrigger": "9000000000"}, 9_000_000_000)):
        reader = EosdbDataSource({"path": str(pipe), **given}).streamReader(schema)
        assert reader.getDefaultReadLimit() == ReadMaxRows(most)


def test_another_checkpoint_is_another_sink(pipe: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        Query(pipe, tmp_path / name).run(to_topic(pipe, "more", checkpointLocation=tmp_path / name))
    assert numbers_in(pipe, "more") == sorted([*range(100)] * 2)


def test_partitions_and_files_that_come_later_are_read_from_their_beginning(tmp_path: Path) -> None:
    folder = tmp_path / "fleet"
    folder.mkdir()
    make(folder / "a.db", range(10))
    reader = Reader(folder)
    assert reader() == list(range(10))
    with eosdb.connect(folder / "a.db", durability="off") as db:
        db.admin.create_partitions("orders", 3)
        db.broker.append(TopicPartition("orders", 2), RecordBatch([Record(value=b"10")]))
    make(folder / "b.db", range(20, 30))
    assert reader() == [10, *range(20, 30)]


def test_records_that_retention_has_taken_stop_the_query_unless_allowed(tmp_path: Path) -> None:
    path = make(tmp_path / "source.db", range(10))
    reader = Reader(path)
    reader()
    append(path, range(10, 20))
    with eosdb.connect(path) as db:
        db.broker.delete_records(TP0, 18)
    with pytest.raises(SparkOptionError, match="failOnDataLoss=false"):
        reader()
    forgiving = Reader(path, failOnDataLoss=False)
    forgiving.offset = reader.offset
    assert forgiving() == [18, 19]


def test_a_stream_waits_for_as_many_offsets_as_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "source.db"
    make(path, range(3))
    reader = Reader(path, minOffsetsPerTrigger=5).stream_reader()
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert first != reader.initialOffset(), "the first micro-batch does not wait"
    append(path, range(3, 7))
    assert reader.latestOffset(first, limit) == first
    everything = reader.latestOffset(first, ReadAllAvailable())
    assert everything != first
    append(path, range(7, 8))
    more = reader.latestOffset(first, limit)
    assert more not in (first, everything)
    append(path, range(8, 9))
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(more, limit) != more, "what there is now is read, however little"
