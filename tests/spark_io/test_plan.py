"""Which offsets are read, and by how many tasks, without Spark."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eosdb
from eosdb import Record, RecordBatch, TopicPartition
from eosdb.admin.tools import Tools
from eosdb.spark_io.planning import files, plan
from eosdb.spark_io.planning.errors import SparkOptionError
from eosdb.spark_io.planning.options import parse
from eosdb.spark_io.planning.plan import Range
from tests.cases import each

TP = TopicPartition("t", 0)


@pytest.fixture
def log(db: eosdb.Database, clock: eosdb.ManualClock) -> eosdb.Database:
    """Offsets 2 to 9, one a second."""
    db.admin.create_topic("t", partitions=2)
    for i in range(10):
        db.broker.append(TP, RecordBatch([Record(value=b"%d" % i)]))
        clock.advance(1_000)
    db.broker.delete_records(TP, 2)
    return db


def planned(db: eosdb.Database, **options: str) -> dict[int, tuple[int, int]]:
    found = plan.batch(db.path, parse(options, streaming=False))
    return {range_.partition: (range_.start, range_.end) for range_ in found}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (2, 10)),
        ({"startingOffsets": '{"t":{"0":5}}'}, (5, 10)),
        ({"startingOffsets": '{"t":{"0":-2}}', "endingOffsets": '{"t":{"0":-1}}'}, (2, 10)),
        ({"endingOffsets": '{"t":{"0":7}}'}, (2, 7)),
        ({"startingOffsets": '{"t":{"0":0}}', "failOnDataLoss": "false"}, (2, 10)),
        ({"endingOffsets": '{"t":{"0":99}}', "failOnDataLoss": "false"}, (2, 10)),
    ],
)
def test_offsets_are_where_they_were_asked_for(
    log: eosdb.Database, options: dict[str, str], expected: tuple[int, int]
) -> None:
    assert planned(log, **options) == {0: expected, 1: (0, 0)}


def test_times_become_offsets(log: eosdb.Database, clock: eosdb.ManualClock) -> None:
    begin = clock.time_ms() - 10_000
    options = {"assign": '{"t":[0]}', "startingTimestamp": str(begin + 3_500)}
    assert planned(log, **options) == {0: (4, 10)}
    assert planned(log, **options, endingTimestamp=str(begin + 7_000)) == {0: (4, 7)}
    late = {"assign": '{"t":[0]}', "startingTimestamp": str(begin + 99_000)}
    with pytest.raises(SparkOptionError, match="no record at or after"):
        planned(log, **late)
    assert planned(log, **late, startingOffsetsByTimestampStrategy="latest") == {0: (10, 10)}


def test_times_mean_records_where_the_data_is_older_than_its_markers(db: eosdb.Database) -> None:
    """Each transaction ends with a marker of today."""
    db.admin.create_topic("t", config={"retention.ms": -1})
    with db.producer(transactional_id="p") as producer:
        producer.init_transactions()
        for i in range(20):
            producer.begin_transaction()
            for j in range(7):
                producer.send("t", b"v", timestamp=1_000 * (7 * i + j))
            producer.abort_transaction() if i % 5 == 3 else producer.commit_transaction()
    for start, end in ((0, 63_000), (30_000, 90_500), (139_000, 999_000)):
        given_ = {"startingTimestamp": str(start), "endingTimestamp": str(end)}
        (range_,) = planned(db, **given_).values()
        read = [row for rows in db.admin.scan(TP, *range_, columns=("offset",)) for row in rows]
        assert read == list(
            db.query(
                'SELECT "offset" FROM committed_records WHERE timestamp >= ? AND timestamp < ?',
                (start, end),
            ).rows
        )
        assert read


def test_an_end_in_time_is_where_a_start_at_that_time_is(db: eosdb.Database) -> None:
    """Also on data without order: jobs for consecutive days read each record once."""
    db.admin.create_topic("t", config={"retention.ms": -1})
    times = [5, 3, 9, 1, 12, 4, 11, 2, 30]
    db.broker.append(TP, RecordBatch([Record(value=b"v", timestamp=time) for time in times]))
    days = ["0", "4", "10", "13"]
    ranges = [
        planned(db, startingTimestamp=start, endingTimestamp=end)[0]
        for start, end in itertools.pairwise(days)
    ]
    assert ranges == [(0, 0), (0, 4), (4, 8)]


@each(
    ("options", "message"),
    [
        ({"startingOffsets": '{"t":{"0":1}}'}, "the log goes from 2 to 10"),
        ({"endingOffsets": '{"t":{"0":11}}'}, "failOnDataLoss=false"),
        ({"startingOffsets": '{"t":{"0":8}}', "endingOffsets": '{"t":{"0":4}}'}, "behind its end"),
        ({"subscribe": "t,nowhere"}, "no nowhere in any"),
        ({"assign": '{"t":[5]}'}, "no t-5 in any"),
    ],
)
def test_what_cannot_be_read_says_so(
    log: eosdb.Database, options: dict[str, str], message: str
) -> None:
    with pytest.raises(SparkOptionError, match=message):
        planned(log, **options)


@pytest.mark.slow
@given(
    sizes=st.lists(st.integers(0, 1_000), max_size=20),
    tasks=st.none() | st.integers(1, 50),
    most=st.integers(1, 500),
)
def test_tasks_read_everything_once_and_about_as_much_each(
    sizes: list[int], tasks: int | None, most: int
) -> None:
    ranges = [Range("f", "t", i, 5, 5 + size) for i, size in enumerate(sizes)]
    options = {"maxRecordsPerPartition": str(most)}
    if tasks is not None:
        options["minPartitions"] = str(tasks)
    packs = plan.split(ranges, parse(options, streaming=False))
    read = sorted((p.partition, o) for pack in packs for p in pack for o in range(p.start, p.end))
    assert read == [(i, o) for i, size in enumerate(sizes) for o in range(5, 5 + size)]
    assert all(sum(piece.size for piece in pack) <= most * 1.1 + 1 for pack in packs)
    if tasks is not None and sum(sizes) >= tasks * 20:
        assert len(packs) >= tasks * 0.5


# -- files --------------------------------------------------------------------------------------


def test_files_are_named_by_path_list_glob_and_folder(tmp_path: Path) -> None:
    for name in ("b.db", "a.db", "c.txt"):
        (tmp_path / name).touch()
    one = files.resolve(tmp_path / "c.txt")
    assert (one.paths, one.is_fleet) == ((str(tmp_path / "c.txt"),), False)
    both = (str(tmp_path / "a.db"), str(tmp_path / "b.db"))
    for given_ in (tmp_path, f"{tmp_path}/*.db", [tmp_path / "a.db", tmp_path / "b.db", tmp_path]):
        found = files.resolve(given_)
        assert (found.paths, found.is_fleet) == (both, True)
    assert files.resolve(f"file://{tmp_path}/a.db").paths == both[:1]
    assert files.resolve([tmp_path / "a.db"]).is_fleet


@pytest.mark.parametrize("given_", ["nothing.db", "*.nothing", ["nothing.db"], "empty"])
def test_nothing_to_read_is_said(tmp_path: Path, given_: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(SparkOptionError, match="found nothing"):
        files.resolve(given_)


@each("name", ["startingOffsets", "endingOffsets"])
@each("text", ['{"t":{"0":5,"2":5}}', '{"t":{"0":5},"gone":{"0":1}}', '{"t":{"0":-2,"7":-2}}'])
def test_what_offsets_name_must_be_there(log: eosdb.Database, name: str, text: str) -> None:
    with pytest.raises(SparkOptionError, match=f"option {name}: (t-2|gone-0|t-7) cannot be read"):
        planned(log, **{name: text.replace("-2", "-1") if name == "endingOffsets" else text})
    with pytest.raises(SparkOptionError, match=f"option {name}ByTimestamp: gone-0 cannot be read"):
        planned(log, **{f"{name}ByTimestamp": '{"gone":{"0":1}}'})
    with pytest.raises(SparkOptionError, match=r"t-1 cannot be read: .* subscribed to"):
        planned(log, assign='{"t":[0]}', **{name: '{"t":{"1":0}}'})


def test_an_offset_outside_the_log_is_an_error_or_is_logged(
    log: eosdb.Database, caplog: pytest.LogCaptureFixture
) -> None:
    for options in ({"startingOffsets": '{"t":{"0":0}}'}, {"endingOffsets": '{"t":{"0":99}}'}):
        with pytest.raises(SparkOptionError, match=r"offset (0|99) cannot be read, the log goes"):
            planned(log, **options)
        caplog.clear()
        assert planned(log, **options, failOnDataLoss="false")[0] == (2, 10)
        (record,) = caplog.records
        assert "t-0: offset" in record.getMessage()


def test_offsets_of_a_checkpoint_are_those_of_one_file_and_topic(
    log: eosdb.Database, tmp_path: Path
) -> None:
    mark, topic_id = Tools(log.admin).history_mark(), log.broker.topic("t").topic_id

    def start(value: str) -> dict[int, tuple[int, int]]:
        return planned(log, startingOffsets=f'{{"t":{{"0":"{value}"}}}}')

    assert (
        start(f"5@{mark}@{topic_id}") == start(f"5@{mark}") == start("5") == {0: (5, 10), 1: (0, 0)}
    )
    with eosdb.connect(tmp_path / "other.db") as other:
        another = Tools(other.admin).history_mark()
    with pytest.raises(SparkOptionError, match=r"offset 5 of t-0 .* this is another file: its id"):
        start(f"5@{another}@{topic_id}")
    log.admin.delete_topic("t")
    log.admin.create_topic("t", partitions=2)
    for _ in range(10):
        log.broker.append(TP, RecordBatch([Record(value=b"new")]))
    with pytest.raises(SparkOptionError, match=r"offset 5 of t-0 .* deleted and recreated"):
        start(f"5@{mark}@{topic_id}")
