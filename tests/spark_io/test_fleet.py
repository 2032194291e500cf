"""Many files as one table: known by their ids, and some of them may be left out."""

from __future__ import annotations

import itertools
import os
import pickle
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb.admin.tools import Tools
from eosdb.errors import (
    CorruptDatabaseError,
    CorruptRecordError,
    DatabaseNotFoundError,
    NotAnEosdbFileError,
)
from eosdb.spark_io import skipped_files
from eosdb.spark_io.planning import plan
from eosdb.spark_io.planning.errors import SparkOptionError
from eosdb.spark_io.planning.options import parse
from eosdb.spark_io.planning.plan import Range
from eosdb.spark_io.reading.tasks import Task
from eosdb.spark_io.source import EosdbDataSource
from tests.spark_io.like_spark import SCHEMA, Reader, batch, tables
from tests.spark_io.making import append, make, remove

pytestmark = pytest.mark.slow

IGNORING = {"ignoreCorruptFiles": True, "ignoreMissingFiles": True}


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """a.db has 0 to 9, b.db 10 to 19."""
    folder = tmp_path / "fleet"
    folder.mkdir()
    for name, values in (("a.db", range(10)), ("b.db", range(10, 20))):
        make(folder / name, values)
    return folder


def id_of(path: Path) -> str:
    with eosdb.connect(path, read_only=True) as db:
        return Tools(db.admin).history_mark().partition(".")[0]


def damage(path: Path) -> None:
    """Alter a stored value, as a failing disk does."""
    connection = sqlite3.connect(path, isolation_level=None)
    for (name,) in connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'trigger'"
    ).fetchall():
        connection.execute(f'DROP TRIGGER "{name}"')
    connection.execute("UPDATE records SET value = x'00' WHERE \"offset\" = 4")
    connection.close()


# -- ids ----------------------------------------------------------------------------------------


def test_a_fleet_that_has_moved_keeps_its_offsets(fleet: Path, tmp_path: Path) -> None:
    reader = Reader(fleet)
    assert reader() == list(range(20))
    assert reader.offset is not None
    assert set(reader.offset) == {id_of(fleet / "a.db"), id_of(fleet / "b.db")}
    os.rename(fleet, tmp_path / "elsewhere")
    os.rename(tmp_path / "elsewhere" / "a.db", tmp_path / "elsewhere" / "z.db")
    moved = Reader(tmp_path / "elsewhere")
    moved.offset = reader.offset
    assert moved() == []
    assert moved.offset == reader.offset, "another offset would be another micro-batch"
    append(tmp_path / "elsewhere" / "z.db", range(20, 23))
    assert moved() == [20, 21, 22]


def test_a_copy_beside_its_original_is_the_same_file(fleet: Path) -> None:
    reader = Reader(fleet)
    reader()
    shutil.copy(fleet / "a.db", fleet / "a-copy.db")
    assert reader() == []
    append(fleet / "a.db", range(20, 23))
    assert reader() == [20, 21, 22]
    assert batch(fleet) == list(range(23))
    (left_out,) = skipped_files(fleet)
    assert left_out.path == str(fleet / "a-copy.db")
    assert f"copy of {fleet / 'a.db'}" in left_out.reason
    assert batch(fleet / "a-copy.db") == list(range(10))


def test_a_newer_snapshot_takes_the_place_of_the_older(fleet: Path, tmp_path: Path) -> None:
    folder = tmp_path / "published"
    folder.mkdir()
    reader = Reader(folder)
    for number, values in ((1, range(10)), (2, range(100, 105)), (3, range(105, 106))):
        if number > 1:
            append(fleet / "a.db", values)
        with eosdb.connect(fleet / "a.db", read_only=True) as db:
            db.publish_copy(folder / f"a-{number}.db")
        assert reader() == list(values)
    remove(folder / "a-1.db")
    assert reader() == []
    remove(folder / "a-3.db")
    with pytest.raises(SparkOptionError, match="older copy"):
        reader()


def test_copies_that_have_parted_are_an_error_that_names_both(fleet: Path) -> None:
    shutil.copy(fleet / "a.db", fleet / "a-copy.db")
    for number in (20, 21):
        append(fleet / "a.db", range(number, number + 1))
    append(fleet / "a-copy.db", range(30, 31))
    parted = r"(?=.*/a\.db )(?=.*/a-copy\.db ).* are copies of one"
    with pytest.raises(SparkOptionError, match=parted):
        Reader(fleet)()
    for options in ({}, IGNORING):
        with pytest.raises(SparkOptionError, match=parted):
            batch(fleet, **options)
    assert batch(fleet / "a-copy.db") == [*range(10), 30]


# -- files that are left out --------------------------------------------------------------------


