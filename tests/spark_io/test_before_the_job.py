"""What can be known before a job runs is said before it runs, and is true for every folder of a worker."""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import BinaryType, StructType

import eosdb
from eosdb.errors import DatabaseNotFoundError, UnknownTopicOrPartitionError
from eosdb.spark_io import jdbc_options, skipped_files
from eosdb.spark_io.planning import options
from eosdb.spark_io.planning.errors import SparkOptionError
from eosdb.spark_io.source import EosdbDataSource, Records
from eosdb.spark_io.writing import outgoing
from tests.spark_io.like_spark import SCHEMA, Reader, texts
from tests.spark_io.making import make


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    make(tmp_path / "orders.db", range(10))
    return tmp_path / "orders.db"


def of_an_older_schema(orders: Path, path: Path) -> Path:
    shutil.copy(orders, path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version=0")
    return path


@pytest.mark.parametrize("how", ["writer", "streamWriter"])
def test_a_target_that_is_missing_or_has_no_such_topic_is_refused_before_the_job(
    orders: Path, tmp_path: Path, how: str
) -> None:
    def start(path: Path, topic: str) -> None:
        getattr(EosdbDataSource({"path": str(path), "topic": topic}), how)(SCHEMA, False)

    start(orders, "orders")
    with pytest.raises(UnknownTopicOrPartitionError, match="nowhere"):
        start(orders, "nowhere")
    with pytest.raises(DatabaseNotFoundError, match="does not exist"):
        start(tmp_path / "nothing.db", "orders")
    older = of_an_older_schema(orders, tmp_path / "older.db")
    start(older, "orders")  # The commit upgrades it.


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
REFUSED = [
    ("orders", {"partition": [0, 1]}, "partition 1 of topic orders, which has 1, counted from 0"),
    ("orders", {"partition": [0, -1]}, "partition -1 of topic orders"),
    ("orders", {"headers": [[], [{"key": None, "value": b"v"}]]}, "a header without a key"),
    ("compact", {"key": [b"k", None]}, "no key, and topic compact is compacted"),
    (None, {"topic": ["orders", None]}, "no topic, and option topic names none"),
    (None, {"topic": ["orders", "gone"]}, "topic 'gone', which does not exist"),
    (None, {"topic": ["two", "orders"], "partition": [1, 1]}, "partition 1 of topic orders"),
    (None, {"topic": ["orders", "compact"]}, "no key, and topic compact is compacted"),
]


@pytest.fixture
def topics(orders: Path) -> Path:
    """Beside `orders`, which has one partition."""
    with eosdb.connect(orders, durability="off") as db:
        db.admin.create_topic("two", partitions=2)
        db.admin.create_topic("compact", config={"cleanup.policy": "compact"})
    return orders


@pytest.mark.slow
@pytest.mark.parametrize(("topic", "columns", "why"), REFUSED)
@pytest.mark.parametrize("how", ["writer", "streamWriter"])
def test_a_row_that_its_topic_does_not_take_fails_in_its_task(
    topics: Path, how: str, topic: str | None, columns: dict[str, list[Any]], why: str
) -> None:
    types = {"partition": pa.int32(), "headers": HEADERS}
    rows = pa.table(
        {"value": [b"good", b"bad"]}
        | {name: pa.array(cells, types.get(name)) for name, cells in columns.items()}
    )
    source = EosdbDataSource(texts({"path": topics, "topic": topic}))
    writer = getattr(source, how)(from_arrow_schema(rows.schema), False)
    task = pickle.loads(pickle.dumps(writer))
    with pytest.raises(SparkOptionError, match=f"orders.db: a row .*{why}.* nothing of this write"):
        task.write(iter(rows.to_batches(1)))
    assert not Path(f"{topics}-staging").exists()
    task.write(iter(rows.slice(0, 1).to_batches()))


def test_a_compacted_topic_is_refused_before_the_job_if_there_is_no_key(topics: Path) -> None:
    source = EosdbDataSource({"path": str(topics), "topic": "compact"})
    for how in ("writer", "streamWriter"):
        with pytest.raises(SparkOptionError, match="topic compact is compacted: add a column key"):
            getattr(source, how)(SCHEMA, False)
    source.writer(StructType([*SCHEMA.fields]).add("key", BinaryType()), False)


def test_paths_are_those_of_the_drivers_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    types = {"value": "binary"}
    parsed = outgoing.parse({"path": "shop.db", "topic": "t"}, types)
    assert (parsed.path, parsed.staging) == (f"{tmp_path}/shop.db", f"{tmp_path}/shop.db-staging")
    for given in ("file:/staging", "file:///staging", "/staging"):
        parsed = outgoing.parse({"path": "file:/shop.db", "topic": "t", "stagingDir": given}, types)
        assert (parsed.path, parsed.staging) == ("/shop.db", "/staging")


@pytest.mark.parametrize(
    ("name", "guess"),
    [
        ("subcribe", "subscribe"),
        ("startingOffset", "startingOffsets"),
        ("stagingdirs", "stagingDir"),
    ],
)
def test_an_option_with_a_typing_error_gets_a_guess(name: str, guess: str) -> None:
    with pytest.raises(SparkOptionError, match=f"option {name.lower()}.* did you mean {guess}"):
        if guess == "stagingDir":
            outgoing.parse({"path": "a", "topic": "t", name: "x"}, {"value": "binary"})
        else:
            options.parse({name: "orders"}, streaming=False)
    with pytest.raises(SparkOptionError, match="option xyz is not known; see"):
        options.parse({"xyz": "1"}, streaming=False)
    for own in (options._READING, outgoing._OPTIONS):
        for known in own:
            assert options.spelled(known).lower() == known


def test_null_for_the_topics_is_all_of_them(orders: Path) -> None:
    for topics in (None, pa.array([None], pa.string()), pa.array(["orders"])):
        found = list(Records().eval(pa.array([str(orders)]), topics))
        assert sum(batch.num_rows for batch in found) == 10
    with pytest.raises(SparkOptionError, match="got NULL, expected the path"):
        list(Records().eval(pa.array([None], pa.string())))


def test_jdbc_says_that_it_cannot_read_a_live_file_in_a_folder_that_it_may_not_write(
    orders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with eosdb.connect(orders) as db:
        db.publish_copy(tmp_path / "copy.db")
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    with pytest.raises(SparkOptionError, match=r"orders.db-shm .* the folder is not writable"):
        jdbc_options(orders)
    assert jdbc_options(tmp_path / "copy.db").predicates


def test_a_checkpoint_of_one_file_is_one_of_several_files_and_back(
    orders: Path, tmp_path: Path
) -> None:
    one, several = Reader(orders), Reader(tmp_path / "*.db")
    assert one(5) == list(range(5))
    several.offset = one.offset
    assert several(3) == [5, 6, 7]
    one.offset = several.offset
    assert one() == [8, 9]
    make(tmp_path / "second.db", range(100, 110))
    several.offset = one.offset
    assert several() == list(range(100, 110))
    one.offset = several.offset
    with pytest.raises(SparkOptionError, match=r"read 2 files, and this query names one.* new"):
        one()
    old: Any = {"orders": {"0": 3}}
    several.offset = old
    with pytest.raises(
        SparkOptionError, match=r"read one file.* does not identify it.* new checkp"
    ):
        several()


def test_a_device_of_an_older_schema_is_left_out_and_named(orders: Path, tmp_path: Path) -> None:
    older = of_an_older_schema(orders, tmp_path / "older.db")
    with pytest.raises(eosdb.errors.SchemaOutOfDateError, match="ignoreCorruptFiles=true"):
        Reader(tmp_path / "*.db")()
    reader = Reader(tmp_path / "*.db", ignoreCorruptFiles=True)
    assert reader() == list(range(10))
    ((path, reason),) = skipped_files(tmp_path / "*.db")
    assert path == os.fspath(older)
    assert "schema" in reason