def foreign(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE mine (x)")
    connection.close()


def half(path: Path) -> None:
    path.write_bytes(path.with_name("b.db").read_bytes()[:30_000])


def empty(path: Path) -> None:
    path.touch()


def text(path: Path) -> None:
    path.write_text("no database" * 500)


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (foreign, NotAnEosdbFileError),
        (text, NotAnEosdbFileError),
        (empty, NotAnEosdbFileError),
        (half, CorruptDatabaseError),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error_or_left_out(
    fleet: Path, spoil: Any, error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    stream, ignoring = Reader(fleet), Reader(fleet, ignoreCorruptFiles=True)
    spoil(fleet / "c.db")
    with pytest.raises(error, match=r"c\.db.*Set ignoreCorruptFiles=true"):
        stream()
    with pytest.raises(error, match=r"c\.db.*Set ignoreCorruptFiles=true"):
        batch(fleet)
    assert batch(fleet, ignoreCorruptFiles=True) == list(range(20))
    assert ignoring() == list(range(20))
    assert ignoring() == []
    assert f"{fleet / 'c.db'} is left out: " in caplog.text
    assert [one.path for one in skipped_files(fleet)] == [str(fleet / "c.db")]
    remove(fleet / "c.db")
    make(fleet / "c.db", range(20, 25))
    assert ignoring() == list(range(20, 25))
    assert skipped_files(fleet) == []


def test_the_offsets_of_a_file_that_is_damaged_stay(fleet: Path) -> None:
    reader = Reader(fleet, ignoreCorruptFiles=True)
    reader()
    whole = (fleet / "a.db").read_bytes()
    (fleet / "a.db").write_bytes(whole[:30_000])
    append(fleet / "b.db", range(20, 23))
    assert reader() == [20, 21, 22]
    (fleet / "a.db").write_bytes(whole)
    append(fleet / "a.db", range(23, 25))
    assert reader() == [23, 24]


def test_a_damaged_record_ends_its_file_and_no_other(fleet: Path) -> None:
    damage(fleet / "a.db")
    with pytest.raises(CorruptRecordError, match="Set ignoreCorruptFiles=true"):
        batch(fleet)
    assert set(range(10, 20)) <= set(batch(fleet, ignoreCorruptFiles=True)) <= set(range(20)) - {4}


def test_a_file_that_vanishes_before_its_task_comes_is_an_error_or_left_out(fleet: Path) -> None:
    for options in ({}, {"ignoreMissingFiles": "true"}):
        given = {"path": str(fleet), **options}
        reader = EosdbDataSource(given).reader(SCHEMA)
        tasks = reader.partitions()
        os.rename(fleet / "a.db", fleet / "a.gone")
        if options:
            assert sum(table.num_rows for table in tables(reader, tasks)) == 10
        else:
            with pytest.raises(DatabaseNotFoundError, match="Set ignoreMissingFiles=true"):
                tables(reader, tasks)
        os.rename(fleet / "a.gone", fleet / "a.db")


def test_a_stream_goes_on_without_a_missing_file_and_with_it_when_it_returns(
    fleet: Path, caplog: pytest.LogCaptureFixture
) -> None:
    strict, reader = Reader(fleet), Reader(fleet, ignoreMissingFiles=True)
    strict()
    reader()
    os.rename(fleet / "a.db", fleet / "a.gone")
    append(fleet / "b.db", range(20, 23))
    with pytest.raises(SparkOptionError, match=r"a\.db: the file with the id .*ignoreMissingFiles"):
        strict()
    assert reader() == [20, 21, 22]
    assert f"{fleet / 'a.db'} is left out: " in caplog.text
    remove(fleet / "b.db")
    assert reader() == [], "an empty folder is no error either"
    os.rename(fleet / "a.gone", fleet / "returned.db")
    append(fleet / "returned.db", range(30, 33))
    assert reader() == [30, 31, 32]


def test_files_of_a_list_may_be_missing(fleet: Path) -> None:
    named = f'["{fleet}/a.db", "{fleet}/nothing.db"]'
    schema = SCHEMA
    with pytest.raises(SparkOptionError, match=r"nothing\.db: found nothing; expected a file"):
        EosdbDataSource({"paths": named}).reader(schema)
    source = EosdbDataSource({"paths": named, "ignoreMissingFiles": "true"})
    assert "source_file" in source.schema()
    found = source.reader(schema)
    (task,) = found.partitions()
    assert isinstance(task, Task)
    assert [range_.path for range_ in task.ranges] == [f"{fleet}/a.db"]
    with pytest.raises(SparkOptionError, match="found nothing"):
        batch(fleet / "nothing.db", **IGNORING)


def test_a_topic_that_is_in_no_file_is_still_an_error(fleet: Path) -> None:
    with pytest.raises(SparkOptionError, match="no nowhere in any of the files"):
        batch(fleet, subscribe="nowhere", **IGNORING)


# -- what it costs ------------------------------------------------------------------------------


def test_tasks_get_neither_the_plan_of_others_nor_what_is_known_of_files(fleet: Path) -> None:
    stream = Reader(fleet).stream_reader()
    stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())
    reader = EosdbDataSource({"path": str(fleet)}).reader(SCHEMA)
    for one in (stream, reader):
        assert b"a.db" not in pickle.dumps(one)
        copy = pickle.loads(pickle.dumps(one))
        ranges = (Range(str(fleet / "a.db"), "orders", 0, 2, 10),)
        task = Task(ranges)
        (found,) = copy.read(task)
        assert found.num_rows == 8


def test_a_task_opens_a_file_once() -> None:
    ranges = [Range(f"{i % 7}.db", "t", i, 0, 100) for i in range(70)]
    options = parse({"maxRecordsPerPartition": "1400"}, streaming=False)
    for pack in plan.split(ranges, options):
        opened = [path for path, _ in itertools.groupby(range_.path for range_ in pack)]
        assert len(opened) == len(set(opened))
